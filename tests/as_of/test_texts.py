"""What a snapshot is written as, and the ways to say as of when; no broker is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import InvalidSetting
from ottla.client.snapshots import Ago, AsOf, AtTime, Moment, Now, Snapshot, moment_of, parse_as_of
from ottla.client.values import TopicPartition

MOMENT_MS = 1_794_794_400_000
TOPIC_ID = bytes(range(16))

keys = st.builds(
    TopicPartition, st.text("abcXYZ019._-", min_size=1, max_size=8), st.integers(min_value=0, max_value=2**31 - 1)
)
offsets = st.integers(min_value=0, max_value=2**63 - 1)
maps = st.dictionaries(keys, offsets, min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", Now()),
        ("latest", Now()),
        ("END", Now()),
        ("2026-11-16T02:00:00Z", AtTime(MOMENT_MS)),
        ("2026-11-16T02:00:00", AtTime(MOMENT_MS)),
        ("2026-11-16 02:00:00", AtTime(MOMENT_MS)),
        ("2026-11-16T03:00:00+01:00", AtTime(MOMENT_MS)),
        ("2026-11-16", AtTime(MOMENT_MS - 2 * 3_600_000)),
        ("2026-11-16T02:00:00.5004Z", AtTime(MOMENT_MS + 501)),
        (str(MOMENT_MS), AtTime(MOMENT_MS)),
        ("time:5", AtTime(5)),
        ("-10m", Ago(600_000)),
        ("-10 minutes", Ago(600_000)),
        ("-500ms", Ago(500)),
        ("-2w", Ago(14 * 86_400_000)),
        ('{"orders":{"0":700}}', Snapshot({TopicPartition("orders", 0): 700})),
        (' {"orders": {"0": 0}} ', Snapshot({TopicPartition("orders", 0): 0})),
    ],
)
def test_a_text_says_as_of_when(text: str, meant: Moment) -> None:
    assert parse_as_of(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yesterday", "write now, a time"),
        ("", "write now, a time"),
        ("-10", "write now, a time"),
        ("-10 fortnights", "write now, a time"),
        ("700", "write time:700, or offsets"),
        ("1900-01-01T00:00:00Z", "before 1970"),
        ("{", "is not JSON"),
        ("{}", "names no partition"),
        ('{"orders":{}}', "names no partition"),
        ('{"orders":700}', "it looks like"),
        ('{"orders":{"0":-1}}', "names the offsets themselves"),
        ('{"orders":{"0":"700"}}', "no offset"),
        ('{"orders":{"0":true}}', "no offset"),
        ('{"orders":{"0":9223372036854775808}}', "no offset"),
        ('{"orders":{"00":1}}', "not a partition"),
        ('{"orders":{"-1":1}}', "not a partition"),
        ('{"orders":{"0":1,"0":2}}', "there twice"),
        ('{"orders":{"0":1},"orders":{"1":2}}', "there twice"),
        ('{"orders":{"0":1},"@":3}', "where an object belongs"),
        ('{"orders":{"0":1},"@":{"ids":{"orders":"x"}}}', "no topic id"),
    ],
)
def test_a_text_that_says_nothing_is_refused_with_what_can_be_written(text: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        parse_as_of(text)


@pytest.mark.parametrize(
    ("as_of", "meant"),
    [
        (None, Now()),
        (MOMENT_MS, AtTime(MOMENT_MS)),
        (datetime(2026, 11, 16, 2, tzinfo=UTC), AtTime(MOMENT_MS)),
        (datetime(2026, 11, 16, 3, tzinfo=timezone(timedelta(hours=1))), AtTime(MOMENT_MS)),
        (datetime(2026, 11, 16, 2, 0, 0, 1, tzinfo=UTC), AtTime(MOMENT_MS + 1)),
        ("-1s", Ago(1_000)),
        ({("orders", 0): 7}, Snapshot({TopicPartition("orders", 0): 7})),
        ({"orders": {"0": 7}}, Snapshot({TopicPartition("orders", 0): 7})),
    ],
)
def test_a_program_says_as_of_when_with_values(as_of: AsOf, meant: Moment) -> None:
    assert moment_of(as_of) == meant


@pytest.mark.parametrize("as_of", [datetime(2026, 11, 16, 2), -1, True, 1.5, {("orders",): 7}, {}])
def test_a_value_that_says_nothing_is_refused(as_of: object) -> None:
    with pytest.raises(InvalidSetting):
        moment_of(as_of)  # type: ignore[arg-type]


@given(maps)
def test_the_text_is_the_offset_map_of_sparks_connector(ends: dict[TopicPartition, int]) -> None:
    document = json.loads(Snapshot(ends).to_json())

    flat = {(topic, int(number)): end for topic, part in document.items() for number, end in part.items()}
    assert flat == ends


@given(maps)
def test_a_snapshot_comes_back_from_its_text(ends: dict[TopicPartition, int]) -> None:
    assert Snapshot.from_json(Snapshot(ends).to_json()) == Snapshot(ends)


@given(maps, maps)
def test_the_pinned_text_also_tells_of_beginnings_and_topics(
    ends: dict[TopicPartition, int], starts: dict[TopicPartition, int]
) -> None:
    taken = Snapshot(ends, starts, {key.topic: TOPIC_ID for key in ends})

    assert Snapshot.from_json(taken.to_json(pinned=True)) == taken


def test_a_part_of_a_snapshot_keeps_what_is_known_of_it() -> None:
    both = {TopicPartition("a", 0): 5, TopicPartition("b", 1): 7}
    taken = Snapshot(both, dict.fromkeys(both, 1), {"a": TOPIC_ID, "b": TOPIC_ID}, "read_committed")

    expected = replace(
        taken, ends={TopicPartition("b", 1): 7}, starts={TopicPartition("b", 1): 1}, topic_ids={"b": TOPIC_ID}
    )
    assert taken.of(["b"]) == taken.only([("b", 1)]) == expected


def test_a_part_that_a_snapshot_has_not_is_refused() -> None:
    taken = Snapshot({TopicPartition("a", 0): 5})

    with pytest.raises(InvalidSetting, match="nothing of topic b"):
        taken.of(["a", "b"])
    with pytest.raises(InvalidSetting, match="nothing of a-1"):
        taken.only([("a", 1)])

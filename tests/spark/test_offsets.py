"""Offsets as JSON, partitions as JSON, relative starts, and the check against the partitions that there are."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.values import TopicPartition
from ottla.spark.errors import InvalidOption
from ottla.spark.offsets import (
    ByTimestamp,
    Earliest,
    Exactly,
    Latest,
    OffsetSpecification,
    RelativeRecords,
    RelativeTime,
    check_partitions,
    from_json,
    listed,
    partitions_from_json,
    relative,
    times_from_json,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

offset_maps = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2**31 - 1)), st.integers(-2, 2**63 - 1)
)


@given(offset_maps)
def test_offsets_come_back_from_their_text(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.dumps(to_json(offsets)), option="startingOffsets") == offsets


def test_topics_and_partitions_are_written_in_order_of_their_numbers() -> None:
    offsets = {B0: 3, TopicPartition("a", 10): 2, TopicPartition("a", 9): 1}

    assert json.dumps(to_json(offsets)) == '{"a": {"9": 1, "10": 2}, "b": {"0": 3}}'


def test_the_layout_is_that_of_the_connector() -> None:
    assert to_json({TopicPartition("topic", 0): 700}) == {"topic": {"0": 700}}


def test_a_parsed_document_is_read_like_its_text() -> None:
    assert (
        from_json({"a": {"0": 5, "1": -1}}, option="o")
        == {A0: 5, A1: -1}
        == from_json('{"a":{"0":5,"1":-1}}', option="o")
    )


def test_no_topic_at_all_is_no_offset() -> None:
    assert from_json("{}", option="o") == {}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "nonsense",
        "[]",
        "7",
        "null",
        '{"a": 5}',
        '{"a": [0]}',
        '{"a": {"0": "5"}}',
        '{"a": {"0": 5.0}}',
        '{"a": {"0": true}}',
        '{"a": {"0": null}}',
        '{"a": {"0": -3}}',
        '{"a": {"0": 9223372036854775808}}',
        '{"a": {"-1": 5}}',
        '{"a": {"x": 5}}',
        '{"a": {"٣": 5}}',
        '{"a": {"00": 5}}',
        '{"a": {"2147483648": 5}}',
        '{"a": {"99999999999999999999": 5}}',
        '{"": {"0": 5}}',
        '{"a": {"0": 5}',
        '{"a": {"0": 5, "0": 6}}',
        '{"a": {"0": 5}, "a": {"1": 6}}',
        '{"a": {"0": NaN}}',
        "[" * 100_000,
        None,
        {"a": {(1, 2): 5}},
        {5: {"0": 5}},
    ],
)
def test_what_is_not_of_that_form_is_refused_by_the_name_of_its_option(document: object) -> None:
    with pytest.raises(InvalidOption, match="endingOffsets") as refused:
        from_json(document, option="endingOffsets")

    assert len(str(refused.value)) < 1_000


def test_a_refusal_shows_the_form() -> None:
    with pytest.raises(InvalidOption, match=r'It looks like \{"topicA":\{"0":23'):
        from_json("7", option="startingOffsets")


def test_times_have_no_marks() -> None:
    assert times_from_json('{"a": {"0": 0}}', option="o") == {A0: 0}
    with pytest.raises(InvalidOption, match="milliseconds"):
        times_from_json('{"a": {"0": -1}}', option="o")


def test_assigned_partitions_are_read_once_each_and_in_order() -> None:
    assert partitions_from_json('{"b": [0], "a": [1, 0, 1]}', option="assign") == (A0, A1, B0)


@pytest.mark.parametrize(
    "text", ["", "a", "{}", '{"a": []}', '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}', '{"a": [true]}', '{"a": {"0": 1}}']
)
def test_an_assignment_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="assign"):
        partitions_from_json(text, option="assign")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-10m", RelativeTime(600_000)),
        ("-2h", RelativeTime(7_200_000)),
        ("-90s", RelativeTime(90_000)),
        ("-1d", RelativeTime(86_400_000)),
        ("-500ms", RelativeTime(500)),
        ("-15 minutes", RelativeTime(900_000)),
        (" -1 Hour ", RelativeTime(3_600_000)),
        ("-1000", RelativeRecords(1000)),
        ("-1000 records", RelativeRecords(1000)),
        ("-1000records", RelativeRecords(1000)),
        ("-1 record", RelativeRecords(1)),
        ("-2 records", RelativeRecords(2)),
        ("-3", RelativeRecords(3)),
    ],
)
def test_a_relative_start_counts_records_or_time(text: str, expected: OffsetSpecification) -> None:
    assert relative(text, option="startingOffsets") == expected


@pytest.mark.parametrize(
    "text", ["-", "-0", "-0 records", "-0m", "-m", "--5", "-5 apples", "-1.5h", "5m", "10", "-9" * 12]
)
def test_a_relative_start_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="startingOffsets"):
        relative(text, option="startingOffsets")


@pytest.mark.parametrize(("text", "meant"), [("-1", "latest"), ("-2", "earliest")])
def test_the_marks_alone_are_refused_since_they_would_skip_records_unnoticed(text: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"Write {meant}, or {text} records"):
        relative(text, option="startingOffsets")


@pytest.mark.parametrize(
    "specification",
    [Earliest(), Latest(), RelativeTime(5), RelativeRecords(5), ByTimestamp(5), Exactly({A0: 5, A1: -1})],
)
def test_a_start_that_fits_the_partitions_passes(specification: OffsetSpecification) -> None:
    check_partitions(specification, [A0, A1])


@pytest.mark.parametrize("named", [Exactly({A0: 5}), ByTimestamp({A0: 5})])
def test_a_partition_that_is_left_out_is_named(named: Exactly | ByTimestamp) -> None:
    with pytest.raises(InvalidOption, match="leaves out a-1") as refused:
        check_partitions(named, [A0, A1])

    assert refused.value.option == named.option


@pytest.mark.parametrize("named", [Exactly({A0: 5, B0: 5}), ByTimestamp({A0: 5, B0: 5})])
def test_a_partition_that_is_not_read_is_named(named: Exactly | ByTimestamp) -> None:
    with pytest.raises(InvalidOption, match="names b-0"):
        check_partitions(named, [A0])


def test_a_long_list_of_partitions_is_cut() -> None:
    assert listed(TopicPartition("a", number) for number in range(25)).endswith("a-19 and 5 more")


def test_one_time_may_stand_for_all_partitions() -> None:
    assert ByTimestamp(5).time_ms(A0) == 5
    assert ByTimestamp({A0: 5, A1: 6}).time_ms(A1) == 6


def test_specifications_and_refusals_travel_between_processes() -> None:
    specification = Exactly({A0: 5})
    refusal = InvalidOption("assign", "what", fix="how")
    copy = pickle.loads(pickle.dumps(refusal))

    assert pickle.loads(pickle.dumps(specification)) == specification
    assert (str(copy), copy.option, copy.fix) == ("assign: what. how", "assign", "how")

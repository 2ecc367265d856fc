"""The documents of a table's log, and what they add up to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.tables.commits import (
    FORMAT,
    RANGES_MAX,
    Commit,
    DataFile,
    State,
    Unreadable,
    decoded_commit,
    decoded_state,
    deletable,
    encoded,
    with_batch,
)

FILE = DataFile("files/date=2026-11-16/one.parquet", rows=2, bytes=100)
SCHEMA = {"type": "struct", "fields": []}


def _batch(version: int, batch_id: int = 0, **more: object) -> Commit:
    return Commit(
        version=version,
        kind="batch",
        time_ms=version,
        application="q",
        batch_id=batch_id,
        schema=dict(SCHEMA),
        **more,  # type: ignore[arg-type]
    )


def test_a_commit_is_read_back_as_it_was_written() -> None:
    commit = _batch(3, added=(FILE,), partition_by=("date(at)",), keys=("id",), order="n")

    assert decoded_commit(encoded(commit), version=3) == commit


def test_a_state_is_read_back_as_it_was_written() -> None:
    state = State()
    state.replay(_batch(1, added=(FILE,)))
    state.replay(Commit(version=2, kind="takeover", time_ms=2, application="q"))
    state.replay(Commit(version=3, kind="compaction", time_ms=3, removed=(FILE,)))

    assert decoded_state(encoded(state)) == state


def test_the_first_format_is_what_stands_in_the_description() -> None:
    document = json.loads(encoded(_batch(1, added=(FILE,))))

    assert document == {
        "version": 1,
        "kind": "batch",
        "time_ms": 1,
        "format": 1,
        "application": "q",
        "batch_id": 0,
        "added": [{"path": "files/date=2026-11-16/one.parquet", "rows": 2, "bytes": 100}],
        "removed": [],
        "changes_added": [],
        "changes_removed": [],
        "deleted": [],
        "schema": {"type": "struct", "fields": []},
        "partition_by": [],
        "keys": [],
        "order": None,
        "took_ms": 0,
    }


def test_a_document_of_a_newer_format_is_refused_with_the_fix() -> None:
    newer = encoded(_batch(1)).replace(b'"format": 1', b'"format": %d' % (FORMAT + 1))

    with pytest.raises(Unreadable, match="use a newer one"):
        decoded_commit(newer, version=1)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": "x"}'])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decoded_commit(data, version=1)


def test_a_document_under_the_name_of_another_version_is_refused() -> None:
    with pytest.raises(Unreadable, match="holds version 2"):
        decoded_commit(encoded(_batch(2)), version=1)


def test_a_batch_is_held_after_later_ones_too() -> None:
    state = State()
    for version, batch_id in ((1, 0), (2, 1), (3, 5)):
        state.replay(_batch(version, batch_id))

    assert [batch_id for batch_id in range(8) if state.holds("q", batch_id)] == [0, 1, 5]
    assert not state.holds("another", 0)


@given(st.lists(st.integers(0, 60), max_size=40))
def test_runs_of_batches_hold_what_was_put_in(numbers: list[int]) -> None:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        runs = with_batch(runs, number)

    assert [number for first, last in runs for number in range(first, last + 1)] == sorted(set(numbers))


def test_of_very_many_runs_the_oldest_become_one() -> None:
    runs: list[tuple[int, int]] = []
    for number in range(RANGES_MAX + 1):
        runs = with_batch(runs, 2 * number)

    assert len(runs) == RANGES_MAX
    assert runs[0] == (0, 2)


def test_a_removed_file_stays_until_its_grace_time_is_over() -> None:
    state = State()
    state.replay(_batch(1, added=(FILE,)))
    state.replay(Commit(version=2, kind="compaction", time_ms=1_000, removed=(FILE,)))

    assert deletable(state, now_ms=1_999, grace_ms=1_000) == []
    assert deletable(state, now_ms=2_000, grace_ms=1_000) == [FILE]


def test_where_too_much_waits_to_be_deleted_the_oldest_goes_after_a_minute() -> None:
    state = State()
    newer = DataFile("files/two.parquet", rows=1, bytes=100)
    state.replay(_batch(1, added=(FILE, newer)))
    state.replay(Commit(version=2, kind="compaction", time_ms=1_000, removed=(FILE,)))
    state.replay(Commit(version=3, kind="compaction", time_ms=2_000, removed=(newer,)))
    later_ms = 100_000

    assert deletable(state, now_ms=later_ms, grace_ms=3_600_000, expired_bytes_max=150) == [FILE]
    assert deletable(state, now_ms=later_ms, grace_ms=3_600_000, expired_bytes_max=200) == []
    assert deletable(state, now_ms=60_000, grace_ms=3_600_000, expired_bytes_max=150) == []

"""Which small files are put together, when changes are merged, and how much time that may take."""

from __future__ import annotations

from ottla.pipelines.tables.commits import DataFile, State
from ottla.pipelines.tables.compaction import SMALL_FILES_MIN, TimeShare, groups
from ottla.pipelines.tables.merging import CHANGES_MAX, PAUSE_FACTOR, is_due

MB = 1024 * 1024


def _files(*sizes: int, partition: str = "") -> list[DataFile]:
    inside = f"files/{partition}/" if partition else "files/"
    return [DataFile(f"{inside}{number}-{size}.parquet", rows=1, bytes=size) for number, size in enumerate(sizes)]


def test_all_small_files_of_a_partition_are_one_group() -> None:
    files = [*_files(10, 20, 300, partition="d=1"), *_files(10, 10, partition="d=2"), *_files(10, partition="d=3")]

    found = groups(files, file_bytes_min=100, in_passing=False)

    assert [(group.partition, [one.bytes for one in group.files]) for group in found] == [
        ("d=1", [10, 20]),
        ("d=2", [10, 10]),
    ]


def test_a_group_ends_when_it_is_big_enough() -> None:
    found = groups(_files(*[60] * 10), file_bytes_min=100, in_passing=False)

    assert [one.bytes for one in found[0].files] == [60, 60, 60]


def test_in_passing_files_join_others_of_their_own_size_only() -> None:
    big_and_small = _files(*[5_000] * SMALL_FILES_MIN, 15 * MB)

    (group,) = groups(big_and_small, file_bytes_min=32 * MB, in_passing=True)

    assert [one.bytes for one in group.files] == [5_000] * SMALL_FILES_MIN


def test_in_passing_few_files_are_left_alone() -> None:
    assert groups(_files(*[5_000] * (SMALL_FILES_MIN - 1)), file_bytes_min=32 * MB, in_passing=True) == ()


def test_in_the_long_run_each_row_is_rewritten_a_few_times_only() -> None:
    files: list[DataFile] = []
    written = 0
    for number in range(2_000):
        files.append(DataFile(f"files/{number}", rows=1, bytes=10_000))
        while found := groups(files, file_bytes_min=32 * MB, in_passing=True):
            joined = DataFile(f"files/{number}-{found[0].bytes}", rows=1, bytes=found[0].bytes)
            written += joined.bytes
            files = [one for one in files if one not in found[0].files] + [joined]

    assert written < 6 * 2_000 * 10_000
    assert len(files) < 60


def test_compaction_keeps_to_a_fifth_of_the_time() -> None:
    share = TimeShare(began_ms=0)
    share.spend(began_ms=1_000, ended_ms=2_000)

    assert not share.allows(4_999)
    assert share.allows(5_000)


def _state(table_bytes: int, changes: list[DataFile]) -> State:
    state = State(merged_ms=10_000, merge_took_ms=1_000)
    state.live = {"a": DataFile("files/a", rows=1, bytes=table_bytes)}
    state.changes = {one.path: one for one in changes}
    return state


def _due(state: State, *, now_ms: int = 10_001, deletes_by_order: bool = False) -> bool:
    return is_due(state, now_ms=now_ms, deletes_by_order=deletes_by_order, merged_always_bytes=16 * MB)


def test_changes_of_a_small_table_are_merged_at_once() -> None:
    assert _due(_state(16 * MB, []))


def test_changes_of_a_big_table_wait_a_while_after_a_merge() -> None:
    state = _state(100 * MB, _files(1_000))

    assert not _due(state, now_ms=10_000 + PAUSE_FACTOR * 1_000 - 1)
    assert _due(state, now_ms=10_000 + PAUSE_FACTOR * 1_000)


def test_many_changes_are_merged_whenever_the_last_merge_was() -> None:
    assert _due(_state(100 * MB, _files(*range(CHANGES_MAX))))
    assert _due(_state(100 * MB, _files(30 * MB)))


def test_deletions_by_order_never_wait() -> None:
    assert _due(_state(100 * MB, []), deletes_by_order=True)

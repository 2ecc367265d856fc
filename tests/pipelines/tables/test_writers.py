"""Several processes at one table, and what is kept and cleared away. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.tables.commit_log import CHECKPOINT_EVERY, CommitLog, checkpoint_name, commit_name
from ottla.pipelines.tables.contract import Shape
from ottla.pipelines.tables.errors import DamagedTable, NoTable, TableRefused, WriterReplaced
from ottla.pipelines.tables.files import LocalFiles
from ottla.pipelines.tables.table import ABANDONED_MS, LoggedTable
from tests.pipelines.tables.plain_rows import (
    Fuse,
    PlainRows,
    PowerFailed,
    Row,
    TickingClock,
    orphans,
    plain_table,
    shown_rows,
)


class Interrupted(PlainRows):
    """Lets something else happen after rows were written and before they are committed."""

    def __init__(self, rows: PlainRows, meanwhile: Any) -> None:
        super().__init__(str(rows._root), Fuse())
        self._meanwhile = meanwhile

    def write(self, frame: list[Row], shape: Shape, directory: str) -> None:
        super().write(frame, shape, directory)
        self._once()

    def write_changes(self, frame: list[Row], shape: Shape, directory: str, *, sequence: int) -> None:
        super().write_changes(frame, shape, directory, sequence=sequence)
        self._once()

    def _once(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()


def _ids(table: LoggedTable[list[Row]], rows: PlainRows) -> list[int]:
    return sorted(row["id"] for row in rows.read(table.state))


def _interrupted(root: Path, meanwhile: Any, **settings: Any) -> LoggedTable[list[Row]]:
    table, rows = plain_table(root, process="slow", **settings)
    table._rows = Interrupted(rows, meanwhile)
    return table


def test_two_applications_append_at_the_same_time(tmp_path: Path) -> None:
    other, rows = plain_table(tmp_path, process="other")
    slow = _interrupted(tmp_path, lambda: other.write_batch([{"id": 1}], application="other", batch_id=0))

    slow.write_batch([{"id": 2}], application="slow", batch_id=0)

    assert _ids(other, rows) == [1, 2]
    assert sorted(row["id"] for row in shown_rows(tmp_path)) == [1, 2]


def test_two_applications_write_the_same_key_one_after_the_other(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"keys": ("id",)}
    other, rows = plain_table(tmp_path, process="other", **settings)
    other.write_batch([{"id": 1, "of": "first"}], application="other", batch_id=0)
    slow = _interrupted(
        tmp_path, lambda: other.write_batch([{"id": 1, "of": "other"}], application="other", batch_id=1), **settings
    )

    slow.write_batch([{"id": 1, "of": "slow"}], application="slow", batch_id=0)

    assert rows.read(other.state) == [{"id": 1, "of": "slow"}]
    assert orphans(tmp_path, other.state) == []


def test_columns_that_two_applications_add_at_the_same_time_are_both_kept(tmp_path: Path) -> None:
    other, _ = plain_table(tmp_path, process="other")
    slow = _interrupted(tmp_path, lambda: other.write_batch([{"id": 1, "a": 1}], application="other", batch_id=0))

    slow.write_batch([{"id": 2, "b": "x"}], application="slow", batch_id=0)

    schema = other.state.schema
    assert schema is not None
    assert [field["name"] for field in schema["fields"]] == ["id", "a", "b"]


def test_a_compaction_beside_a_batch_keeps_both(tmp_path: Path) -> None:
    other, rows = plain_table(tmp_path, process="other")
    for number in range(3):
        other.write_batch([{"id": number}], application="other", batch_id=number)
    slow = _interrupted(tmp_path, other.compact)

    slow.write_batch([{"id": 3}], application="slow", batch_id=0)

    assert _ids(other, rows) == [0, 1, 2, 3]
    assert len(other.state.live) == 2


def test_a_batch_that_another_process_committed_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    other, rows = plain_table(tmp_path, process="other")
    slow = _interrupted(tmp_path, lambda: other.write_batch([{"id": 1}], application="q", batch_id=0))

    with pytest.raises(WriterReplaced):
        slow.write_batch([{"id": 1}], application="q", batch_id=0)

    assert _ids(other, rows) == [1]


def test_a_process_that_was_replaced_cannot_commit_any_more(tmp_path: Path) -> None:
    """The new one has cleared its files away: what it would commit is not there."""
    other, rows = plain_table(tmp_path, process="other")
    slow = _interrupted(tmp_path, lambda: other.write_batch([{"id": 7}], application="q", batch_id=5))

    with pytest.raises(WriterReplaced, match="taken over the application 'q'"):
        slow.write_batch([{"id": 1}], application="q", batch_id=6)

    assert _ids(other, rows) == [7]
    assert orphans(tmp_path, other.state) == []


def test_what_another_application_left_is_cleared_away_after_a_day_only(tmp_path: Path) -> None:
    crashed, _ = plain_table(tmp_path, fuse=Fuse(5), process="crashed")
    with pytest.raises(PowerFailed):
        crashed.write_batch([{"id": 1}], application="crashed", batch_id=0)
    now_ms = max(int(path.stat().st_mtime * 1000) for path in tmp_path.rglob("*"))
    clock = TickingClock(now_ms)
    table, _ = plain_table(tmp_path, process="b", clock=clock)
    table.write_batch([{"id": 2}], application="q", batch_id=0)
    table.vacuum(grace_ms=0)
    assert len(orphans(tmp_path, table.state)) == 1

    clock.now += ABANDONED_MS
    table.vacuum(grace_ms=0)

    assert orphans(tmp_path, table.state) == []
    assert list((tmp_path / "_ottla" / "staging").rglob("*.parquet")) == []


def test_a_vacuum_leaves_an_attempt_alone_that_has_just_begun(tmp_path: Path) -> None:
    table, _ = plain_table(tmp_path)
    table.write_batch([{"id": 1}], application="q", batch_id=0)
    begun = tmp_path / "_ottla" / "staging" / "another" / "b0000000000-x" / "files" / "_temporary"
    begun.mkdir(parents=True)

    table.vacuum(grace_ms=0)

    assert begun.is_dir()


def test_a_replayed_batch_is_gone_through_and_not_written(tmp_path: Path) -> None:
    table, rows = plain_table(tmp_path)
    for number in (0, 1, 0, 1):
        table.write_batch([{"id": number}], application="q", batch_id=number)

    assert _ids(table, rows) == [0, 1]
    assert rows.drained == 2


def test_a_batch_without_rows_makes_no_version(tmp_path: Path) -> None:
    table, _ = plain_table(tmp_path)
    table.write_batch([{"id": 1}], application="q", batch_id=0)

    table.write_batch([], application="q", batch_id=1)

    assert table.state.version == 1


def test_other_keys_or_partitions_than_the_tables_are_refused(tmp_path: Path) -> None:
    plain_table(tmp_path)[0].write_batch([{"id": 1}], application="q", batch_id=0)

    with pytest.raises(TableRefused, match="keys is \\[\\] and cannot become \\['id'\\]"):
        plain_table(tmp_path, keys=("id",))[0].write_batch([{"id": 1}], application="q", batch_id=1)


def test_a_key_that_is_no_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match="no column 'none' for a key"):
        plain_table(tmp_path, keys=("none",))[0].write_batch([{"id": 1}], application="q", batch_id=1)


def test_where_no_table_is_there_is_nothing_to_compact(tmp_path: Path) -> None:
    with pytest.raises(NoTable):
        plain_table(tmp_path)[0].compact()


# --- the log ------------------------------------------------------------------------------------------


def _long_table(root: Path, clock: TickingClock | None = None) -> LoggedTable[list[Row]]:
    table, _ = plain_table(root, clock=clock)
    for number in range(CHECKPOINT_EVERY + 2):
        table.write_batch([{"id": number}], application="q", batch_id=number)
    return table


def test_a_table_is_opened_from_its_checkpoint(tmp_path: Path) -> None:
    table = _long_table(tmp_path)
    for version in range(1, CHECKPOINT_EVERY + 1):
        (tmp_path / commit_name(version)).unlink()

    again, rows = plain_table(tmp_path, process="b")

    assert again.state == table.state
    assert _ids(again, rows) == list(range(CHECKPOINT_EVERY + 2))


def test_a_broken_checkpoint_is_made_up_for_by_the_commits(tmp_path: Path) -> None:
    table = _long_table(tmp_path)
    (checkpoint,) = (tmp_path / "_ottla").glob("checkpoint-*")
    checkpoint.write_bytes(b"{")

    assert plain_table(tmp_path, process="b")[0].state == table.state


def test_a_log_without_its_beginning_is_damaged(tmp_path: Path) -> None:
    _long_table(tmp_path)
    (tmp_path / commit_name(1)).unlink()
    for checkpoint in (tmp_path / "_ottla").glob("checkpoint-*"):
        checkpoint.unlink()

    with pytest.raises(DamagedTable, match="begins at version 2"):
        plain_table(tmp_path)[0].state  # noqa: B018 - looking is what fails


def test_a_broken_commit_is_damage_and_names_the_file(tmp_path: Path) -> None:
    table, _ = plain_table(tmp_path)
    table.write_batch([{"id": 1}], application="q", batch_id=0)
    (tmp_path / commit_name(1)).write_text(json.dumps({"format": 1}))

    with pytest.raises(DamagedTable, match=r"00000000000000000001\.json"):
        CommitLog(LocalFiles(tmp_path, unique=lambda: "u")).refresh()


def test_old_commits_are_forgotten_once_two_checkpoints_cover_them(tmp_path: Path) -> None:
    clock = TickingClock()
    table = _long_table(tmp_path, clock)
    table.vacuum(grace_ms=3_600_000)
    assert len(list((tmp_path / "_ottla" / "commits").iterdir())) == table.state.version

    clock.now += 3_600_000
    table.vacuum(grace_ms=3_600_000)

    kept = CommitLog(LocalFiles(tmp_path, unique=lambda: "u"))
    assert kept.versions()[0] > CHECKPOINT_EVERY
    assert kept.refresh() == table.state


def test_a_commit_never_takes_the_place_of_another(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path, unique=lambda: "u")

    assert files.create(commit_name(1), b"one")
    assert not files.create(commit_name(1), b"two")
    assert files.read(commit_name(1)) == b"one"
    assert [path.name for path in (tmp_path / "_ottla" / "commits").iterdir()] == [Path(commit_name(1)).name]
    assert checkpoint_name(1) == "_ottla/checkpoint-00000000000000000001.json"

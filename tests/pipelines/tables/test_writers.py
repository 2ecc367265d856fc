"""Several processes at one table, and what is kept and cleared away. Without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.tables.commit_log import CHECKPOINT_EVERY, CommitLog, checkpoint_name, commit_name
from ottla.pipelines.tables.commits import DataFile
from ottla.pipelines.tables.contract import Shape
from ottla.pipelines.tables.errors import DamagedTable, NoTable, TableRefused, WriterReplaced
from ottla.pipelines.tables.files import LocalFiles
from ottla.pipelines.tables.table import ABANDONED_MS, GRACE_MS, TIDY_EVERY, LoggedTable
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


def test_a_process_whose_rows_were_cleared_away_does_not_take_its_batch_for_an_empty_one(tmp_path: Path) -> None:
    """It would tell Spark that the batch is done, and nobody would write it again."""
    other, rows = plain_table(tmp_path, process="other")
    other.write_batch([{"id": 1}], application="q", batch_id=0)
    crashing, _ = plain_table(tmp_path, process="crashing", fuse=Fuse(8))

    def take_over_and_crash() -> None:
        with pytest.raises(PowerFailed):
            crashing.write_batch([{"id": 2}], application="q", batch_id=1)

    slow = _interrupted(tmp_path, take_over_and_crash)

    with pytest.raises(WriterReplaced):
        slow.write_batch([{"id": 2}], application="q", batch_id=1)

    assert _ids(other, rows) == [1]


class Meanwhile(Fuse):
    """Lets something else happen at the `turn`-th step at which a condition holds."""

    def __init__(self, condition: Callable[[], object], action: Callable[[], object], *, turn: int) -> None:
        super().__init__()
        self._condition = condition
        self._action = action
        self._turns_left = turn

    def step(self) -> None:
        if self._turns_left and self._condition():
            self._turns_left -= 1
            if not self._turns_left:
                self._action()


def test_a_process_that_was_replaced_cannot_commit_a_compaction_either(tmp_path: Path) -> None:
    """Its new files are gone, and the old ones that they stand for would be given up."""
    other, rows = plain_table(tmp_path, process="other")
    files = tmp_path / "_ottla" / "files"
    # Its file has been moved into place, and is synced.
    fuse = Meanwhile(
        lambda: list(files.glob("c*")),
        lambda: other.write_batch([{"id": 100}], application="q", batch_id=100),
        turn=2,
    )
    replaced, _ = plain_table(tmp_path, process="replaced", fuse=fuse)
    last = TIDY_EVERY - 1
    for number in range(last):
        replaced.write_batch([{"id": number}], application="q", batch_id=number)

    with pytest.raises(WriterReplaced):
        replaced.write_batch([{"id": last}], application="q", batch_id=last)

    assert _ids(other, rows) == [*range(TIDY_EVERY), 100]
    assert sorted(row["id"] for row in shown_rows(tmp_path)) == [*range(TIDY_EVERY), 100]


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


class Scattering(PlainRows):
    """Writes as many files as it was given, as Spark does where a setting bounds what a file may hold."""

    rewrites = 0

    def write_again(self, files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        self.rewrites += 1
        assert self.rewrites < 10, "it goes on for ever"
        for number, one in enumerate(files, 1):
            self.write(self.rows_of([one]), shape, directory)
            written = self._root / directory / "part-00000.parquet"
            written.rename(written.with_name(f"part-{number:05}.parquet"))


def test_a_compaction_that_makes_no_fewer_files_comes_to_an_end(tmp_path: Path) -> None:
    table, rows = plain_table(tmp_path)
    for number in range(3):
        table.write_batch([{"id": number}], application="q", batch_id=number)
    table._rows = scattering = Scattering(str(tmp_path), Fuse())

    assert table.compact() == 0
    assert scattering.rewrites == 1
    assert _ids(table, rows) == [0, 1, 2]


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


def test_a_log_that_ends_before_a_checkpoint_that_cannot_be_read_is_damaged(tmp_path: Path) -> None:
    """What is there before the gap is a table of long ago, and no version of today can follow it."""
    table = _long_table(tmp_path)
    table.vacuum()
    _, broken = sorted((tmp_path / "_ottla").glob("checkpoint-*"))
    broken.write_bytes(b"{")
    for version in range(CHECKPOINT_EVERY + 1, table.state.version + 1):
        (tmp_path / commit_name(version)).unlink()

    with pytest.raises(DamagedTable, match=f"ends at version {CHECKPOINT_EVERY}"):
        plain_table(tmp_path, process="b")[0].state  # noqa: B018 - looking is what fails


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


def test_a_writer_that_was_idle_until_its_versions_were_forgotten_commits_after_the_last_one(tmp_path: Path) -> None:
    """The name of the version after the one that it knows is free again; nobody would read what it puts there."""
    clock = TickingClock()
    idle, _ = plain_table(tmp_path, process="idle", clock=clock)
    idle.write_batch([{"id": 1000}], application="idle", batch_id=0)
    busy = _long_table(tmp_path, clock)
    busy.vacuum()
    clock.now += GRACE_MS
    busy.vacuum()
    assert CommitLog(LocalFiles(tmp_path, unique=lambda: "u")).versions()[0] > 2

    idle.write_batch([{"id": 1001}], application="idle", batch_id=1)

    again, rows = plain_table(tmp_path, process="again")
    assert _ids(again, rows) == [*range(CHECKPOINT_EVERY + 2), 1000, 1001]


def test_a_writer_whose_versions_are_forgotten_during_its_batch_commits_after_the_last_one(tmp_path: Path) -> None:
    clock = TickingClock()

    def an_hour_passes() -> None:
        busy = _long_table(tmp_path, clock)
        busy.vacuum()
        clock.now += GRACE_MS
        busy.vacuum()

    slow = _interrupted(tmp_path, an_hour_passes, clock=clock)

    slow.write_batch([{"id": 1000}], application="slow", batch_id=0)

    again, rows = plain_table(tmp_path, process="again")
    assert _ids(again, rows) == [*range(CHECKPOINT_EVERY + 2), 1000]


def test_documents_of_the_last_hour_are_kept_however_short_the_grace_of_files_is(tmp_path: Path) -> None:
    clock = TickingClock()
    table = _long_table(tmp_path, clock)
    table.vacuum(grace_ms=0)
    table.vacuum(grace_ms=0)

    assert CommitLog(LocalFiles(tmp_path, unique=lambda: "u")).versions()[0] == 1


def test_a_commit_whose_first_answer_was_lost_is_known_to_be_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of NFS that hears nothing asks again, and is told that the name is taken."""
    link = os.link

    def linked_twice(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError

    files = LocalFiles(tmp_path, unique=lambda: "u")
    files.create(commit_name(1), b"another's")
    monkeypatch.setattr(os, "link", linked_twice)

    assert files.create(commit_name(2), b"ours")
    assert files.read(commit_name(2)) == b"ours"


def test_a_commit_never_takes_the_place_of_another(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path, unique=lambda: "u")

    assert files.create(commit_name(1), b"one")
    assert not files.create(commit_name(1), b"two")
    assert files.read(commit_name(1)) == b"one"
    assert [path.name for path in (tmp_path / "_ottla" / "commits").iterdir()] == [Path(commit_name(1)).name]
    assert checkpoint_name(1) == "_ottla/checkpoint-00000000000000000001.json"

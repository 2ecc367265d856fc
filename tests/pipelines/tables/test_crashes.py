"""The power fails between any two steps of a table's life; afterwards all of a batch is there, or nothing of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.pipelines.tables.plain_rows import (
    Fuse,
    PowerFailed,
    Row,
    TickingClock,
    orphans,
    plain_table,
    shown_rows,
)

BATCHES = 10
STAGES = [(0, 2), (6, BATCHES)]
"""The first batches of a table; and some later ones, between which files are put together."""
STEPS_MAX = 2_000


def _appended() -> list[list[Row]]:
    return [[{"id": 2 * n + m, "day": f"d{m}"} for m in range(2)] for n in range(BATCHES)]


def _upserted(seed: int) -> list[list[Row]]:
    chance = Random(seed)
    return [
        [
            {"id": chance.randrange(6), "day": f"d{chance.randrange(2)}", "n": n, "gone": chance.random() < 0.2}
            for _ in range(3)
        ]
        for n in range(BATCHES)
    ]


def _model(batches: list[list[Row]]) -> list[Row]:
    """What a table with keys holds after these batches."""
    rows: dict[int, Row] = {}
    for row in (row for batch in batches for row in batch):
        rows.pop(row["id"], None)
        if not row["gone"]:
            rows[row["id"]] = row
    return list(rows.values())


def _sorted(rows: list[Row]) -> list[list[tuple[str, Any]]]:
    return sorted(sorted(row.items()) for row in rows)


def _crashed(root: Path, batches: list[list[Row]], *, first: int, burns_at: int, **settings: Any) -> bool:
    """Write batches until the fuse burns; then begin again from the batch that was not acknowledged, as Spark does."""
    clock = TickingClock()
    table, _ = plain_table(root, fuse=Fuse(burns_at), clock=clock, process="a", **settings)
    number = first
    try:
        for number in range(first, len(batches)):
            table.write_batch(batches[number], application="q", batch_id=number)
        return False
    except PowerFailed:
        table, _ = plain_table(root, clock=clock, process="b", **settings)
        for again in range(number, len(batches)):
            table.write_batch(batches[again], application="q", batch_id=again)
        return True


def _every_crash(tmp_path: Path, batches: list[list[Row]], *, first: int, **settings: Any) -> Iterator[Path]:
    """A table for each step at which the power can fail from the `first` batch on."""
    before = tmp_path / "before"
    table, _ = plain_table(before, process="z", **settings)
    for number in range(first):
        table.write_batch(batches[number], application="q", batch_id=number)
    for step in count(1):
        root = tmp_path / str(step)
        if before.exists():
            shutil.copytree(before, root, copy_function=_linked)
        if not _crashed(root, batches, first=first, burns_at=step, **settings):
            assert step > 5 * (len(batches) - first), "the fuse was on the way"
            return
        assert step < STEPS_MAX
        yield root
        shutil.rmtree(root)


def _linked(source: str, target: str) -> None:
    # No file of a table is changed once it is written.
    os.link(source, target)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "end"), STAGES)
def test_a_crash_at_any_step_neither_loses_nor_doubles_an_appended_row(tmp_path: Path, first: int, end: int) -> None:
    batches = _appended()[:end]
    expected = _sorted([row for batch in batches for row in batch])

    for root in _every_crash(tmp_path, batches, first=first, partition_by=("day",), file_bytes_min=200):
        table, rows = plain_table(root, partition_by=("day",))

        assert _sorted(rows.read(table.state)) == expected, root.name
        assert _sorted(shown_rows(root)) == expected, root.name
        assert orphans(root, table.state) == [], root.name


@pytest.mark.slow
@pytest.mark.parametrize(("first", "end"), STAGES)
@pytest.mark.parametrize("merged_always_bytes", [0, 1_000_000])
def test_a_crash_at_any_step_leaves_a_table_with_keys_as_a_dict_would_be(
    tmp_path: Path, first: int, end: int, merged_always_bytes: int
) -> None:
    batches = _upserted(seed=end)[:end]
    settings: dict[str, Any] = {"keys": ("id",), "deleted": "gone", "partition_by": ("day",)}

    settings["merged_always_bytes"] = merged_always_bytes

    for root in _every_crash(tmp_path, batches, first=first, **settings):
        table, rows = plain_table(root, **settings)

        assert _sorted(rows.read(table.state)) == _sorted(_model(batches)), root.name
        assert orphans(root, table.state) == [], root.name
        table.compact()
        assert _sorted(shown_rows(root)) == _sorted(_model(batches)), root.name


@pytest.mark.slow
def test_a_crash_at_any_step_of_a_compaction_changes_no_row(tmp_path: Path) -> None:
    batches = _appended()[:4]
    expected = _sorted([row for batch in batches for row in batch])
    for step in count(1):
        root = tmp_path / str(step)
        table, _ = plain_table(root)
        for number, batch in enumerate(batches):
            table.write_batch(batch, application="q", batch_id=number)
        fuse = Fuse(step)
        table, _ = plain_table(root, fuse=fuse, process="c")
        try:
            table.compact()
            table.vacuum(grace_ms=0)
            break
        except PowerFailed:
            table, rows = plain_table(root, process="d")
            assert _sorted(rows.read(table.state)) == expected
            table.compact()
            table.vacuum(grace_ms=0)
            assert _sorted(rows.read(table.state)) == expected
            assert _sorted(shown_rows(root)) == expected
    assert step > 10

"""Tables without Spark: rows are dicts, files hold them as lines of JSON, and a fuse lets the power fail anywhere.

`Fuse` counts steps and fails at the one it is told; `FusedFiles` and `PlainRows` step before and after each operation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ottla.pipelines.tables.commits import DataFile, State
from ottla.pipelines.tables.contract import Shape, TableSettings
from ottla.pipelines.tables.files import Found, LocalFiles
from ottla.pipelines.tables.table import LoggedTable

Row = dict[str, Any]
TICK_MS = 100


class PowerFailed(BaseException):
    """The process is gone; nothing may catch it."""


class Fuse:
    """Counts steps; burns at one of them, if it is told to."""

    def __init__(self, burns_at: int | None = None) -> None:
        self.steps = 0
        self._burns_at = burns_at

    def step(self) -> None:
        self.steps += 1
        if self.steps == self._burns_at:
            raise PowerFailed(f"at step {self.steps}")


class TickingClock:
    """Moves on by a tick whenever it is looked at, so that work takes time."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        self.now += TICK_MS
        return self.now


class FusedFiles(LocalFiles):
    """Local files whose every change may be the last thing that happens."""

    def __init__(self, directory: Path, *, unique: Callable[[], str], fuse: Fuse) -> None:
        super().__init__(directory, unique=unique)
        self._fuse = fuse

    def create(self, path: str, data: bytes) -> bool:
        self._fuse.step()
        done = super().create(path, data)
        self._fuse.step()
        return done

    def replace(self, path: str, data: bytes) -> None:
        self._fuse.step()
        super().replace(path, data)
        self._fuse.step()

    def move(self, source: str, target: str) -> None:
        self._fuse.step()
        super().move(source, target)
        self._fuse.step()

    def sync(self, paths: Iterable[str]) -> None:
        super().sync(paths)
        self._fuse.step()

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._fuse.step()

    def remove(self, path: str) -> None:
        super().remove(path)
        self._fuse.step()

    def remove_tree(self, directory: str) -> None:
        # Also half of it: file by file.
        for one in self.found(directory):
            super().remove(one.path)
            self._fuse.step()
        super().remove_tree(directory)
        self._fuse.step()

    def found(self, directory: str) -> list[Found]:
        return super().found(directory)


class PlainRows:
    """What Spark does, on lists of dicts. `order` and `deleted` are names of columns here."""

    def __init__(self, root: str, fuse: Fuse) -> None:
        self._root = Path(root)
        self._fuse = fuse
        self.drained = 0

    def schema(self, frame: list[Row]) -> dict[str, Any]:
        types: dict[str, str] = {}
        # A frame has a schema also when it has no rows.
        for row in frame or [{"id": 1}]:
            for name, value in row.items():
                types.setdefault(name, "boolean" if value is True or value is False else _type_name(value))
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
        return {"type": "struct", "fields": fields}

    def drain(self, frame: list[Row]) -> None:
        self.drained += 1

    def write(self, frame: list[Row], shape: Shape, directory: str) -> None:
        by_partition: dict[str, list[Row]] = {}
        columns = [column.name for column in shape.partitions]
        for row in frame:
            place = "/".join(f"{name}={quote(str(row[name]), safe='')}" for name in columns)
            by_partition.setdefault(place, []).append({name: row[name] for name in row if name not in columns})
        for place, rows in by_partition.items():
            self._put(self._root / directory / place, rows)

    def write_changes(self, frame: list[Row], shape: Shape, directory: str, *, sequence: int) -> None:
        last: dict[tuple[Any, ...], Row] = {}
        for row in frame:
            last[_key(row, shape)] = row
        changes = [
            {**row, "__deleted": bool(shape.deleted and row[shape.deleted]), "__sequence": sequence}
            for row in last.values()
        ]
        if changes:
            self._put(self._root / directory, changes)

    def holding(self, changes: Sequence[str], files: Sequence[DataFile], shape: Shape) -> Sequence[DataFile]:
        keys = {_key(row, shape) for row in self._changes(changes)}
        return [one for one in files if keys & {_key(row, shape) for row in self.rows_of([one])}]

    def write_merged(self, changes: Sequence[str], files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        self.write(_merged(self.rows_of(files), self._changes(changes), shape.keys), shape, directory)

    def write_again(self, files: Sequence[DataFile], shape: Shape, directory: str) -> None:
        self.write(self.rows_of(files), shape, directory)

    def rows(self, path: str) -> int:
        return len((self._root / path).read_text().splitlines())

    def read(self, state: State) -> list[Row]:
        """The rows of a version."""
        rows = self.rows_of(list(state.live.values()))
        return _merged(rows, self._changes([one.place for one in state.changes.values()]), state.keys)

    def rows_of(self, files: Sequence[DataFile]) -> list[Row]:
        return [row for one in files for row in read_lines(self._root / one.place, one.partition)]

    def _changes(self, places: Sequence[str]) -> list[Row]:
        found = []
        for place in places:
            whole = self._root / place
            for one in sorted(whole.rglob("*.parquet")) if whole.is_dir() else [whole]:
                found += read_lines(one, "")
        return sorted(found, key=lambda row: row["__sequence"])

    def _put(self, directory: Path, rows: list[Row]) -> None:
        self._fuse.step()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "part-00000.parquet").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self._fuse.step()


def read_lines(path: Path, partition: str) -> list[Row]:
    """The rows of one file, with the columns of its partition."""
    columns = dict(part.split("=") for part in partition.split("/") if part)
    values = {name: unquote(value) for name, value in columns.items()}
    return [{**json.loads(line), **values} for line in path.read_text().splitlines()]


def shown_rows(root: Path) -> list[Row]:
    """What a reader sees that knows nothing of the log."""
    found = []
    for path in sorted(root.rglob("*.parquet")):
        inside = path.relative_to(root).parts
        if not any(part.startswith(("_", ".")) for part in inside):
            found += read_lines(path, "/".join(inside[:-1]))
    return found


def plain_table(
    root: Path,
    *,
    keys: tuple[str, ...] = (),
    deleted: str | None = None,
    partition_by: tuple[str, ...] = (),
    fuse: Fuse | None = None,
    clock: TickingClock | None = None,
    file_bytes_min: int = 1024,
    merged_always_bytes: int = 0,
    process: str = "a",
) -> tuple[LoggedTable[list[Row]], PlainRows]:
    """A table, and what can read its rows. Each process that opens it has a name of its own."""
    numbers = count()
    fuse = fuse or Fuse()

    def unique() -> str:
        return f"{process}{next(numbers)}"

    files = FusedFiles(root, unique=unique, fuse=fuse)
    rows = PlainRows(files.root, fuse)
    settings = TableSettings(
        path=str(root), keys=keys, deleted=deleted, partition_by=partition_by, file_bytes_min=file_bytes_min
    )
    table = LoggedTable(
        settings, files, rows, clock or TickingClock(), unique=unique, merged_always_bytes=merged_always_bytes
    )
    return table, rows


def orphans(root: Path, state: State) -> list[str]:
    """Files below the table that no commit names."""
    home = root / "_ottla"
    found = [path.relative_to(home).as_posix() for path in home.rglob("*.parquet")]
    return [path for path in found if not state.names(path)]


def _merged(rows: list[Row], changes: list[Row], keys: tuple[str, ...]) -> list[Row]:
    if not changes:
        return rows
    by_key = {tuple(row[key] for key in keys): row for row in rows}
    for change in changes:
        row = {name: value for name, value in change.items() if not name.startswith("__")}
        by_key.pop(tuple(row[key] for key in keys), None)
        if not change["__deleted"]:
            by_key[tuple(row[key] for key in keys)] = row
    return list(by_key.values())


def _key(row: Row, shape: Shape) -> tuple[Any, ...]:
    return tuple(row[key] for key in shape.keys)


def _type_name(value: object) -> str:
    return "long" if isinstance(value, int) else "string"

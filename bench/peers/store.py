"""What was measured, as one file of JSON for each row, so that a run that is cut off is not lost.

A row that is measured anew is written beside its older figures and takes their place when all its rounds are there.
All of it goes into one file beside the page too: from there it comes back on a machine that has measured nothing.
Knows nothing of how figures are made or shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from bench.peers.contract import Load, Result, Row, Turn

STORE = Path(__file__).resolve().parents[2] / ".cache" / "bench-peers"
_NEW = ".new.json"
_LOAD = [each.name for each in fields(Load)]
_DIGITS = 6
"""Of a figure in the file beside the page."""


class Store:
    """A directory of results."""

    def __init__(self, directory: Path = STORE) -> None:
        self._rows = directory / "rows"
        self._rows.mkdir(parents=True, exist_ok=True)

    def begin(self, row: Row, *, is_resumed: bool) -> None:
        """From now on figures are new ones; those that are there count if the run is resumed."""
        if not is_resumed:
            self._write(Result(row, {}, {}), _NEW)

    def add(self, row: Row, side: str, turn: Turn) -> None:
        """One more round of a side."""
        result = self._new(row)
        turns = {name: list(kept) for name, kept in result.turns.items()}
        turns.setdefault(side, []).append(turn)
        missing = {name: why for name, why in result.missing.items() if name != side}
        self._write(Result(row, turns, missing), _NEW)

    def miss(self, row: Row, side: str, why: str) -> None:
        """A side could not be measured in this round, which takes its place among the missing ones."""
        result = self._new(row)
        self._write(Result(row, result.turns, {**result.missing, side: why}), _NEW)

    def taken(self, row: Row, side: str) -> int:
        """How many rounds of a side the run that is under way has."""
        return len(self._new(row).turns.get(side, ()))

    def finish(self, row: Row) -> None:
        """The new figures take the place of the older ones."""
        new = self._path(row.id, _NEW)
        if new.exists():
            new.replace(self._path(row.id))

    def result(self, row_id: str) -> Result | None:
        """The last finished figures of a row, or those of a run under way where it has no others."""
        for ending in (".json", _NEW):
            path = self._path(row_id, ending)
            if path.exists():
                return parse(json.loads(path.read_text(encoding="utf-8")))
        return None

    def results(self) -> list[Result]:
        """Everything that is kept, by id."""
        names = {path.name.removesuffix(_NEW).removesuffix(".json") for path in self._rows.glob("*.json")}
        return [result for name in sorted(names) if (result := self.result(name)) is not None]

    def bundle(self) -> str:
        """All that is kept, as one text."""
        facts = json.loads(self._facts.read_text(encoding="utf-8")) if self._facts.exists() else None
        # A line for each row, so that a change of one shows as such.
        rows = ",\n".join(json.dumps(_short(_pack(result)), separators=(",", ":")) for result in self.results())
        return f'{{"facts": {json.dumps(facts)},\n"load": {json.dumps(_LOAD)},\n"rows": [\n{rows}\n]}}\n'

    def unbundle(self, text: str) -> None:
        """Take what `bundle` made, where nothing has been measured yet."""
        if any(self._rows.iterdir()):
            return
        kept = json.loads(text)
        for row in kept["rows"]:
            self._write(_unpack(row, kept["load"]), ".json")
        if kept["facts"] is not None:
            self._facts.write_text(json.dumps(kept["facts"], indent=1), encoding="utf-8")

    def keep_facts(self, facts: Sequence[str], *, taken: datetime) -> None:
        """Under what conditions the last run is taken, for a page that is written later."""
        self._facts.write_text(json.dumps({"taken": taken.isoformat(), "facts": list(facts)}, indent=1), "utf-8")

    def facts(self) -> tuple[list[str], datetime | None]:
        """Those of the last run, and when it was."""
        if not self._facts.exists():
            return [], None
        kept = json.loads(self._facts.read_text(encoding="utf-8"))
        return kept["facts"], datetime.fromisoformat(kept["taken"])

    @property
    def _facts(self) -> Path:
        return self._rows.parent / "facts.json"

    def _new(self, row: Row) -> Result:
        for ending in (_NEW, ".json"):
            path = self._path(row.id, ending)
            if path.exists():
                kept = parse(json.loads(path.read_text(encoding="utf-8")))
                return Result(row, kept.turns, kept.missing)
        return Result(row, {}, {})

    def _write(self, result: Result, ending: str) -> None:
        path = self._path(result.row.id, ending)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(render(result), indent=1), encoding="utf-8")
        partial.replace(path)

    def _path(self, row_id: str, ending: str = ".json") -> Path:
        return self._rows / f"{row_id}{ending}"


def render(result: Result) -> dict[str, Any]:
    """A result as JSON."""
    turns = {side: [asdict(turn) for turn in kept] for side, kept in result.turns.items()}
    return {"row": asdict(result.row), "turns": turns, "missing": dict(result.missing)}


def parse(kept: Mapping[str, Any]) -> Result:
    """What `render` made."""
    turns = {side: [_turn(each) for each in rounds] for side, rounds in kept["turns"].items()}
    return Result(Row(**kept["row"]), turns, kept["missing"])


def _turn(kept: Mapping[str, Any]) -> Turn:
    load = kept["load"]
    return Turn(value=kept["value"], load=None if load is None else Load(**load))


def _pack(result: Result) -> dict[str, Any]:
    """As `render`, without the names in what each turn cost, which are the same in all of them."""
    packed = render(result)
    for turn in chain.from_iterable(packed["turns"].values()):
        if turn["load"] is not None:
            turn["load"] = [turn["load"][name] for name in _LOAD]
    return packed


def _unpack(kept: dict[str, Any], names: Sequence[str]) -> Result:
    """What `_pack` made."""
    for turn in chain.from_iterable(kept["turns"].values()):
        if turn["load"] is not None:
            turn["load"] = dict(zip(names, turn["load"], strict=True))
    return parse(kept)


def pick(rows: Sequence[Row], wanted: Sequence[str]) -> list[Row]:
    """The rows whose ids begin with one of the words that are wanted; all of them without any."""
    return [
        row for row in rows if not wanted or any(row.id == word or row.id.startswith(f"{word}-") for word in wanted)
    ]


def _short(value: Any) -> Any:
    """The same with as many digits as a figure can be trusted to."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list | tuple) else value

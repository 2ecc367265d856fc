"""How far the queries of a pipeline are, seen from outside, by the checkpoints that Spark keeps for them.

Which queries there are, and what each of them writes, is not known here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

NONE = -1
"""The number of a batch that is not there."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one query: the newest batch that it has begun, and the newest that Spark has noted as done."""

    planned: int
    done: int

    @property
    def is_in_flight(self) -> bool:
        return self.planned > self.done


class Checkpoints:
    """The directory with the checkpoints of all queries."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def standings(self) -> dict[str, Standing]:
        """By query; those that have begun no batch yet are not there."""
        return {
            offsets.parent.name: Standing(_newest(offsets), _newest(offsets.parent / "commits"))
            for offsets in sorted(self._home.glob("*/offsets"))
            if _newest(offsets) > NONE
        }

    def in_flight(self) -> dict[str, int]:
        """By query, the batch that was begun and that Spark has not noted as done."""
        return {name: standing.planned for name, standing in self.standings().items() if standing.is_in_flight}

    def planned_count(self) -> int:
        """How many batches all queries have begun."""
        return sum(standing.planned + 1 for standing in self.standings().values())

    def query_id(self, name: str) -> str:
        """The id of a query, which holds over restarts."""
        document = json.loads((self._home / name / "metadata").read_text(encoding="utf-8"))
        return str(document["id"])


def _newest(directory: Path) -> int:
    # Names that are no numbers are files that are not whole yet, and checksums.
    return max((int(path.name) for path in directory.glob("*") if path.name.isdigit()), default=NONE)

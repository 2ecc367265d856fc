"""Watches a streaming query from outside: by its checkpoint, and by what the broker knows of its transactions.

Says how far a batch has got. What is done at which moment is not known here.
"""

from __future__ import annotations

import json
from pathlib import Path

from ottla.client.blocking.client import Client
from ottla.client.values import OffsetSpec

NONE = -1
"""The id of a batch that is not there."""
ONGOING = "Ongoing"


class Watch:
    """What can be seen of a query at this moment."""

    def __init__(self, client: Client, target: str, *, partitions: int, checkpoint: Path) -> None:
        self._admin = client.admin()
        self._ends: dict[tuple[str, int], OffsetSpec | int] = {
            (target, number): OffsetSpec.LATEST for number in range(partitions)
        }
        self._checkpoint = checkpoint
        self._query_id: str | None = None

    @property
    def query_id(self) -> str | None:
        """Its id, which holds over restarts; None before its first start."""
        if self._query_id is None:
            try:
                document = json.loads((self._checkpoint / "metadata").read_text(encoding="utf-8"))
            except (FileNotFoundError, json.JSONDecodeError):
                return None
            self._query_id = str(document["id"])
        return self._query_id

    def logged(self) -> int:
        """The newest batch that Spark has noted as done."""
        names = (path.name for path in (self._checkpoint / "commits").glob("*"))
        return max((int(name) for name in names if name.isdigit()), default=NONE)

    def committed(self) -> int:
        """The newest batch that the broker has committed."""
        if self.query_id is None:
            return NONE
        found = self._admin.last_committed(self.query_id)
        return NONE if found is None else found

    def has_unstable(self) -> bool:
        """Whether there are records in the target of which it is not settled whether they count."""
        stable = self._admin.list_offsets(self._ends, isolation="read_committed")
        written = self._admin.list_offsets(self._ends)
        return any(found != stable[key] for key, found in written.items())

    def open_ids(self) -> list[str]:
        """The slots of the query with a transaction that is neither committed nor aborted."""
        listed = self._admin.list_transactions(states=[ONGOING])
        return [each.transactional_id for each in listed if each.transactional_id.startswith(f"{self.query_id}/")]

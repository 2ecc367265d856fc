"""How many rows the batches of a query wrote, where Spark itself does not count: tables, update mode, shared queries.

Spark counts while it writes, so that nothing is gone through twice. Where it cannot tell, the number is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

BATCHES_MAX = 1_000
_ROWS = "rows"


class RowsOut:
    """The counts of one query's last batches. Written by the thread that writes batches, read by another."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}

    def note(self, batch_id: int, *, rows: int) -> None:
        """A batch has been written."""
        self._rows[batch_id] = rows
        while len(self._rows) > BATCHES_MAX:
            del self._rows[next(iter(self._rows))]

    def of(self, batch_id: int) -> int | None:
        """How many rows a batch had; None: not known."""
        return self._rows.get(batch_id)


class Counting:
    """Counts the rows of one batch, over all that it is written to."""

    def __init__(self) -> None:
        self._seen: list[Observation] = []

    def counted(self, frame: DataFrame) -> DataFrame:
        """The same rows, counted when they are written."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        seen = Observation()
        self._seen.append(seen)
        return frame.observe(seen, F.count(F.lit(1)).alias(_ROWS))

    def tell(self, rows_out: RowsOut, batch_id: int) -> None:
        """Note the sum, if it is known."""
        # To ask for one that did not come about would be to wait for ever.
        if all(_future(seen).isCompleted() for seen in self._seen):
            rows_out.note(batch_id, rows=sum(int(seen.get[_ROWS]) for seen in self._seen))


@contextmanager
def counted(batch: DataFrame, batch_id: int, rows_out: RowsOut | None) -> Iterator[DataFrame]:
    """The rows of a batch, to be written meanwhile; counted, unless nobody is there to be told."""
    if rows_out is None:
        yield batch
        return
    counting = Counting()
    yield counting.counted(batch)
    counting.tell(rows_out, batch_id)


def _future(seen: Observation) -> Any:
    inner: Any = seen._jo
    return inner.future()

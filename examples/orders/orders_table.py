"""The table of orders, read without Spark: what is committed, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipelines.tables import NoTable, open_log
from ottla.pipelines.tables.commits import State

COLUMNS = pa.schema([("order_id", pa.int64()), ("amount", pa.float64())])


class OrdersTable:
    """Looks at a table that somebody else writes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def rows(self) -> int:
        """As many as there are now."""
        return self._state().rows

    def read(self) -> Any:
        """An Arrow table with the numbers of all orders and what they are worth."""
        files = [
            pq.read_table(self._directory / file.place, columns=COLUMNS.names, partitioning=None)
            for file in self._state().live.values()
        ]
        return pa.concat_tables(files) if files else COLUMNS.empty_table()

    def _state(self) -> State:
        try:
            return open_log(str(self._directory)).refresh()
        except NoTable:
            # The first batch makes it.
            return State()

"""Reads what a pipeline has written, as others would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.dataset

from ottla.client.values import Record
from tests.pipelines.crashes.orders import Spot

ORIGIN = re.compile(r".+-(\d+)@(\d+)")


def rows(table: Path) -> list[dict[str, Any]]:
    """What a plain reader of Parquet finds in a table."""
    found: list[dict[str, Any]] = pyarrow.dataset.dataset(str(table), partitioning="hive").to_table().to_pylist()
    return found


def origin(record: Record) -> Spot:
    """Where a record of a side topic says that it comes from."""
    text = next(value for name, value in record.headers if name == "ottla.source") or b""
    place = ORIGIN.fullmatch(text.decode())
    assert place is not None, text
    return Spot(int(place.group(1)), int(place.group(2)))

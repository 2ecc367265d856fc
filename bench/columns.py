"""Record batches to Arrow columns, against the readers of aiokafka and kafka-python.

The peers only walk through their records; no side of theirs is turned into columns, which would cost
them more. All sides check the batches' checksums.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from bench.building import records
from bench.turns import Comparison, Side
from ottla.records.arrow import to_arrow
from ottla.records.builder import build_batch

BATCH_COUNT = 10
RECORDS_PER_BATCH = 1_000
VALUE_SIZE = 100


def comparisons() -> list[Comparison]:
    """The same run of batches, as a fetch would bring it, for every side."""
    given = records(count=RECORDS_PER_BATCH, value_size=VALUE_SIZE)
    run = b"".join(build_batch(given, base_offset=RECORDS_PER_BATCH * index) for index in range(BATCH_COUNT))
    rows = to_arrow(run)
    if rows.row_count != BATCH_COUNT * RECORDS_PER_BATCH:
        raise AssertionError(f"{rows.row_count} rows came out")
    settings = (
        f"{BATCH_COUNT} batches of {RECORDS_PER_BATCH:,} records of {VALUE_SIZE} B, {len(rows.rows.schema)} columns"
    )
    return [
        Comparison(
            "batches to Arrow",
            settings,
            Side("ottla", partial(to_arrow, run)),
            (
                (Side("aiokafka", partial(walk, AiokafkaRecords, run)), 1.5),
                (Side("kafka-python", partial(walk, KafkaPythonRecords, run)), 50.0),
            ),
        )
    ]


def walk(reader: Callable[[bytes], Any], run: bytes) -> None:
    """Make every record of every batch, and keep none."""
    batches = reader(run)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise AssertionError("a batch of ours has a wrong checksum")
        deque(batch, maxlen=0)

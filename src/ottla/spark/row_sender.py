"""Record batches of a task on their way to a producer: by topic, by partition, packed.

Knows columns and topics; what is promised about delivery is the producer's business.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.accumulator import BATCH_RECORDS_MAX
from ottla.client.topology import TopicView
from ottla.clock import Clock
from ottla.errors import InvalidRecord, PartitionNotFound
from ottla.records.packing import Packed
from ottla.spark.errors import OttlaSparkError
from ottla.spark.rows import Turns, packable
from ottla.spark.sink_columns import TIMESTAMP, WRITTEN

BYTES_PER_PARTITION = 64 * 1024
"""Rows are gathered until there may be so much for each partition: many small batches cost the broker more."""
GATHERED_BYTES_MAX = 16 * 1024 * 1024
"""What may be gathered in all, however many partitions and topics there are."""


class InvalidRow(OttlaSparkError):
    """A row that cannot become a record."""


class PackedProducer(Protocol):
    """What packed batches are handed to."""

    def topic(self, name: str, partition: int | None = None) -> TopicView: ...

    def submit_packed(self, topic: str, partition: int, packed: Packed) -> None: ...


class _Waiting:
    """Rows for one topic that have not been packed yet."""

    __slots__ = ("bytes", "rows", "turns")

    def __init__(self, turns: Turns) -> None:
        self.rows: list[pa.RecordBatch] = []
        self.bytes = 0
        self.turns = turns


class RowSender:
    """One task's rows. Each partition gets its own in the order in which they came."""

    def __init__(
        self, producer: PackedProducer, *, topic: str | None, batch_bytes: int, clock: Clock, chance: Random
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._clock = clock
        self._chance = chance
        self._waiting: dict[str, _Waiting] = {}
        self._bytes = 0
        self.rows_taken = 0

    def take(self, rows: pa.RecordBatch) -> None:
        """Take rows over; they are packed and handed on when there are enough."""
        if not rows.num_rows:
            return
        for topic, share in self._by_topic(rows):
            waiting = self._waiting.get(topic)
            if waiting is None:
                waiting = self._waiting[topic] = _Waiting(self._first_turn(topic))
            waiting.rows.append(share)
            waiting.bytes += share.nbytes
            self._bytes += share.nbytes
            if waiting.bytes >= self._enough_bytes(topic):
                self._ship(topic, waiting)
        if self._bytes >= GATHERED_BYTES_MAX:
            self.finish()
        self.rows_taken += rows.num_rows

    def finish(self) -> None:
        """Hand on what is left."""
        for topic, waiting in self._waiting.items():
            if waiting.rows:
                self._ship(topic, waiting)

    def _by_topic(self, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            return [(self._topic, rows)]
        topics = rows.column("topic")
        if topics.null_count:
            raise InvalidRow(
                "a row has null for its topic. Filter such rows out, or set the option topic for all of them"
            )
        found = pc.unique(topics).to_pylist()
        if len(found) == 1:
            return [(found[0], rows)]
        return [(topic, rows.filter(pc.equal(topics, topic))) for topic in found]

    def _first_turn(self, topic: str) -> Turns:
        # By chance: else the first rows of every small batch would all go to the same partition.
        count = len(self._producer.topic(topic).keys)
        return Turns(self._batch_bytes, at=self._chance.randrange(count))

    def _enough_bytes(self, topic: str) -> int:
        return min(BYTES_PER_PARTITION * len(self._producer.topic(topic).keys), GATHERED_BYTES_MAX)

    def _ship(self, topic: str, waiting: _Waiting) -> None:
        gathered = waiting.rows
        self._bytes -= waiting.bytes
        waiting.rows, waiting.bytes = [], 0
        for rows in _joined(gathered):
            self._pack(topic, rows, waiting.turns)

    def _pack(self, topic: str, rows: pa.RecordBatch, turns: Turns) -> None:
        chosen = rows.column("partition") if "partition" in rows.schema.names else None
        view = self._view(topic, chosen)
        try:
            written = packable(_written(rows))
            shares = written.shared_out(
                partition_count=len(view.keys),
                spread=view.available or range(len(view.keys)),
                turns=turns,
                chosen=chosen,
            )
            now_ms = self._clock.now_ms()
            for partition, start, end in shares.found:
                at = start
                while at < end:
                    packed, at = written.pack(
                        shares.order,
                        start=at,
                        end=min(end, at + BATCH_RECORDS_MAX),
                        batch_bytes=self._batch_bytes,
                        timestamp_ms=now_ms,
                    )
                    self._producer.submit_packed(topic, partition, packed)
        except InvalidRecord as e:
            raise InvalidRow(f"a row for topic {topic!r} cannot be written: {e}") from e

    def _view(self, topic: str, chosen: Any) -> TopicView:
        """The topic, with all partitions that rows name."""
        if chosen is None or chosen.null_count == len(chosen):
            return self._producer.topic(topic)
        bounds = pc.min_max(chosen).as_py()
        if bounds["min"] < 0:
            raise InvalidRow(
                f"the column partition has {bounds['min']}. Partitions count from 0; null leaves the choice to the sink"
            )
        try:
            return self._producer.topic(topic, bounds["max"])
        except PartitionNotFound as e:
            count = len(self._producer.topic(topic).keys)
            raise InvalidRow(
                f"the column partition has {bounds['max']}, and topic {topic!r} has {count}, counted from 0. Drop the "
                "column, which leaves the choice to the sink, or add partitions to the topic"
            ) from e


def _written(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that become part of records, by the names that packers know."""
    names = [name for name in WRITTEN if name in rows.schema.names]
    chosen = rows.select(names)
    if TIMESTAMP not in names:
        return chosen
    return chosen.rename_columns(["timestamp" if name == TIMESTAMP else name for name in names])


def _joined(rows: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As few as can be: more than one only where a column would grow beyond what its offsets can count."""
    return rows if len(rows) == 1 else list(pa.Table.from_batches(rows).combine_chunks().to_batches())

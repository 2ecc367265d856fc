"""The topics of pipelines' progress at a broker: made when missing, written to, and read.

`__pipeline_progress` has one partition, so that what is told has one order, and is compacted after a day: for a day all
that was told can be followed, and how a pipeline ended is still known when that is long ago. Its timestamps are the
broker's, so that the clocks of two machines need not agree. `__pipeline_control` is kept for an hour.
Blocking; raises what the client raises. `progress_link` is for those who must not fail or wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.client.blocking.client import Client
from ottla.client.errors import RequestTimedOut
from ottla.client.values import NewRecord, OffsetSpec, Record
from ottla.pipelines.progress import (
    CONTROL_TOPIC,
    ENDED,
    PROGRESS_TOPIC,
    Command,
    QueryProgress,
    RunProgress,
    decoded,
    encoded,
)

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
PROGRESS_CONFIGS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(DAY_MS),
    "segment.ms": str(6 * HOUR_MS),
    "message.timestamp.type": "LogAppendTime",
}
CONTROL_CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(HOUR_MS)}

LOOK_BACK_RECORDS = 2_000
"""How many are looked at first to find how a pipeline stands; eight times as many each time that this is too few."""
IDLE_MS_MAX = 10_000
"""How long records that are known to be there may take to come."""


def make_topics(client: Client) -> None:
    """Both topics, where they are missing."""
    admin = client.admin()
    admin.get_or_create_topic(PROGRESS_TOPIC, partitions=1, configs=PROGRESS_CONFIGS)
    admin.get_or_create_topic(CONTROL_TOPIC, partitions=1, configs=CONTROL_CONFIGS)


def record_of(told: QueryProgress | RunProgress | Command) -> NewRecord:
    """As it is sent."""
    return NewRecord(encoded(told), key=told.key.encode(), partition=0)


def end_of(client: Client, topic: str) -> int:
    """The offset of the record that comes next; 0 when there is no such topic."""
    return _offset(client, topic, OffsetSpec.LATEST) or 0


def offset_since(client: Client, topic: str, timestamp_ms: int) -> int:
    """The offset of the first record that is not older; the end if all are."""
    found = _offset(client, topic, timestamp_ms)
    return end_of(client, topic) if found is None else found


def _offset(client: Client, topic: str, spec: int) -> int | None:
    if client.admin().partition_count(topic) is None:
        return 0
    found = client.admin().list_offsets({(topic, 0): spec})
    offset = next(iter(found.values()))
    return None if offset is None or offset.offset < 0 else offset.offset


def records_between(client: Client, topic: str, *, start: int, end: int) -> Iterator[Record]:
    """The records of these offsets, as far as they are still there."""
    if start >= end:
        return
    with client.consumer(records_max=1_000) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek(topic, 0, offset=start)
        while consumer.position(topic, 0) < end:
            came = consumer.poll(IDLE_MS_MAX)
            if not came:
                raise RequestTimedOut(f"{topic} has records up to {end}, but does not give them out")
            yield from (record for record in came if record.offset < end)


@dataclass(slots=True)
class Standing:
    """What was told last of a pipeline."""

    run: RunProgress | None = None
    run_at_ms: int = 0
    """When the broker was told, by its clock."""
    queries: dict[str, QueryProgress] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether nothing that is told further back could matter."""
        return self.run is not None and set(self.run.queries) <= self.queries.keys()

    @property
    def is_running(self) -> bool:
        """Whether the last that was heard is not an end. Who was killed did not tell of it."""
        return self.run is not None and self.run.state not in ENDED

    def take(self, record: Record) -> None:
        """Something newer."""
        told = decoded(record.key, record.value)
        if isinstance(told, RunProgress):
            if self.run is None or self.run.run != told.run:
                self.queries = {name: one for name, one in self.queries.items() if one.run == told.run}
            self.run, self.run_at_ms = told, record.timestamp_ms
        elif isinstance(told, QueryProgress):
            self.queries[told.query] = told


def standing(client: Client, pipeline: str) -> Standing:
    """How a pipeline stands, read backwards from the end of the progress topic."""
    end = end_of(client, PROGRESS_TOPIC)
    first = _offset(client, PROGRESS_TOPIC, OffsetSpec.EARLIEST) or 0 if end else 0
    span = LOOK_BACK_RECORDS
    while True:
        start = max(first, end - span)
        found = Standing()
        for record in of_pipeline(records_between(client, PROGRESS_TOPIC, start=start, end=end), pipeline):
            found.take(record)
        if found.is_complete or start <= first:
            return found
        span *= 8


def of_pipeline(records: Iterable[Record], pipeline: str) -> Iterator[Record]:
    """Those that tell of this pipeline or of one of its queries."""
    name = pipeline.encode()
    prefix = name + b"/"
    for record in records:
        if record.key is not None and (record.key == name or record.key.startswith(prefix)):
            yield record

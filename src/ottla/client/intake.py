"""The way into a producer: checks records, finds their partitions, gathers them into batches.

Shared by the blocking and the async producer. Sends nothing itself; looking up a topic is all that it
asks of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ottla.client.accumulator import Accumulator, Batch, PackedRows, size_of
from ottla.client.cluster import Cluster
from ottla.client.errors import PartitionNotFound, PartlySent
from ottla.client.routing import KEY_ROUTERS, KeylessRouter, RoundRobinRouter, StickyRouter
from ottla.client.settings import ProducerSettings
from ottla.client.topology import TopicView
from ottla.client.values import HeaderPairs, NewRecord, RecordPosition, TopicPartition, positions
from ottla.clock import Clock
from ottla.errors import InvalidRecord
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import packed_values
from ottla.records.packing import RecordTuple

_INT64_MAX = 2**63 - 1

Share = tuple[Batch, list[int] | None]
"""A batch, and which records of the input are in it; None: all, in order."""


class Intake:
    """Turns what a user hands over into records with a partition."""

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, settings: ProducerSettings, *, clock: Clock, chance: Random
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._settings = settings
        self._clock = clock
        self._route_key = KEY_ROUTERS[settings.partitioner]
        self._keyless: KeylessRouter = (
            RoundRobinRouter()
            if settings.keyless == "round-robin"
            else StickyRouter(batch_bytes=settings.batch_bytes, chance=chance)
        )

    async def topic(self, name: str, partition: int | None = None) -> TopicView:
        """A topic that has this partition; asks, and waits for a topic that is just being created."""
        view = await self._lookup(name)
        if partition is not None and not 0 <= partition < len(view.partitions):
            # It may have been added since.
            self._cluster.mark_stale(name)
            view = await self._lookup(name)
            if not 0 <= partition < len(view.partitions):
                raise PartitionNotFound(name, partition)
        return view

    async def _lookup(self, name: str) -> TopicView:
        deadline_ms = self._cluster.ticks.now_ms() + self._settings.delivery_timeout_ms
        return await self._cluster.topic(
            name, create=True, wait_ms=self._settings.topic_wait_ms, deadline_ms=deadline_ms
        )

    def known(self, name: str, partition: int | None = None) -> TopicView | None:
        """The topic, when nobody has to be asked."""
        view = self._cluster.cached(name)
        if view is not None and partition is not None and not 0 <= partition < len(view.partitions):
            return None
        return view

    def record(
        self, value: bytes | None, key: bytes | None, timestamp_ms: int | None, headers: HeaderPairs
    ) -> RecordTuple:
        """A record that every batch can hold; InvalidRecord says what is wrong with it."""
        if not (value is None or isinstance(value, bytes)):
            raise InvalidRecord(f"the value is {type(value).__name__}, not bytes or None: encode it first")
        if not (key is None or isinstance(key, bytes)):
            raise InvalidRecord(f"the key is {type(key).__name__}, not bytes or None: encode it first")
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        elif type(timestamp_ms) is not int or not -1 <= timestamp_ms <= _INT64_MAX:
            raise InvalidRecord(f"timestamp_ms={timestamp_ms!r} is not a number of milliseconds since the epoch")
        return key, value, timestamp_ms, tuple(map(_header, headers)) if headers else ()

    def partition(self, view: TopicView, key: bytes | None, partition: int | None, record_bytes: int) -> TopicPartition:
        """Where a record goes; an explicit partition has been found to be there."""
        if partition is None:
            count = len(view.keys)
            if key is not None:
                partition = self._route_key(key, count)
            else:
                partition = self._keyless.choose(
                    view.name, partition_count=count, available=view.available, record_bytes=record_bytes
                )
        return view.keys[partition]

    def highest_partition(self, records: Sequence[bytes | NewRecord | None]) -> int | None:
        """The highest partition that a batch names, if it names any; a negative one is as bad as one too high."""
        named = [each.partition for each in records if isinstance(each, NewRecord) and each.partition is not None]
        return min(named) if named and min(named) < 0 else max(named, default=None)

    def plain(self, records: Sequence[bytes | NewRecord | None]) -> PackedRows | None:
        """Bytes only and sticky, the common case: laid out at once, and nothing is looked at twice."""
        if self._settings.keyless != "sticky":
            return None
        packed = packed_values(records, self._clock.now_ms())
        return None if packed is None else PackedRows(packed)

    def shares(
        self, view: TopicView, records: Sequence[bytes | NewRecord | None], plain: PackedRows | None
    ) -> list[Share]:
        """One batch per partition for what a user sends together; `plain` is what was made of it, if anything."""
        now_ms = self._cluster.ticks.now_ms()
        if plain is not None:
            size = len(plain.packed[0]) - HEADER_SIZE
            target = self.partition(view, None, None, size)
            return [(self._accumulator.batch(target, plain, records_bytes=size, now_ms=now_ms), None)]
        # Keyless records of one batch stay together under the sticky rule, whatever the batch's size.
        together: TopicPartition | None = None
        found: dict[TopicPartition, tuple[list[RecordTuple], list[int]]] = {}
        for index, each in enumerate(records):
            new = each if isinstance(each, NewRecord) else NewRecord(each)
            record = self.record(new.value, new.key, new.timestamp_ms, new.headers)
            if together is not None and new.key is None and new.partition is None:
                target = together
            else:
                target = self.partition(view, new.key, new.partition, size_of(record))
                if new.key is None and new.partition is None and self._settings.keyless == "sticky":
                    together = target
            rows, indices = found.setdefault(target, ([], []))
            rows.append(record)
            indices.append(index)
        return [
            (
                self._accumulator.batch(target, rows, records_bytes=sum(map(size_of, rows)), now_ms=now_ms),
                None if len(found) == 1 else indices,
            )
            for target, (rows, indices) in found.items()
        ]


def gathered(shares: Sequence[Share], count: int) -> list[RecordPosition]:
    """The positions of settled shares in the order of the input; raises when one of them failed."""
    if len(shares) == 1:
        batch = shares[0][0]
        if batch.error is not None:
            raise batch.error
        return positions(batch.topic, batch.partition, base_offset=batch.base_offset, count=count)
    found: list[RecordPosition | None] = [None] * count
    failures: dict[TopicPartition, Exception] = {}
    for batch, indices in shares:
        if batch.error is not None:
            failures[TopicPartition(batch.topic, batch.partition)] = batch.error
            continue
        places = positions(batch.topic, batch.partition, base_offset=batch.base_offset, count=len(batch.records))
        for index, place in zip(indices or range(count), places, strict=True):
            found[index] = place
    if len(failures) == len(shares):
        raise next(iter(failures.values()))
    if failures:
        raise PartlySent(found, failures)
    return [place for place in found if place is not None]


def _header(pair: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    try:
        name, content = pair
    except (TypeError, ValueError) as e:
        raise InvalidRecord(f"a header is a pair of a name and bytes or None, not {pair!r}") from e
    if not isinstance(name, str):
        raise InvalidRecord(f"a header's name is {type(name).__name__}, not str")
    if not (content is None or isinstance(content, bytes)):
        raise InvalidRecord(f"header {name!r} is {type(content).__name__}, not bytes or None: encode it first")
    return name, content

"""Fetch, versions 4-18: read record batches, or wait for some.

Answers at once when there are `min_bytes`, an error, or no time to wait; else a `FetchPoll` waits for any of
the partitions to move. Sessions (KIP-227) are kept. The first batch that is found is sent whole whatever the
limits. Reading by followers is not there yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.caller import Caller
from ottla.broker.fetch_sessions import FetchKey, FetchSession, asked_for, grouped
from ottla.broker.file_range import records_of
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import Refusal, StorageError
from ottla.partitions.partition import Partition
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.scheduler import Timer

READ_COMMITTED = 1
TOPIC_ID_VERSION_MIN = 13

Asked = tuple[FetchKey, FetchPartition]


def fetch(request: FetchRequest, version: int, caller: Caller, services: Services) -> FetchResponse | Pending:
    try:
        by_id = version >= TOPIC_ID_VERSION_MIN
        session = services.fetch_sessions.open(request, now_ms=services.clock.now_ms(), by_id=by_id)
    except Refusal as error:
        return FetchResponse(error_code=error.code)
    is_incremental = session is not None and request.session_epoch > 0
    asked = session.asked() if session is not None else list(asked_for(request))
    poll = FetchPoll(
        request, version, services, session, asked, is_incremental=is_incremental, takes_ranges=caller.takes_ranges
    )
    return poll.answer()


class FetchPoll:
    """One fetch, and its wait."""

    __slots__ = (
        "_asked",
        "_bytes",
        "_bytes_max",
        "_found",
        "_has_error",
        "_is_incremental",
        "_moved",
        "_pending",
        "_request",
        "_services",
        "_session",
        "_takes_ranges",
        "_timer",
        "_version",
        "_watched",
    )

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        services: Services,
        session: FetchSession | None,
        asked: Sequence[Asked],
        *,
        is_incremental: bool,
        takes_ranges: bool,
    ) -> None:
        self._takes_ranges = takes_ranges
        self._request = request
        self._version = version
        self._services = services
        self._session = session
        self._asked = asked
        self._is_incremental = is_incremental
        self._bytes_max = min(request.max_bytes, services.catalog.broker_configs().integer("fetch.max.bytes"))
        self._bytes = 0
        self._has_error = False
        self._pending: Pending | None = None
        self._timer: Timer | None = None
        self._found: list[PartitionData] = []
        """What is known of each partition that is asked for."""
        self._moved: set[int] = set()
        """The places of those that have moved since."""
        self._watched: list[tuple[Partition, int]] = []

    def answer(self) -> FetchResponse | Pending:
        """The response, or the promise of one."""
        self._read()
        request = self._request
        if request.max_wait_ms <= 0 or self._has_enough or not self._asked:
            return self._response()
        self._pending = Pending(self._stop, on_hurry=self._finish)
        self._timer = self._services.scheduler.call_later(request.max_wait_ms, self._finish)
        for place, (key, _) in enumerate(self._asked):
            try:
                partition = self._find(key)
            except Refusal:
                continue
            partition.watch(self, place)
            self._watched.append((partition, place))
        return self._pending

    # --- waiting -------------------------------------------------------------------------------------

    def wake(self, place: int) -> None:
        """A partition has moved: look again, once, when this pass is over."""
        if not self._moved:
            self._services.scheduler.call_soon(self._look)
        self._moved.add(place)

    def _look(self) -> None:
        # Only at what has moved: a consumer of a thousand partitions is woken by one of them at a time.
        moved = sorted(self._moved)
        self._moved.clear()
        if self._timer is None:
            return
        for place in moved:
            self._bytes -= _size(self._found[place])
            self._found[place] = self._read_one(*self._asked[place])
        if self._has_enough:
            self._complete()

    def _finish(self) -> None:
        if self._timer is not None:
            self._read()
            self._complete()

    def _complete(self) -> None:
        self._stop()
        assert self._pending is not None
        self._pending.complete(self._response())

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition, place in self._watched:
            partition.unwatch(self, place)
        self._watched.clear()

    # --- reading -------------------------------------------------------------------------------------

    @property
    def _has_enough(self) -> bool:
        return self._bytes >= self._request.min_bytes or self._has_error

    def _find(self, key: FetchKey) -> Partition:
        if self._version >= TOPIC_ID_VERSION_MIN:
            return self._services.partitions.by_id(key.topic_id, key.partition)
        return self._services.partitions.by_name(key.topic, key.partition)

    def _read(self) -> None:
        self._bytes = 0
        self._has_error = False
        self._found = [self._read_one(key, asked) for key, asked in self._asked]

    def _read_one(self, key: FetchKey, asked: FetchPartition) -> PartitionData:
        try:
            partition = self._find(key)
            try:
                return self._read_partition(partition, key.partition, asked)
            except StorageError as fault:
                raise partition.unreadable(fault) from fault
        except Refusal as error:
            self._has_error = True
            return PartitionData(partition_index=key.partition, error_code=error.code, high_watermark=-1, records=b"")

    def _read_partition(self, partition: Partition, index: int, asked: FetchPartition) -> PartitionData:
        partition.check_epoch(asked.current_leader_epoch)
        # The first batch is always given; once there is one, the rest keeps to the limit.
        room = self._bytes_max - self._bytes
        bytes_max = min(asked.partition_max_bytes, room) if room > 0 else 0
        committed_only = self._request.isolation_level == READ_COMMITTED
        if self._bytes and bytes_max <= 0:
            found = partition.look()
        else:
            found = partition.read(asked.fetch_offset, bytes_max=bytes_max, committed_only=committed_only)
            if found.slice is not None and self._bytes and found.slice.size > bytes_max:
                # A batch larger than what is left: its turn comes with the next fetch.
                found = found._replace(slice=None, aborted=[])
        records = records_of(found.slice, as_range=self._takes_ranges)
        self._bytes += len(records)
        return PartitionData(
            partition_index=index,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=[
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                for entry in found.aborted
            ]
            if committed_only
            else None,
            records=records,  # type: ignore[arg-type]
        )

    def _response(self) -> FetchResponse:
        session = self._session
        results = [(key, data) for (key, _), data in zip(self._asked, self._found, strict=True)]
        if session is not None:
            news = [(key, data) for key, data in results if session.is_news(key, data)]
            results = news if self._is_incremental else results
        return FetchResponse(
            session_id=0 if session is None else session.session_id,
            responses=[
                FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in grouped(results).items()
            ],
        )


def _size(data: PartitionData) -> int:
    return 0 if data.records is None else len(data.records)

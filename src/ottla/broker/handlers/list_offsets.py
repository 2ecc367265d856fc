"""ListOffsets, versions 1-11: offsets by time, and the ends of partitions.

Special times: -1 latest (the last stable offset for read_committed), -2 earliest, -3 the greatest timestamp,
-4 earliest on local disk (the earliest, while nothing is tiered), -5 and -6 the tiered ends (none). Whoever asks
for the end after an acknowledgement finds their own record: the answer waits for the sync that covers it.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal, StorageError, UnsupportedVersion
from ottla.partitions.partition import Partition
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.storage.segments import TimestampOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
UNKNOWN = TimestampOffset(-1, -1, -1)


def list_offsets(
    request: ListOffsetsRequest, version: int, caller: Caller, services: Services
) -> ListOffsetsResponse | Pending:
    return _Lookup(request, version, services).answer()


class _Lookup:
    """All questions of one request; each waits for what was written before it was asked."""

    __slots__ = ("_open", "_pending", "_request", "_services", "_version")

    def __init__(self, request: ListOffsetsRequest, version: int, services: Services) -> None:
        self._request = request
        self._version = version
        self._services = services
        self._open = 0
        self._pending: Pending | None = None

    def answer(self) -> ListOffsetsResponse | Pending:
        for topic in self._request.topics:
            for asked in topic.partitions:
                try:
                    partition = self._services.partitions.by_name(topic.name, asked.partition_index)
                except Refusal:
                    continue
                if partition.high_watermark < partition.log.end_offset:
                    self._open += 1
                    partition.when_durable(partition.log.end_offset, partial(self._settle))
        if not self._open:
            return self._response()
        self._pending = Pending()
        return self._pending

    def _settle(self, error: Refusal | None) -> None:
        self._open -= 1
        if not self._open and self._pending is not None:
            self._pending.complete(self._response())

    def _response(self) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=[self._look_up(topic.name, asked) for asked in topic.partitions]
                )
                for topic in self._request.topics
            ]
        )

    def _look_up(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        try:
            partition = self._services.partitions.by_name(topic, index)
            partition.check_epoch(asked.current_leader_epoch)
            if self._version < FIRST_VERSIONS.get(asked.timestamp, 0) or asked.timestamp < EARLIEST_PENDING_UPLOAD:
                raise UnsupportedVersion(f"timestamp {asked.timestamp} means nothing in version {self._version}")
            try:
                found = self._find(partition, asked.timestamp)
            except StorageError as fault:
                raise partition.unreadable(fault) from fault
        except Refusal as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
        return ListOffsetsPartitionResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch if self._version >= 4 else -1,
        )

    def _find(self, partition: Partition, timestamp_ms: int) -> TimestampOffset:
        partition.require_online()
        log = partition.log
        committed_only = self._request.isolation_level == READ_COMMITTED
        end = partition.last_stable_offset if committed_only else partition.high_watermark
        if timestamp_ms == LATEST:
            return TimestampOffset(-1, end, partition.leader_epoch)
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return TimestampOffset(-1, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset))
        if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return UNKNOWN
        if timestamp_ms == MAX_TIMESTAMP:
            return log.newest(end_offset=end) or UNKNOWN
        return log.offset_for_timestamp(timestamp_ms, end_offset=end) or UNKNOWN

"""ListOffsets, versions 1-11: offsets by time, and the ends of partitions.

Special times: -1 latest (the last stable offset for read_committed), -2 earliest, -3 the greatest timestamp,
-4 earliest on local disk (the earliest, while nothing is tiered), -5 and -6 the tiered ends (none). Whoever asks
for the end after an acknowledgement finds their own record: the answer waits for the sync that covers it.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from ottla.broker.answers import Answers
from ottla.broker.caller import Caller
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT
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
from ottla.protocol.schema import Message
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


def list_offsets(request: ListOffsetsRequest, version: int, caller: Caller, services: Services) -> Message | Pending:
    return _Lookup(request, version, services).answer()


class _Lookup:
    """All questions of one request; each waits for what was written before it was asked."""

    __slots__ = ("_answers", "_asked", "_request", "_services", "_version")

    def __init__(self, request: ListOffsetsRequest, version: int, services: Services) -> None:
        self._request = request
        self._version = version
        self._services = services
        self._asked = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
        self._answers: Answers[ListOffsetsPartitionResponse] = Answers(
            len(self._asked),
            deadlines=services.deadlines,
            # Before version 10 there is none in the request; a client that leaves it out does not mean "at once".
            timeout_ms=request.timeout_ms if request.timeout_ms > 0 else TIMEOUT_MS_DEFAULT,
            late=lambda place, error: _refused(self._asked[place][1], error),
            respond=self._response,
        )

    def answer(self) -> Message | Pending:
        for place, (topic, asked) in enumerate(self._asked):
            try:
                partition = self._services.partitions.by_name(topic, asked.partition_index)
            except Refusal as error:
                self._answers.settle(place, _refused(asked, error))
                continue
            if partition.high_watermark < partition.log.end_offset:
                partition.when_durable(partition.log.end_offset, partial(self._settle, place))
            else:
                self._settle(place)
        return self._answers.response()

    def _settle(self, place: int, error: Refusal | None = None) -> None:
        self._answers.settle(place, self._look_up(*self._asked[place]))

    def _response(self, parts: list[ListOffsetsPartitionResponse]) -> ListOffsetsResponse:
        following = iter(parts)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=topic.name, partitions=list(islice(following, len(topic.partitions))))
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
            return _refused(asked, error)
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


def _refused(asked: ListOffsetsPartition, error: Refusal) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)

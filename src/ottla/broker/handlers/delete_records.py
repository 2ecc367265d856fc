"""DeleteRecords, versions 0-2: raise the start of partitions, and free what lies below.

An offset of -1 means the high watermark; one beyond it is out of range. Whoever deletes up to their own last write
reaches it: the request waits for the sync that covers it. Answered when the new start is durable. Partitions of
compacted topics and of Ottla's own are refused.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidTopicName, OttlaError, Refusal, StorageFault
from ottla.metadata.internal_topics import is_internal
from ottla.partitions.partition import Partition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.schema import Message

HIGH_WATERMARK = -1
UNKNOWN = -1


def delete_records(
    request: DeleteRecordsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    answers = Answers[DeleteRecordsPartitionResult](
        len(asked),
        deadlines=services.deadlines,
        timeout_ms=request.timeout_ms,
        late=lambda place, error: _refused(asked[place][1], error),
        respond=partial(_response, request),
    )
    for place, (topic, wanted) in enumerate(asked):
        try:
            if is_internal(topic):
                raise InvalidTopicName(f"records of {topic!r} cannot be deleted: Ottla keeps its own state there")
            partition = services.partitions.by_name(topic, wanted.partition_index)
        except Refusal as error:
            answers.settle(place, _refused(wanted, error))
            continue
        _Deletion(answers, place, partition, wanted).begin()
    return answers.response()


class _Deletion:
    """The records of one partition."""

    __slots__ = ("_answers", "_partition", "_place", "_wanted")

    def __init__(
        self,
        answers: Answers[DeleteRecordsPartitionResult],
        place: int,
        partition: Partition,
        wanted: DeleteRecordsPartition,
    ) -> None:
        self._answers = answers
        self._place = place
        self._partition = partition
        self._wanted = wanted

    def begin(self) -> None:
        partition, offset = self._partition, self._wanted.offset
        if offset == HIGH_WATERMARK or offset > partition.high_watermark:
            partition.when_durable(partition.log.end_offset, self._delete)
        else:
            self._delete(None)

    def _delete(self, error: Refusal | None) -> None:
        partition = self._partition
        offset = partition.high_watermark if self._wanted.offset == HIGH_WATERMARK else self._wanted.offset
        try:
            if error is not None:
                raise error
            partition.delete_records(offset, self._deleted)
        except Refusal as refusal:
            self._answers.settle(self._place, _refused(self._wanted, refusal))

    def _deleted(self, fault: StorageFault | None) -> None:
        if fault is not None:
            self._answers.settle(self._place, _refused(self._wanted, fault))
            return
        result = DeleteRecordsPartitionResult(
            partition_index=self._wanted.partition_index, low_watermark=self._partition.log.log_start_offset
        )
        self._answers.settle(self._place, result)


def _refused(wanted: DeleteRecordsPartition, error: OttlaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=UNKNOWN, error_code=code_of(error)
    )


def _response(request: DeleteRecordsRequest, results: list[DeleteRecordsPartitionResult]) -> DeleteRecordsResponse:
    rest = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=[next(rest) for _ in topic.partitions])
            for topic in request.topics
        ]
    )

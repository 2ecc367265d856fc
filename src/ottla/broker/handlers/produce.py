"""Produce, versions 3-13: append record batches.

Each partition gets one batch; the answer for each stands by itself. With acks=all the response waits until
every batch is on disk, or the timeout has passed. A topic that is missing is made where the broker allows it.
With acks=0 there is no answer; a refusal closes the connection. Versions 0-2 are announced for old clients' sake
and refused by closing the connection. Transactions are not
there yet: a transactional batch is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicName,
    InvalidTransactionState,
    Refusal,
    RefusedUnanswered,
    TopicNotFound,
    UnsupportedCompression,
)
from ottla.metadata.internal_topics import is_internal
from ottla.metadata.topics import NewTopic
from ottla.partitions.partition import Partition
from ottla.partitions.watermarks import AcksAll
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer, TimestampType, check
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from ottla.records.reader import RECORD_BYTES_MIN, spans, unpack

ACKS_ALL = -1
ZSTD_VERSION_MIN = 7
TOPIC_ID_VERSION_MIN = 13


def produce(
    request: ProduceRequest, version: int, caller: Caller, services: Services
) -> ProduceResponse | Pending | None:
    acks = request.acks
    if acks not in (ACKS_ALL, 0, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    wait = _Wait(services, request.timeout_ms) if acks == ACKS_ALL else None
    partitions = services.partitions
    topics = []
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            index = data.index
            try:
                if version >= TOPIC_ID_VERSION_MIN:
                    partition = partitions.by_id(topic_id, index)
                else:
                    partition = partitions.by_name(name, index)
                answer = _append(partition, index, data.records, version)
                if wait is not None and partition.acks_all is AcksAll.DISK:
                    wait.add(partition, answers, len(answers))
                elif acks and partition.config.flush_messages == 1:
                    wait = wait or _Wait(services, request.timeout_ms)
                    wait.add(partition, answers, len(answers))
            except Refusal as error:
                if type(error) is TopicNotFound:
                    _create(name, services)
                answer = _refused(index, error)
            answers.append(answer)
        topics.append(TopicProduceResponse(name, topic_id, answers))
    if acks == 0:
        _tell_refusals(topics)
        return None
    if wait is not None:
        return wait.respond(topics)
    return ProduceResponse(topics)


def _tell_refusals(topics: Sequence[TopicProduceResponse]) -> None:
    """There is no answer to say it in, so the connection ends: the client looks anew at where its topics are."""
    for topic in topics:
        for answer in topic.partition_responses:
            if answer.error_code:
                where = f"{topic.name or topic.topic_id.hex()}-{answer.index}"
                raise RefusedUnanswered(f"a batch for {where} with acks=0 was refused: {answer.error_message}")


def _create(topic: str, services: Services) -> None:
    """Make a missing topic where that is allowed; the client hears that it is missing, and tries again."""
    if services.catalog.broker_configs().boolean("auto.create.topics.enable") and not is_internal(topic):
        services.catalog.create_topics([NewTopic(topic)], lambda outcomes: None)


def _append(partition: Partition, index: int, records: Buffer | None, version: int) -> PartitionProduceResponse:
    if not records:
        raise InvalidRecord("a produce request without a record batch")
    header = check(records)
    attributes, count = header.attributes, header.record_count
    room = DECOMPRESSED_BYTES_MAX if attributes & CODEC_MASK else len(records) - HEADER_SIZE
    if count * RECORD_BYTES_MIN > room:
        raise InvalidRecord(f"{count} records are said to be in {room} bytes")
    if attributes & ~_PLAIN or count < 1 or partition.config.log.compact or partition.is_internal:
        _check_unusual(partition, records, header, version)
    written = partition.append(records, header)
    return PartitionProduceResponse(
        index, 0, written.appended.first_offset, written.append_time_ms, partition.log.log_start_offset
    )


_PLAIN = 0x03
"""The bits of the codecs that every version knows (0 to 3)."""


def _check_unusual(partition: Partition, records: Buffer, header: BatchHeader, version: int) -> None:
    """What needs a second look: anything but a plain batch for a plain topic."""
    if partition.is_internal:
        raise InvalidTopicName("Ottla keeps its own state in this topic; clients may read it, not write to it")
    if header.is_control:
        raise InvalidRecord("control batches are the broker's to write")
    if header.is_transactional:
        raise InvalidTransactionState("transactions are not available on this broker")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp("a producer stamps records with CreateTime; LogAppendTime is the broker's to set")
    if header.record_count < 1:
        raise InvalidRecord("a batch without records")
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompression(f"compression codec {header.codec} is not known")
    if header.codec == Codec.ZSTD and version < ZSTD_VERSION_MIN:
        raise UnsupportedCompression(f"zstd needs Produce {ZSTD_VERSION_MIN} or later, this is {version}")
    if partition.config.log.compact:
        for record in spans(header, unpack(header, records)):
            if record.key is None:
                raise InvalidRecord("a compacted topic takes no record without a key")


def _refused(index: int, error: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, log_start_offset=-1, error_message=str(error)
    )


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, error_message=code.sentence
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


class _Wait:
    """A response that waits until its batches are durable."""

    __slots__ = ("_bucket", "_open", "_pending", "_services", "_timeout_ms", "_topics", "_waiting")

    def __init__(self, services: Services, timeout_ms: int) -> None:
        self._services = services
        self._timeout_ms = timeout_ms
        self._waiting: list[tuple[Partition, list[PartitionProduceResponse], int]] = []
        self._open: set[int] = set()
        self._pending: Pending | None = None
        self._topics: Sequence[TopicProduceResponse] = ()
        self._bucket = 0

    def add(self, partition: Partition, answers: list[PartitionProduceResponse], place: int) -> None:
        """The answer at `place` counts only once its batch is durable."""
        self._waiting.append((partition, answers, place))

    def respond(self, topics: Sequence[TopicProduceResponse]) -> ProduceResponse | Pending:
        """The response, or the promise of one."""
        self._topics = topics
        self._open = set(range(len(self._waiting)))
        for number, (partition, _, _) in enumerate(self._waiting):
            # A retry waits for the original, so it is the end of the log that counts, not the batch's own.
            partition.when_durable(partition.log.end_offset, partial(self._settle, number))
        if not self._open:
            return ProduceResponse(responses=topics)
        self._bucket = self._services.deadlines.add(self, self._timeout_ms)
        self._pending = Pending()
        return self._pending

    def _settle(self, number: int, error: Refusal | None) -> None:
        if number not in self._open:
            return
        if error is not None:
            _, answers, place = self._waiting[number]
            answers[place] = _refused(answers[place].index, error)
        self._open.discard(number)
        if not self._open and self._pending is not None:
            self._services.deadlines.remove(self, self._bucket)
            self._finish()

    def time_out(self) -> None:
        """The batches stay in the log and may yet become durable; nobody is promised that."""
        for number in self._open:
            _, answers, place = self._waiting[number]
            answers[place] = PartitionProduceResponse(
                index=answers[place].index,
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                base_offset=-1,
                error_message=f"not on disk after {self._timeout_ms} ms",
            )
        self._open = set()
        self._finish()

    def _finish(self) -> None:
        assert self._pending is not None
        self._pending.complete(ProduceResponse(responses=self._topics))

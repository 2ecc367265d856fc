"""Produce, versions 3-13: append record batches.

Each partition gets one batch; the answer for each stands by itself. With acks=all the response waits until
every batch is on disk, or the timeout has passed. A topic that is missing is made where the broker allows it.
With acks=0 there is no answer; a refusal closes the connection. Versions 0-2 are announced for old clients' sake
and refused by closing the connection.

A transactional batch enters its partition only while its transaction is open. Since version 12 the partition joins the
transaction by it; before, it must have been added. The first batch of a transaction in a partition therefore waits for
the coordinator; with acks=0 such a batch may be refused after the connection has gone on, without a word, and another
one for the same partition ends the connection as long as it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from ottla.broker.batches import append_batch, append_checked, checked, not_on_disk, refused
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.broker.transactional_writes import TransactionalWrite
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRecord,
    ProducerFenced,
    Refusal,
    RefusedUnanswered,
    TopicNotFound,
    TransactionAbortable,
)
from ottla.metadata.internal_topics import is_internal
from ottla.metadata.topics import NewTopic
from ottla.partitions.partition import ACKS_ALL, ACKS_LEADER, Partition
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.batch import TRANSACTIONAL_BIT, BatchHeader, Buffer

ABORTABLE_VERSION_MIN = 11
IMPLICIT_VERSION_MIN = 12
TOPIC_ID_VERSION_MIN = 13
NOT_AWAITED = -1


def produce(
    request: ProduceRequest, version: int, caller: Caller, services: Services
) -> ProduceResponse | Pending | None:
    acks = request.acks
    if acks not in (ACKS_ALL, ACKS_LEADER, 0):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return _TransactionalRequest(request.transactional_id, request, version, services).respond(request)
    wait: _Wait | None = None
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
                answer = append_batch(partition, index, data.records, version=version)
                if acks in partition.durable_acks:
                    wait = wait or _Wait(services, request.timeout_ms)
                    wait.add(partition, answers, len(answers))
            except Refusal as error:
                if type(error) is TopicNotFound:
                    _create(name, services)
                answer = refused(index, error)
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


class _TransactionalRequest:
    """A request that names a transactional id: its batches may have to wait for the coordinator."""

    __slots__ = ("_acks", "_late", "_services", "_transactional_id", "_version", "_wait", "_writes")

    def __init__(self, transactional_id: str, request: ProduceRequest, version: int, services: Services) -> None:
        self._transactional_id = transactional_id
        self._acks = request.acks
        self._version = version
        self._services = services
        self._writes = services.transactional_writes
        self._wait = _Wait(services, request.timeout_ms)
        self._late: list[TransactionalWrite] = []

    def respond(self, request: ProduceRequest) -> ProduceResponse | Pending | None:
        """The response, the promise of one, or None where none is sent."""
        topics = []
        for topic in request.topic_data:
            answers: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                try:
                    answer = self._take(topic, data, answers)
                except Refusal as error:
                    if type(error) is TopicNotFound:
                        _create(topic.name, self._services)
                    answer = refused(data.index, error, _code_of(error, self._version))
                answers.append(answer)
            topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        if not self._acks:
            self._writes.submit(self._late)
            _tell_refusals(topics)
            return None
        response = self._wait.respond(topics, hurry=self._give_up if self._late else None)
        self._writes.submit(self._late)
        return response

    def _take(
        self, topic: TopicProduceData, data: PartitionProduceData, answers: list[PartitionProduceResponse]
    ) -> PartitionProduceResponse:
        """The answer for a batch; it is changed later where the batch has to wait."""
        index, records = data.index, data.records
        if self._version >= TOPIC_ID_VERSION_MIN:
            partition = self._services.partitions.by_id(topic.topic_id, index)
        else:
            partition = self._services.partitions.by_name(topic.name, index)
        header = checked(partition, records, self._version)
        assert records is not None
        place = len(answers)
        if header.attributes & TRANSACTIONAL_BIT:
            if header.base_sequence < 0:
                raise InvalidRecord("a transactional batch without a sequence number")
            if not self._writes.is_open(partition, header):
                if not self._acks and self._writes.is_waiting(partition, header):
                    # No answer that is owed keeps such a client from sending more than there is memory for.
                    raise CoordinatorNotAvailable("with acks=0 only one batch may wait to join its transaction")
                self._late.append(self._late_write(topic, partition, header, records, answers, place, index=index))
                return PartitionProduceResponse(index=index)
            self._writes.require_ongoing(self._transactional_id, partition, header)
        answer = append_checked(partition, index, records, header)
        if self._acks in partition.durable_acks:
            self._wait.add(partition, answers, place)
        return answer

    # --- batches that wait for the coordinator -----------------------------------------------------------

    def _late_write(
        self,
        topic: TopicProduceData,
        partition: Partition,
        header: BatchHeader,
        records: Buffer,
        answers: list[PartitionProduceResponse],
        place: int,
        *,
        index: int,
    ) -> TransactionalWrite:
        name = topic.name
        if self._version >= TOPIC_ID_VERSION_MIN:
            name = self._services.catalog.image.topic_by_id(UUID(bytes=topic.topic_id)).name
        number = self._wait.hold(answers, place) if self._acks else NOT_AWAITED

        def append(records: Buffer) -> None:
            answers[place] = append_checked(partition, index, records, header)
            if self._acks:
                self._wait.release(number, partition if self._acks in partition.durable_acks else None)

        def refuse(error: Refusal) -> None:
            answers[place] = refused(index, error, _code_of(error, self._version))
            if self._acks:
                self._wait.release(number)

        return TransactionalWrite(
            self._transactional_id,
            TopicPartition(name, index),
            partition,
            header,
            records,
            adds=self._version >= IMPLICIT_VERSION_MIN,
            append=append,
            refuse=refuse,
        )

    def _give_up(self) -> None:
        """The broker stops: what still waits for the coordinator is not waited for. What is appended is."""
        for write in self._late:
            write.refuse(CoordinatorNotAvailable("the broker stops"))


def _code_of(error: Refusal, version: int) -> ErrorCode:
    """What a producer is told of its coordinator's refusals: errors that it knows what to do about."""
    if isinstance(error, ProducerFenced):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, CoordinatorNotAvailable | CoordinatorLoadInProgress):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if isinstance(error, ConcurrentTransactions) and version < IMPLICIT_VERSION_MIN:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if isinstance(error, TransactionAbortable) and version < ABORTABLE_VERSION_MIN:
        return ErrorCode.INVALID_TXN_STATE
    return error.code


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
        self._waiting: list[tuple[Partition | None, list[PartitionProduceResponse], int]] = []
        self._open: set[int] = set()
        self._pending: Pending | None = None
        self._topics: Sequence[TopicProduceResponse] = ()
        self._bucket = 0

    def add(self, partition: Partition, answers: list[PartitionProduceResponse], place: int) -> None:
        """The answer at `place` counts only once its batch is durable."""
        self._waiting.append((partition, answers, place))

    def hold(self, answers: list[PartitionProduceResponse], place: int) -> int:
        """The answer at `place` counts only once it is released, by the number that this returns."""
        self._waiting.append((None, answers, place))
        return len(self._waiting) - 1

    def release(self, number: int, partition: Partition | None = None) -> None:
        """The answer is there, and counts: at once, or when what the partition has is durable."""
        if partition is None:
            self._settle(number, None)
        else:
            partition.when_durable(partition.log.end_offset, partial(self._settle, number))

    def respond(
        self, topics: Sequence[TopicProduceResponse], *, hurry: Callable[[], None] | None = None
    ) -> ProduceResponse | Pending:
        """The response, or the promise of one. What is held is released afterwards."""
        self._topics = topics
        self._open = set(range(len(self._waiting)))
        for number, (partition, _, _) in enumerate(self._waiting):
            if partition is not None:
                # A retry waits for the original, so it is the end of the log that counts, not the batch's own.
                partition.when_durable(partition.log.end_offset, partial(self._settle, number))
        if not self._open:
            return ProduceResponse(responses=topics)
        self._bucket = self._services.deadlines.add(self, self._timeout_ms)
        self._pending = Pending(on_hurry=hurry)
        return self._pending

    def _settle(self, number: int, error: Refusal | None) -> None:
        if number not in self._open:
            return
        if error is not None:
            _, answers, place = self._waiting[number]
            answers[place] = refused(answers[place].index, error)
        self._open.discard(number)
        if not self._open and self._pending is not None:
            self._services.deadlines.remove(self, self._bucket)
            self._finish()

    def time_out(self) -> None:
        """The batches stay in the log and may yet become durable; nobody is promised that."""
        for number in self._open:
            _, answers, place = self._waiting[number]
            answers[place] = refused(answers[place].index, not_on_disk(self._timeout_ms))
        self._open = set()
        self._finish()

    def _finish(self) -> None:
        assert self._pending is not None
        self._pending.complete(ProduceResponse(responses=self._topics))

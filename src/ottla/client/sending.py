"""Sends what an accumulator has ready, and settles it: one round after the other.

A round takes the ready batches of all partitions, sends them to their leaders, pipelined, waits for every
answer and then decides about each batch: done, once more, or never. So at the time of a retry nothing else
is under way for that partition, and order needs no further care. A round never sleeps: what has to wait
stays in the accumulator with a time before which it is not ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.accumulator import NOBODY, Accumulator, Batch, Identity, PackedRows, Queue, notify
from ottla.client.cluster import STALE_LEADER, UNANSWERED, Cluster
from ottla.client.errors import DeliveryTimedOut, TopicNotFound, UnsupportedVersion
from ottla.client.errors_by_code import code_of, error_for
from ottla.client.settings import Address, ProducerSettings
from ottla.client.topology import TopicView
from ottla.client.transactions import Transactions, spoiled
from ottla.client.transport import Call, Reply
from ottla.client.values import NO_OFFSET
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, ProtocolError, UnsupportedCompression
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import NO_LEADER_EPOCH, TimestampType
from ottla.records.builder import build_batch, finish_batch
from ottla.records.compression import Codec
from ottla.records.packing import RecordTuple
from ottla.records.reader import read_batch

PRODUCE_NAMES_LAST = 12
"""The last version of Produce that names topics; from the next on they go by id."""
PRODUCE_ZSTD_FIRST = 7
PRODUCE_EXPLICIT_LAST = 11
"""The last version of Produce whose partitions have to be part of the transaction already; later ones add them."""
REQUEST_BYTES_MAX = 8 * 1024 * 1024
"""A request that has this much gets no further partitions."""

NOT_WRITTEN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Answers after which a batch is known not to be in the log, and which may pass."""
LOST_TRACK = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""The broker's memory of our sequence numbers is not ours."""
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Answers after which a smaller batch may be taken."""


class _Shipment(NamedTuple):
    """One request: whose batches are in it, and where it goes."""

    call: Call
    contents: Sequence[tuple[Queue, Batch]]


Outcome = PartitionProduceResponse | OttlaError | None
"""What was said of one batch: an answer, a failure to get one, or nothing because none was asked for."""


class Sender:
    """Moves batches from the accumulator to the brokers. One round runs at a time."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: ProducerSettings,
        transactions: Transactions | None = None,
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._accumulator = accumulator
        self._settings = settings
        self._acks = settings.wire_acks
        self._codec = settings.codec
        self._idempotent = settings.is_idempotent
        self._identity = NOBODY
        self._may_renew = settings.is_idempotent and transactions is None
        """Whether a fresh identity leads out of a loss of track; that of a transaction is not ours to change."""
        self._window = cluster.transport.window if settings.is_idempotent else 1
        self._request_timeout_ms = cluster.settings.request_timeout_ms

    async def round(self) -> None:
        """Send what is ready, wait for the answers, settle or put off every batch."""
        await self._round()
        if self._transactions is not None and self._transactions.failure is not None:
            # Nothing of it will count, so nobody has to wait for the rest.
            notify(self._accumulator.fail_all(spoiled(self._transactions.failure)))

    async def _round(self) -> None:
        now_ms = self._cluster.ticks.now_ms()
        ready, is_late = self._accumulator.due(now_ms)
        if is_late:
            notify(self._accumulator.expire(now_ms, lambda batch: self._final(_timed_out(batch))))
        if not ready:
            return
        if len(ready) == 1 and await self._round_of_one(ready[0]):
            return
        shipments = await self._pack(ready)
        if not shipments:
            return
        replies = await self._cluster.transport.exchange([shipment.call for shipment in shipments])
        outcomes: dict[Queue, list[tuple[Batch, Outcome]]] = {}
        for shipment, reply in zip(shipments, replies, strict=True):
            if isinstance(reply, UNANSWERED):
                self._cluster.lost(shipment.call.address)
            for (queue, batch), outcome in zip(shipment.contents, _answers(shipment, reply), strict=True):
                outcomes.setdefault(queue, []).append((batch, outcome))
        for queue, judged in outcomes.items():
            self._settle(queue, judged)

    async def _round_of_one(self, queue: Queue) -> bool:
        """One batch for one partition whose leader is known, the way of a lone `send`: the same, with less to do.

        False when it is not that simple; nothing has been sent then.
        """
        topic, partition = queue.key
        view = self._cluster.cached(topic)
        if view is None or partition >= len(view.partitions):
            return False
        address = self._cluster.topology.leader_address(view, partition)
        if address is None or not self._cluster.has_met(address) or self._codec is Codec.ZSTD:
            return False
        if self._transactions is not None and not self._may_follow(queue, address):
            return False
        taken = self._accumulator.take(queue, window=self._window)
        if len(taken) > 1:
            return False
        batch = taken[0]
        if not await self._encode(queue, batch):
            return True
        shipment = self._shipment(address, [(queue, batch)])
        reply = await self._send_one(shipment.call)
        if isinstance(reply, UNANSWERED):
            self._cluster.lost(address)
        self._settle(queue, [(batch, _answers(shipment, reply)[0])])
        return True

    def _may_follow(self, queue: Queue, address: Address) -> bool:
        """Whether a partition is part of the transaction, or becomes so by being written to."""
        assert self._transactions is not None, "asked in transactions only"
        if not self._transactions.holds(queue.key):
            return False
        if self._transactions.is_implicit and self._cluster.version(address, ApiKey.PRODUCE) <= PRODUCE_EXPLICIT_LAST:
            return False
        self._accumulator.enter(queue, self._transactions.identity)
        return True

    async def _send_one(self, call: Call) -> Reply | OttlaError:
        try:
            return await self._cluster.transport.request(call)
        except OttlaError as e:
            return e

    # --- packing -------------------------------------------------------------------------------------

    async def _pack(self, ready: Sequence[Queue]) -> list[_Shipment]:
        """The requests of this round; queues that cannot be sent now are put off or failed."""
        await self._refresh_stale(ready)
        if self._transactions is not None:
            ready = await self._in_transaction(self._transactions, ready)
        waves: dict[tuple[int, Address], list[list[tuple[Queue, Batch]]]] = {}
        for queue in ready:
            address = await self._leader(queue) if queue.batches else None
            if address is None:
                continue
            for depth, batch in enumerate(self._accumulator.take(queue, window=self._window)):
                if not await self._encode(queue, batch):
                    break
                loads = waves.setdefault((depth, address), [[]])
                if sum(len(each.data or b"") for _, each in loads[-1]) >= REQUEST_BYTES_MAX:
                    loads.append([])
                loads[-1].append((queue, batch))
        # Stable: the first batch of every partition leaves before the second of any.
        in_order = sorted(waves, key=lambda wave: wave[0])
        return [self._shipment(wave[1], load) for wave in in_order for load in waves[wave]]

    async def _in_transaction(self, transactions: Transactions, ready: Sequence[Queue]) -> list[Queue]:
        """Those whose partitions are part of the transaction, after asking once for the others'."""
        waiting = [queue for queue in ready if queue.batches]
        missing = [queue for queue in waiting if not transactions.holds(queue.key)]
        if missing:
            try:
                await transactions.add([queue.key for queue in missing])
            except OttlaError as e:
                for queue in missing:
                    self._put_off(queue, queue.batches[0], e)
        members = [queue for queue in waiting if transactions.holds(queue.key)]
        for queue in members:
            self._accumulator.enter(queue, transactions.identity)
        return members

    async def _refresh_stale(self, ready: Sequence[Queue]) -> None:
        """One question for all topics that need it, not one each."""
        names = list(dict.fromkeys(queue.key.topic for queue in ready if not self._cluster.cached(queue.key.topic)))
        if not names:
            return
        try:
            await self._cluster.refresh(names)
        except OttlaError as e:
            for queue in ready:
                if queue.key.topic in names:
                    self._put_off(queue, queue.batches[0], e)

    async def _leader(self, queue: Queue) -> Address | None:
        """The leader of a partition, with versions agreed; None when the queue has been put off."""
        topic, partition = queue.key
        cluster = self._cluster
        view = cluster.cached(topic)
        if view is None:
            # Put off already when the question itself failed.
            if queue.blocked_until_ms <= cluster.ticks.now_ms():
                self._put_off(queue, queue.batches[0], TopicNotFound(topic))
            return None
        address = cluster.topology.leader_address(view, partition) if partition < len(view.partitions) else None
        if address is None:
            self._put_off(queue, queue.batches[0], error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=str(queue.key)))
            return None
        if not cluster.has_met(address):
            try:
                await cluster.meet(address)
            except OttlaError as e:
                cluster.lost(address)
                self._put_off(queue, queue.batches[0], e)
                return None
        try:
            self._check_version(address)
        except OttlaError as e:
            self._put_off(queue, queue.batches[0], e)
            return None
        return address

    def _check_version(self, address: Address) -> None:
        version = self._cluster.version(address, ApiKey.PRODUCE)
        if self._codec is Codec.ZSTD and version < PRODUCE_ZSTD_FIRST:
            raise UnsupportedCompression(f"{address} is too old for zstd: choose another compression")
        if self._transactions is not None and self._transactions.is_implicit and version <= PRODUCE_EXPLICIT_LAST:
            raise UnsupportedVersion(f"{address} does not know transactions version 2, which its cluster has")

    async def _encode(self, queue: Queue, batch: Batch) -> bool:
        """Number a batch and turn it into bytes; False when it was put off or failed."""
        if batch.data is not None:
            return True
        if self._idempotent and batch.identity == NOBODY:
            if queue.identity == NOBODY and not await self._introduce(queue, batch):
                return False
            self._accumulator.number(queue, batch, self._identity)
        try:
            batch.data = self._bytes_of(batch)
        except OttlaError as e:
            notify(self._accumulator.refuse(queue, batch, self._final(e)))
            return False
        return True

    def _bytes_of(self, batch: Batch) -> bytearray:
        rows, identity = batch.records, batch.identity
        if isinstance(rows, PackedRows):
            return finish_batch(
                # Not compressed, the batch is this very buffer; numbered anew, only its header is written again.
                rows.packed,
                codec=self._codec,
                base_offset=0,
                leader_epoch=NO_LEADER_EPOCH,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=batch.base_sequence,
                transactional=self._transactions is not None,
                control=False,
                timestamp_type=TimestampType.CREATE_TIME,
                level=None,
            )
        return build_batch(
            rows,
            codec=self._codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=batch.base_sequence,
            transactional=self._transactions is not None,
        )

    async def _introduce(self, queue: Queue, batch: Batch) -> bool:
        """Have an identity that no partition has lost track of; False when it cannot be had now."""
        if self._identity not in (NOBODY, queue.spent):
            return True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            response = await self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if response.error_code:
                raise error_for(response.error_code, about="InitProducerId")
        except OttlaError as e:
            self._put_off(queue, batch, e)
            return False
        self._identity = Identity(response.producer_id, response.producer_epoch)
        return True

    def _shipment(self, address: Address, contents: Sequence[tuple[Queue, Batch]]) -> _Shipment:
        """The request for some batches, one per partition, that go to the same broker."""
        has_ids = True
        topics: list[TopicProduceData] = []
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in contents:
            data = PartitionProduceData(index=queue.key.partition, records=batch.data)
            by_topic.setdefault(queue.key.topic, []).append(data)
        for topic, partitions in by_topic.items():
            view: TopicView = self._cluster.topology.topics[topic]
            has_ids = has_ids and view.has_id
            topics.append(TopicProduceData(name=topic, topic_id=view.topic_id, partition_data=partitions))
        version_max = None if has_ids else PRODUCE_NAMES_LAST
        transactional_id: str | None = None
        if self._transactions is not None:
            self._transactions.sends()
            transactional_id = self._transactions.transactional_id
            version_max = version_max if self._transactions.is_implicit else PRODUCE_EXPLICIT_LAST
        version = self._cluster.version(address, ApiKey.PRODUCE, version_max=version_max)
        message = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=topics,
        )
        call = Call(address, ApiKey.PRODUCE, version, message, self._request_timeout_ms, self._acks != 0)
        return _Shipment(call, contents)

    # --- settling ------------------------------------------------------------------------------------

    def _settle(self, queue: Queue, judged: Sequence[tuple[Batch, Outcome]]) -> None:
        """Decide about one partition's batches, in their order."""
        # Known of all before anything is decided about one: giving one up takes the uncertain ones along.
        for batch, outcome in judged:
            if _leaves_doubt(outcome):
                batch.uncertain = True
        disturbed = False
        for batch, outcome in judged:
            if batch.done:
                continue
            if outcome is None:
                self._done(queue, batch, NO_OFFSET)
            elif isinstance(outcome, OttlaError):
                self._failed(queue, batch, outcome, disturbed)
                disturbed = True
            elif outcome.error_code == ErrorCode.NONE:
                self._done(queue, batch, outcome.base_offset)
            elif outcome.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                # Written by an earlier attempt, so long ago that the broker cannot say where.
                self._done(queue, batch, NO_OFFSET)
            else:
                self._refused(queue, batch, outcome, disturbed)
                disturbed = True

    def _done(self, queue: Queue, batch: Batch, base_offset: int) -> None:
        self._accumulator.settle(queue, batch, base_offset=base_offset, error=None)
        if batch.waiters is not None:
            notify([batch])

    def _refused(self, queue: Queue, batch: Batch, answer: PartitionProduceResponse, disturbed: bool) -> None:
        """The broker said no. `disturbed`: so it did, or may have done, about a batch before this one."""
        code = code_of(answer.error_code)
        error = error_for(answer.error_code, about=f"{batch.topic}-{batch.partition}", message=answer.error_message)
        if code in LOST_TRACK and self._idempotent and (disturbed or self._may_renew):
            if not disturbed:
                # Nothing before it is open, so the gap is real: only a new identity leads out of it.
                queue.start_over()
            self._failed(queue, batch, error, disturbed)
        elif code.retriable or (disturbed and _may_be_halved(batch, code)):
            self._failed(queue, batch, error, disturbed)
        elif _may_be_halved(batch, code):
            self._accumulator.split(queue, batch, _halves(batch))
        elif batch.uncertain:
            # An earlier attempt may have been written, so its number must not be used for another batch.
            notify(self._accumulator.give_up(queue, batch, self._final(error)))
        else:
            notify(self._accumulator.refuse(queue, batch, self._final(error)))

    def _final(self, error: OttlaError) -> Exception:
        """The error that a batch ends with; it spoils the transaction that the batch was part of."""
        return error if self._transactions is None else self._transactions.spoil(error)

    def _failed(self, queue: Queue, batch: Batch, error: OttlaError, disturbed: bool) -> None:
        """A batch did not get through: it is tried again if that may help, and never before its predecessors."""
        code = getattr(error, "code", None)
        if code in STALE_LEADER or isinstance(error, UNANSWERED):
            self._cluster.mark_stale(batch.topic)
        if not disturbed:
            self._put_off(queue, batch, error)
            return
        batch.attempts += 1
        batch.last_error = error
        if code not in LOST_TRACK:
            self._block(queue, batch, error)

    def _put_off(self, queue: Queue, batch: Batch, error: OttlaError) -> None:
        """Try a queue's first batch again later, or give it up."""
        batch.attempts += 1
        batch.last_error = error
        code = getattr(error, "code", None)
        may_pass = self._cluster.may_pass(error) or (self._may_renew and code in LOST_TRACK)
        if isinstance(error, TopicNotFound):
            may_pass = self._cluster.ticks.now_ms() - batch.created_ms < self._settings.topic_wait_ms
        if code in STALE_LEADER:
            self._cluster.mark_stale(batch.topic)
        retries = self._settings.retries
        if not may_pass or (retries is not None and batch.attempts > retries):
            notify(self._accumulator.give_up(queue, batch, self._final(error)))
        else:
            self._block(queue, batch, error)

    def _block(self, queue: Queue, batch: Batch, error: OttlaError) -> None:
        delay_ms = self._cluster.settings.backoff_after_ms(error, batch.attempts)
        self._accumulator.block(queue, self._cluster.ticks.now_ms() + delay_ms)


def _may_be_halved(batch: Batch, code: ErrorCode) -> bool:
    """Whether a batch was too large, and its parts may not be."""
    return code in TOO_LARGE and batch.may_split and not batch.uncertain and len(batch.records) > 1


def _halves(batch: Batch) -> list[list[RecordTuple]]:
    """The records of a batch that has been made, in two parts."""
    assert batch.data is not None, "it has been sent"
    found = read_batch(batch.data, checked=True)
    records: list[RecordTuple] = [(each.key, each.value, each.timestamp_ms, each.headers) for each in found]
    middle = len(records) // 2
    return [records[:middle], records[middle:]]


def _leaves_doubt(outcome: Outcome) -> bool:
    """Whether the broker may have written the batch, or may yet do so, although it did not say so."""
    if outcome is None or isinstance(outcome, OttlaError):
        return outcome is not None
    code = code_of(outcome.error_code)
    return code.retriable and code not in NOT_WRITTEN


def _answers(shipment: _Shipment, reply: Reply | OttlaError) -> list[Outcome]:
    """What was said of each batch of a request."""
    count = len(shipment.contents)
    if reply is None or isinstance(reply, OttlaError):
        return [reply] * count
    assert isinstance(reply, ProduceResponse), "a response is of its request's kind"
    assert isinstance(shipment.call.message, ProduceRequest), "only Produce is sent here"
    if count == 1 and len(reply.responses) == 1 and len(reply.responses[0].partition_responses) == 1:
        answer = reply.responses[0].partition_responses[0]
        if answer.index == shipment.contents[0][0].key.partition:
            return [answer]
    names = {topic.topic_id: topic.name for topic in shipment.call.message.topic_data}
    said = {
        (topic.name or names.get(topic.topic_id, ""), answer.index): answer
        for topic in reply.responses
        for answer in topic.partition_responses
    }
    outcomes: list[Outcome] = []
    for queue, _ in shipment.contents:
        missing = ProtocolError(f"{shipment.call.address} did not say what became of {queue.key}")
        outcomes.append(said.get(queue.key, missing))
    return outcomes


def _timed_out(batch: Batch) -> DeliveryTimedOut:
    waited = f"{len(batch.records)} records for {batch.topic}-{batch.partition} were not acknowledged in time"
    error = DeliveryTimedOut(f"{waited}; last: {batch.last_error}" if batch.last_error else waited)
    error.__cause__ = batch.last_error
    return error

"""The way of a transactional batch into its partition: never before its transaction has it, never after its end.

Where the partition's log has the producer's transaction open already, a look at the coordinator's state is enough.
Otherwise the coordinator is asked, and the batch waits until the answer is durable. Batches of one producer for one
partition keep their order, so what comes while one waits, waits behind it. What a batch is answered is the handler's
business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.broker.transactions import TransactionCoordinator, TransactionDecision
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    OutOfOrderSequence,
    Refusal,
)
from ottla.partitions.partition import Partition
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.schema import Message
from ottla.records.batch import BatchHeader, Buffer

REFUSED_REMEMBERED_MAX = 10_000
_GRANTED = HeartbeatResponse()
"""What the coordinator replies to a claim that it grants: any message does, nobody reads it."""
_TRIED_AGAIN = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable)
"""Refusals after which a producer sends the same batch again."""

_Lane = tuple[Partition, int]
"""One producer in one partition. A partition that was opened anew is another one: nothing gets into the old one."""


def _forgotten(told: object) -> None:
    """Stands where a write that is over had somebody to tell."""


class TransactionalWrite:
    """One batch that is to be appended."""

    __slots__ = (
        "_append",
        "_is_over",
        "_records",
        "_refuse",
        "adds",
        "header",
        "lane",
        "partition",
        "place",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        place: TopicPartition,
        partition: Partition,
        header: BatchHeader,
        records: Buffer,
        *,
        adds: bool,
        append: Callable[[Buffer], None],
        refuse: Callable[[Refusal], None],
    ) -> None:
        """`adds` says that the partition joins the transaction by this; otherwise it must have joined before.

        `append` may raise a Refusal, and then `refuse` is called; else one of the two, once.
        """
        self.transactional_id = transactional_id
        self.place = place
        self.lane: _Lane = (partition, header.producer_id)
        self.partition = partition
        self.header = header
        self.adds = adds
        self._is_over = False
        self._records = records
        self._append: Callable[[Buffer], None] = append
        self._refuse: Callable[[Refusal], None] = refuse

    def keep(self) -> None:
        """It has to wait: the buffer that its bytes came in is used again."""
        if type(self._records) is not bytes:
            self._records = bytes(self._records)

    def append(self) -> None:
        """Append it, once. Raises a Refusal when the partition does not take it."""
        if not self._is_over:
            self._append(self._records)
            self._let_go()

    def refuse(self, error: Refusal) -> None:
        """Tell whoever waits, unless it is settled already."""
        if not self._is_over:
            refuse = self._refuse
            self._let_go()
            refuse(error)

    def _let_go(self) -> None:
        """Whoever waits knows this object too: a cycle, which would keep the batch's bytes."""
        self._is_over = True
        self._records = b""
        self._append = self._refuse = _forgotten

    def is_of_same(self, other: TransactionalWrite) -> bool:
        """Whether both belong to the same producer's same transaction, as far as they say."""
        return (
            self.transactional_id == other.transactional_id
            and self.header.producer_epoch == other.header.producer_epoch
        )


class TransactionalWrites:
    """All batches that wait for the coordinator. Each has a client behind it, which bounds them."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions
        self._lanes: dict[_Lane, deque[TransactionalWrite]] = {}
        """What waits behind a batch that the coordinator is being asked about."""
        self._refused: dict[tuple[str, int], tuple[int, int]] = {}
        """Epoch and first sequence of what was refused to a producer that a partition knows nothing of, by their names.

        Its next batch must not come in before that one is sent again: the partition would take it for the first.
        """

    def is_open(self, partition: Partition, header: BatchHeader) -> bool:
        """Whether the partition has the batch's transaction already, and nothing waits that must go first."""
        return not self.is_waiting(partition, header) and _is_in_log(partition, header)

    def is_waiting(self, partition: Partition, header: BatchHeader) -> bool:
        """Whether a batch of the same producer waits for the coordinator there, so that this one has to wait too."""
        return bool(self._lanes) and (partition, header.producer_id) in self._lanes

    def require_ongoing(self, transactional_id: str, partition: Partition, header: BatchHeader) -> None:
        """The last look before a batch is appended, in the same moment. Raises what it is to be refused with."""
        self._transactions.require_ongoing(
            transactional_id, producer_id=header.producer_id, producer_epoch=header.producer_epoch
        )
        if self._refused:
            self._check_order(partition, header)

    def submit(self, writes: Sequence[TransactionalWrite]) -> None:
        """Append the batches of one request, now or later."""
        asked: dict[tuple[str, int, int], list[TransactionalWrite]] = {}
        for write in writes:
            lane = self._lanes.get(write.lane)
            if lane is not None:
                write.keep()
                lane.append(write)
            elif _is_in_log(write.partition, write.header):
                self._append(write)
            else:
                write.keep()
                self._lanes[write.lane] = deque()
                header = write.header
                key = (write.transactional_id, header.producer_id, header.producer_epoch)
                asked.setdefault(key, []).append(write)
        for together in asked.values():
            reply = self._ask(together)
            if reply is not None:
                self._settle(together, reply)

    def _ask(self, writes: Sequence[TransactionalWrite]) -> Message | Refusal | None:
        """The coordinator's reply to one claim for all of these, if it comes at once; else it is settled later."""
        replies: list[Message | Refusal] = []

        def done(reply: Message | Refusal) -> None:
            if is_awaited:
                self._settle(writes, reply)
            else:
                replies.append(reply)

        is_awaited = False
        first = writes[0]
        places = tuple(write.place for write in writes)
        claim = Claim(first.transactional_id, first.header.producer_id, first.header.producer_epoch, places)
        decide = _adding(claim) if first.adds else _verifying(claim)
        self._transactions.ask(first.transactional_id, decide, done)
        is_awaited = True
        return replies[0] if replies else None

    def _settle(self, writes: Sequence[TransactionalWrite], reply: Message | Refusal) -> None:
        for write in writes:
            self._take(write, reply)
        for write in writes:
            self._go_on(write.lane)

    def _take(self, write: TransactionalWrite, reply: Message | Refusal) -> None:
        """The coordinator has answered for the first of a lane."""
        if not isinstance(reply, Refusal):
            self._append(write)
            return
        if isinstance(reply, _TRIED_AGAIN):
            self._remember_refused(write)
        # What came after it in the same transaction would leave a gap; its producer sends all of it again.
        lane = self._lanes[write.lane]
        refused = [write, *(later for later in lane if later.is_of_same(write))]
        others = [later for later in lane if not later.is_of_same(write)]
        lane.clear()
        lane.extend(others)
        for each in refused:
            each.refuse(reply)

    def _go_on(self, place: _Lane) -> None:
        """Take what has waited, in its order, until the coordinator must be asked again."""
        lane = self._lanes[place]
        while lane:
            write = lane.popleft()
            if _is_in_log(write.partition, write.header):
                self._append(write)
                continue
            reply = self._ask((write,))
            if reply is None:
                return
            self._take(write, reply)
        del self._lanes[place]

    def _append(self, write: TransactionalWrite) -> None:
        """The transaction may have been ended while the batch waited."""
        try:
            self.require_ongoing(write.transactional_id, write.partition, write.header)
            if write.adds:
                _check_first(write.partition, write.header)
            write.append()
        except Refusal as error:
            write.refuse(error)

    def _remember_refused(self, write: TransactionalWrite) -> None:
        header = write.header
        if write.partition.log.producers.entry(header.producer_id) is not None:
            # The partition knows which sequence is due.
            return
        key = (write.partition.log.directory, header.producer_id)
        epoch, sequence = self._refused.pop(key, (header.producer_epoch, header.base_sequence))
        if epoch == header.producer_epoch:
            sequence = min(sequence, header.base_sequence)
        elif epoch < header.producer_epoch:
            epoch, sequence = header.producer_epoch, header.base_sequence
        self._refused[key] = epoch, sequence
        if len(self._refused) > REFUSED_REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]

    def _check_order(self, partition: Partition, header: BatchHeader) -> None:
        key = (partition.log.directory, header.producer_id)
        refused = self._refused.get(key)
        if refused is None:
            return
        epoch, sequence = refused
        if epoch == header.producer_epoch and header.base_sequence > sequence:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {epoch}: sequence {header.base_sequence} came, "
                f"but {sequence} was refused and has to come first"
            )
        del self._refused[key]


def _check_first(partition: Partition, header: BatchHeader) -> None:
    """Every transaction of the second version has an epoch of its own, so it begins with sequence 0 everywhere."""
    if header.base_sequence and partition.log.producers.entry(header.producer_id) is None:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} epoch {header.producer_epoch}: "
            f"sequence {header.base_sequence} came, 0 was due"
        )


def _is_in_log(partition: Partition, header: BatchHeader) -> bool:
    """Whether an earlier batch of the same transaction stands in the log, and no end of it."""
    entry = partition.log.producers.entry(header.producer_id)
    return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == header.producer_epoch


def _adding(claim: Claim) -> TransactionDecision:
    return lambda shard, ticket, outcome, now_ms: shard.add(claim, _GRANTED, ticket, outcome, now_ms)


def _verifying(claim: Claim) -> TransactionDecision:
    return lambda shard, ticket, outcome, now_ms: shard.verify(claim, _GRANTED, ticket, outcome, now_ms)

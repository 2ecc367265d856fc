"""Transactional producers of both versions, as honest clients are: they retry what got no answer, and stop when fenced.

One whose transaction has taken too long is refused as if it had been fenced, and may try to go on: with the second
version by an abort, with both by naming the identity that it has. If it was fenced indeed, it hears so then.

Each asks for one thing at a time. Several may have the same transactional id, as when a process is thought dead and is
not; then all but the last are fenced sooner or later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from random import Random

from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schema import Message
from ottla.records.control import MarkerType
from tests.coordinators.transactions.broker_model import ModelBroker, Produce
from tests.coordinators.transactions.coordinator_model import Done
from tests.coordinators.transactions.ledger import Ledger, Written

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
TRIED_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
ABORTABLE = frozenset(
    {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
)
TIMEOUTS_MS = (5_000, 20_000, 60_000)

Late = Callable[[], None]
"""A request that is still on its way when its client has long gone on."""


class Connection:
    """Asks for one thing at a time; what comes after the client has given up waiting is not heard."""

    def __init__(self) -> None:
        self._asked = 0
        self.is_waiting = False
        self.is_lost = False
        """Whether the last answer never came."""

    def heard(self, hear: Callable[[Message | Refusal], None]) -> Done:
        """What to give along with a request, so that `hear` is told the answer."""
        self._asked += 1
        mine = self._asked
        self.is_waiting = True
        self.is_lost = False

        def done(reply: Message | Refusal) -> None:
            if mine == self._asked and self.is_waiting:
                self.is_waiting = False
                hear(reply)

        return done

    def lose(self) -> None:
        """The answer never comes."""
        self._asked += 1
        self.is_lost |= self.is_waiting
        self.is_waiting = False


class Phase(Enum):
    INIT = "init"
    BEGIN = "begin"
    WRITE = "write"
    END = "end"
    GONE = "gone"


class Writer:
    """What producers and the tasks of queries have in common: an id, an epoch, and batches to write."""

    def __init__(
        self,
        broker: ModelBroker,
        ledger: Ledger,
        late: list[Late],
        *,
        transactional_id: str,
        version: int,
        random: Random,
    ) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.connection = Connection()
        self.producer_id = -1
        self.epoch = -1
        self.written = Written(0)
        self._broker = broker
        self._ledger = ledger
        self._late = late
        self._random = random
        self._sequences: Counter[TopicPartition] = Counter()
        self._added: set[TopicPartition] = set()
        self.plan: list[TopicPartition] = []

    @property
    def is_version_2(self) -> bool:
        return self.version >= 5

    def init(self, *, is_resumed: bool, hear: Callable[[Message | Refusal], None]) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._random.choice(TIMEOUTS_MS),
            producer_id=self.producer_id if is_resumed else -1,
            producer_epoch=self.epoch if is_resumed else -1,
        )
        self._broker.init_producer(request, self, self.connection.heard(hear))

    def take(self, producer_id: int, *, epoch: int) -> None:
        """Go on under this identity; sequences begin anew with it."""
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()

    def begin(self, *, places_max: int) -> None:
        self.written = self._ledger.begin()
        self._added.clear()
        places = list(self._broker.partitions)
        count = self._random.randint(1, min(places_max, len(places)))
        self.plan = self._random.sample(places, count)
        self.plan += [place for place in self.plan if self._random.random() < 0.2]

    def write(self, refused: Callable[[ErrorCode], None]) -> None:
        """The next batch of the plan, or what must come before it."""
        place = self.plan[0]
        if not self.is_version_2 and place not in self._added:
            self._add(place, refused)
            return
        sequence, epoch, written = self._sequences[place], self.epoch, self.written
        batch = Produce(
            self.transactional_id, self.producer_id, epoch, sequence, written.token, place, adds=self.is_version_2
        )

        def hear(reply: Message | Refusal) -> None:
            if isinstance(reply, Refusal):
                refused(reply.code)
                return
            written.acknowledged.add((place, epoch, sequence))
            self._sequences[place] += 1
            self.plan.pop(0)

        self._maybe_late(
            0.1 if self.is_version_2 else 0.3, lambda: self._broker.produce(batch, lambda reply: None), place
        )
        self._broker.produce(batch, self.connection.heard(hear))

    @property
    def has_added(self) -> bool:
        return self.is_version_2 or bool(self._added)

    def _add(self, place: TopicPartition, refused: Callable[[ErrorCode], None]) -> None:
        claim = Claim(self.transactional_id, self.producer_id, self.epoch, (place,))

        def hear(reply: Message | Refusal) -> None:
            if isinstance(reply, Refusal):
                refused(reply.code)
            else:
                self._added.add(place)

        self._maybe_late(0.05, lambda: self._broker.add(claim, lambda reply: None))
        self._broker.add(claim, self.connection.heard(hear))

    def _maybe_late(self, chance: float, send: Late, place: TopicPartition | None = None) -> None:
        """Perhaps a copy of this request arrives later, when its transaction may have ended.

        With the first version a copy that comes when the next transaction is open, in the same partition, cannot be
        told from a part of it; that is what the second version is there for, and such a copy does not arrive here.
        """
        if self._random.random() >= chance:
            return
        written = self.written

        def deliver() -> None:
            if self.is_version_2 or self.written is written or not self._broker.is_open(self.transactional_id, place):
                send()

        self._late.append(deliver)


class Producer(Writer):
    """A transactional producer, from its start to its end."""

    phase = Phase.INIT
    _is_resumed = False
    _is_commit = False
    _has_gap = False
    """Whether a batch was given up that may leave a hole in the sequences."""

    def act(self) -> None:
        """Ask for the next thing."""
        if self.phase is Phase.INIT:
            self.init(is_resumed=self._is_resumed, hear=self._hear_init)
        elif self.phase is Phase.BEGIN:
            self.begin(places_max=6)
            self.phase = Phase.WRITE
        elif self.phase is Phase.WRITE:
            if not self.plan or self._random.random() < (0.2 if self.connection.is_lost else 0.02):
                self._is_commit = not self.plan and self._random.random() < 0.75
                self._has_gap = bool(self.plan)
                self.phase = Phase.END
            else:
                self.write(self._refused)
        elif self.phase is Phase.END:
            self._end()

    def _hear_init(self, reply: Message | Refusal) -> None:
        if isinstance(reply, InitProducerIdResponse):
            self.take(reply.producer_id, epoch=reply.producer_epoch)
            self._is_resumed = False
            self.phase = Phase.BEGIN
            return
        assert isinstance(reply, Refusal)
        if reply.code is ErrorCode.PRODUCER_FENCED:
            assert self._is_resumed, "whoever takes an id is not fenced"
            self._begin_anew()
        else:
            assert reply.code in TRIED_AGAIN, reply.code

    def _refused(self, code: ErrorCode) -> None:
        # It may be fenced, or have taken too long: with the second version an abort tells.
        is_tried = self.is_version_2 and self._random.random() < 0.5
        if code in FENCED and not is_tried:
            self._begin_anew()
        elif code in FENCED | ABORTABLE:
            self._is_commit, self._has_gap = False, True
            self.phase = Phase.END
        else:
            assert code in TRIED_AGAIN, code

    def _begin_anew(self) -> None:
        """Fenced: gone, or as a new process, or in the hope that it was nothing."""
        self.phase = self._random.choice((Phase.INIT, Phase.INIT, Phase.GONE))
        self._is_resumed = self.producer_id >= 0 and not self._is_resumed and self._random.random() < 0.3

    def _end(self) -> None:
        if not self.has_added:
            self._after_end()
            return
        if self._random.random() < 0.05:
            # It gives up, and begins again with the identity that it has, not knowing how it ended.
            self.phase, self._is_resumed = Phase.INIT, True
            return
        written, is_commit = self.written, self._is_commit
        written.is_commit_asked |= is_commit
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        self._maybe_late(0.1, lambda: self._broker.end(request, self.version, self, lambda reply: None))

        def hear(reply: Message | Refusal) -> None:
            if isinstance(reply, EndTxnResponse):
                written.told = MarkerType.COMMIT if is_commit else MarkerType.ABORT
                if self.is_version_2:
                    self.take(reply.producer_id, epoch=reply.producer_epoch)
                self._after_end()
                return
            assert isinstance(reply, Refusal)
            if reply.code in FENCED:
                self._begin_anew()
            elif reply.code is ErrorCode.INVALID_TXN_STATE:
                assert self.is_version_2, "the first version is fenced by whatever ends its transaction"
                assert is_commit, "an abort finds what it asks for"
                assert written.told is None, "it was told that it is committed"
                self._commit_refused()
            else:
                assert reply.code in TRIED_AGAIN, reply.code

        self._broker.end(request, self.version, self, self.connection.heard(hear))

    def _commit_refused(self) -> None:
        """It took too long, and was aborted: abort it too, and go on; or as a new process."""
        self._is_commit = False
        if self._random.random() < 0.3:
            self._begin_anew()

    def _after_end(self) -> None:
        self.phase = Phase.BEGIN
        if self._has_gap and not self.is_version_2:
            # Only another epoch makes up for a batch that was given up.
            self.phase, self._is_resumed = Phase.INIT, True
        self._has_gap = False

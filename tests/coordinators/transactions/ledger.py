"""What clients did and were told, and the promises that are held against it when all is over.

- A transaction is all or nothing over its partitions, as a reader of committed data sees them; one decision ended it.
- What was told committed is there, whole; what was told aborted is not; what nobody asked to commit is not.
- Nothing is there twice, nothing that was acknowledged is missing, and nothing of an ended transaction came in later.
- A commit of several is all or nothing, and each key was committed once at most; exactly once if anybody was told so.
- Ids went from state to state as they may, and no epoch ever went down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from ottla.coordinators.transactions.markers import TopicPartition
from ottla.coordinators.transactions.records import TransactionLogValue, TransactionStatus
from ottla.records.control import MarkerType
from tests.coordinators.transactions.coordinator_model import Change
from tests.coordinators.transactions.partition_model import Entry, ModelPartition

_AT_REST = (TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
_NEXT: dict[TransactionStatus | None, tuple[TransactionStatus | None, ...]] = {
    None: (TransactionStatus.EMPTY,),
    TransactionStatus.ONGOING: (
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.PREPARE_ABORT,
    ),
    TransactionStatus.PREPARE_COMMIT: (TransactionStatus.COMPLETE_COMMIT,),
    TransactionStatus.PREPARE_ABORT: (TransactionStatus.COMPLETE_ABORT,),
    **dict.fromkeys(
        _AT_REST, (TransactionStatus.EMPTY, TransactionStatus.ONGOING, TransactionStatus.PREPARE_ABORT, None)
    ),
}


@dataclass
class Written:
    """One transaction of one client, as the client sees it."""

    token: int
    acknowledged: set[tuple[TopicPartition, int, int]] = field(default_factory=set)
    """Partition, epoch and sequence of each batch."""
    is_commit_asked: bool = False
    told: MarkerType | None = None


@dataclass
class Attempt:
    """The transactions that a query wants to commit under one key, this time."""

    query_id: str
    batch_id: int
    transactions: list[Written] = field(default_factory=list)
    is_told: bool = False
    """Whether somebody was told that this very attempt is committed."""


class Ledger:
    """Everything that clients did."""

    def __init__(self) -> None:
        self._tokens = count(1)
        self.written: dict[int, Written] = {}
        self.attempts: list[Attempt] = []
        self.committed_keys: set[tuple[str, int]] = set()
        """Keys that somebody was told are committed."""

    def begin(self) -> Written:
        """A client begins a transaction."""
        written = Written(next(self._tokens))
        self.written[written.token] = written
        return written

    def begin_attempt(self, query_id: str, batch_id: int) -> Attempt:
        attempt = Attempt(query_id, batch_id)
        self.attempts.append(attempt)
        return attempt

    # --- promises ------------------------------------------------------------------------------------------------

    def check(self, partitions: Iterable[ModelPartition], counts: Counter[str]) -> None:
        """Raise AssertionError where a promise was broken."""
        visible = self._check_transactions(_Truth(partitions), counts)
        self._check_attempts(visible, counts)

    def _check_transactions(self, truth: _Truth, counts: Counter[str]) -> set[int]:
        visible = set()
        for token, written in self.written.items():
            ends = truth.ends.get(token, set())
            assert len(ends) <= 1, f"transaction {token} was ended by several decisions: {ends}"
            missing = written.acknowledged - truth.places.get(token, set())
            assert not missing, f"acknowledged, and gone: {missing}"
            is_committed = any(marker_type is MarkerType.COMMIT for marker_type, _ in ends)
            if is_committed:
                visible.add(token)
                assert written.is_commit_asked, f"transaction {token} was committed, and nobody had asked for it"
            if ends and written.told is not None:
                assert is_committed == (written.told is MarkerType.COMMIT), f"{token} was told {written.told.name}"
            if ends:
                told = "nobody" if written.told is None else written.told.name
                counts[f"transaction {'committed' if is_committed else 'aborted'}, told {told}"] += 1
        return visible

    def _check_attempts(self, visible: set[int], counts: Counter[str]) -> None:
        committed: Counter[tuple[str, int]] = Counter()
        for attempt in self.attempts:
            tokens = {written.token for written in attempt.transactions if written.acknowledged}
            assert tokens <= visible or not tokens & visible, f"a commit of several was torn: {tokens & visible}"
            is_committed = bool(tokens & visible)
            assert is_committed or not (attempt.is_told and tokens), "told that it is committed, and it is not"
            if is_committed:
                committed[attempt.query_id, attempt.batch_id] += 1
        counts["group commits"] += len(committed)
        for key, times in committed.items():
            assert times == 1, f"{key} was committed {times} times"
        assert self.committed_keys <= set(committed), "a key that was told committed is not"


class _Truth:
    """What the partitions hold, read as a reader of committed data does."""

    def __init__(self, partitions: Iterable[ModelPartition]) -> None:
        self.ends: dict[int, set[tuple[MarkerType, int]]] = {}
        """How each transaction was ended, and by which decision."""
        self.places: dict[int, set[tuple[TopicPartition, int, int]]] = {}
        ended: dict[int, set[int]] = {}
        for partition in partitions:
            for token, marker_type, decision in self._read(partition):
                self.ends.setdefault(token, set()).add((marker_type, decision))
                ended.setdefault(decision, set()).add(token)
        # Transactions of one commit have one decision in common, but each its own producer: see `_read`.
        self._check_one_each(ended, partitions)

    def _read(self, partition: ModelPartition) -> Iterable[tuple[int, MarkerType, int]]:
        pending: dict[int, list[Entry]] = {}
        for entry in partition.entries:
            if entry.marker_type is None:
                pending.setdefault(entry.producer_id, []).append(entry)
                place = (partition.name, entry.epoch, entry.sequence)
                places = self.places.setdefault(entry.token, set())
                assert place not in places, f"{entry} stands twice in {partition.name}"
                places.add(place)
                continue
            closed = pending.pop(entry.producer_id, [])
            tokens = {each.token for each in closed}
            assert len(tokens) <= 1, f"one marker in {partition.name} ends several transactions: {tokens}"
            for each in closed:
                assert each.taken_at <= entry.decision, f"{each} was taken when its end was decided already"
                yield each.token, entry.marker_type, entry.decision
        assert not pending, f"{partition.name} has a transaction open for ever"

    def _check_one_each(self, ended: dict[int, set[int]], partitions: Iterable[ModelPartition]) -> None:
        producers: dict[tuple[int, int], set[int]] = {}
        for partition in partitions:
            for entry in partition.entries:
                if entry.marker_type is None:
                    for _, decision in self.ends[entry.token]:
                        producers.setdefault((decision, entry.producer_id), set()).add(entry.token)
        for (decision, producer_id), tokens in producers.items():
            assert len(tokens) == 1, f"decision {decision} ended several of producer {producer_id}: {tokens}"
        assert all(ended.values())


def check_history(changes: Iterable[Change]) -> None:
    """Each id went its way: from state to state as it may, with epochs that never go down."""
    last: dict[str, TransactionLogValue | None] = {}
    for transactional_id, value, _ in changes:
        before = last.get(transactional_id)
        last[transactional_id] = value
        came_from = None if before is None else TransactionStatus(before.transaction_status)
        went_to = None if value is None else TransactionStatus(value.transaction_status)
        assert went_to in _NEXT[came_from], f"{transactional_id}: {came_from} -> {went_to}"
        if before is None or value is None:
            continue
        if value.producer_id == before.producer_id:
            assert value.producer_epoch >= before.producer_epoch, f"{transactional_id}: the epoch goes down"
        else:
            assert value.producer_id > before.producer_id, f"{transactional_id}: an old producer id comes back"
    open_ones = [name for name, value in last.items() if value is not None and value.transaction_status not in _AT_REST]
    assert not open_ones, f"never ended: {open_ones}"

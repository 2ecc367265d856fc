"""The exactly-once way of the sink: every task writes in a transaction of its slot, one commit makes all of them count.

A batch is known by its key, (query id, batch id). Whoever writes it asks first whether the key is committed, and skips
it then: it is a replay. The slot of a task is a transactional id that stays the same over attempts and restarts, so
a new attempt fences what a dead one left open. What a task leaves open is committed by the driver together with the
others', once; nobody undoes that. Knows brokers and transactions; rows come and go elsewhere.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ottla.client.blocking.producer import Producer
from ottla.client.cluster import Cluster
from ottla.client.coordinator import TRANSACTION_KEY, Coordinator
from ottla.client.errors import CommitUncertain, UnsupportedVersion
from ottla.client.settings import ProducerSettings
from ottla.client.transaction_admin import AsyncTransactionAdmin
from ottla.client.transactions import ASTRAY, FENCED
from ottla.client.transport import run_now
from ottla.client.values import OpenTransaction
from ottla.clock import Clock
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.describe_commit import DescribeCommitResponse
from ottla.spark.errors import OttlaSparkError
from ottla.spark.options import WriteOptions
from ottla.spark.pool import Link

ONGOING = "Ongoing"
LOST_SLOT = (
    "A task took so long that its transaction was ended, or was started twice: raise kafka.transaction.timeout.ms, and "
    "leave spark.speculation off with this sink. The query writes the batch again when it is started anew. "
)
COORDINATORS_MAX = 1_000
"""Queries and slots whose coordinator one set of connections remembers."""

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class BatchKey(NamedTuple):
    """What a batch is known by, over attempts and restarts."""

    query_id: str
    batch_id: int

    def slot(self, number: int) -> str:
        """The transactional id of a task. The broker keeps all ids with the same beginning in one place."""
        return f"{self.query_id}/{number}"

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


@dataclass(slots=True)
class Counts:
    """What has happened in this process, for whoever wants to know."""

    batches_skipped: int = 0
    """Tasks that found their batch committed."""
    attempts_fenced: int = 0
    """Transactions of earlier attempts that were open when a slot was taken over."""
    transactions_aborted: int = 0
    """Transactions that the driver ended because their batch failed."""


COUNTS = Counts()


class NotCommitted(OttlaSparkError):
    """A batch that could not be committed: nothing of it counts, and Spark will write it again."""


class StaleBatch(OttlaSparkError):
    """A batch that was committed long ago comes again."""


class Queries(AsyncTransactionAdmin):
    """Asks about keys and slots; remembers who answers for them, which halves the questions."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._coordinators: dict[str, Coordinator] = {}

    def _coordinator_of(self, transactional_id: str) -> Coordinator:
        found = self._coordinators.get(transactional_id)
        if found is None:
            if len(self._coordinators) >= COORDINATORS_MAX:
                self._coordinators.clear()
            found = Coordinator(self._cluster, transactional_id, key_type=TRANSACTION_KEY)
            self._coordinators[transactional_id] = found
        return found

    async def open_slots(self, query_id: str) -> list[str]:
        """The slots of a query in which a transaction is open."""
        pattern = re.escape(f"{query_id}/") + ".*"
        return [each.transactional_id for each in await self.list_transactions(states=[ONGOING], pattern=pattern)]

    async def commit_of(self, key: BatchKey) -> DescribeCommitResponse:
        """Whether a key is committed, and the last one of its query."""
        return await self._describe_commit(key.query_id, key.batch_id)

    async def serves_group_commits(self) -> bool:
        """Whether the brokers have the APIs of Ottla's own. Asks only whom nobody has met yet."""
        cluster = self._cluster
        if not cluster.has_met(cluster.addresses()[0]):
            await cluster.refresh(())
        try:
            cluster.version(cluster.addresses()[0], ApiKey.COMMIT_TOGETHER)
        except UnsupportedVersion:
            return False
        return True


_QUERIES: WeakKeyDictionary[Cluster, Queries] = WeakKeyDictionary()
_SWEPT: WeakKeyDictionary[Cluster, str] = WeakKeyDictionary()
"""The query that was swept last over each set of connections."""
_SEEN: dict[str, None] = {}
"""Slots that this process has written in, the latest last: whatever is open there is known to be its own."""
SEEN_MAX = 10_000


def queries(link: Link) -> Queries:
    """Whoever asks over these connections."""
    found = _QUERIES.get(link.cluster)
    if found is None:
        found = _QUERIES[link.cluster] = Queries(link.cluster)
    return found


def is_committed(link: Link, key: BatchKey, *, in_order: bool) -> bool:
    """Whether a batch has been committed already.

    `in_order`: it is one of a query that counts its batches and repeats none but the last. If another one is committed,
    the query has begun to count anew, or its checkpoint is older than the topic: what it reads now may be something
    else, and skipping that would lose it. StaleBatch then.
    """
    told = run_now(queries(link).commit_of(key))
    if told.is_committed and in_order and told.last_batch_id != key.batch_id:
        raise StaleBatch(
            f"{key} was committed before batch {told.last_batch_id}, and comes again: the checkpoint is an old copy, "
            "or the query began anew under the same name. Start with a new checkpoint (in foreachBatch: under "
            "another application id)"
        )
    return told.is_committed


def is_replay(link: Link, key: BatchKey, *, in_order: bool) -> bool:
    """Whether a batch must not be written again, for the task that would write it."""
    if not is_committed(link, key, in_order=in_order):
        return False
    COUNTS.batches_skipped += 1
    # Seen without any set-up of the workers' logging: a crash was survived, and this is how.
    _logger.warning("%s is committed already: skipped", key)
    return True


class Slot:
    """One task's transaction."""

    def __init__(
        self,
        link: Link,
        key: BatchKey,
        *,
        number: int,
        attempt: int,
        options: WriteOptions,
        clock: Clock,
        chance: Random,
    ) -> None:
        self.transactional_id = key.slot(number)
        self._link = link
        self._key = key
        self._attempt = attempt
        self.has_fenced = False
        """Whether an earlier attempt's transaction was open."""
        settings: ProducerSettings = replace(
            options.producer,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
        )
        self.producer = Producer(link.cluster, settings, clock=clock, chance=chance, borrows_connections=True)

    def begin(self) -> None:
        """Open the transaction; whatever an earlier attempt has left open in this slot is aborted by that."""
        # Looked at only where something may have been left: each look is a question.
        if self._attempt or self.transactional_id not in _SEEN:
            before = run_now(queries(self._link).describe_transaction(self.transactional_id))
            self.has_fenced = before is not None and before.state == ONGOING
        self.producer.begin()
        _SEEN.pop(self.transactional_id, None)
        _SEEN[self.transactional_id] = None
        if len(_SEEN) > SEEN_MAX:
            del _SEEN[next(iter(_SEEN))]
        if self.has_fenced:
            COUNTS.attempts_fenced += 1
            _logger.warning(
                "%s: an earlier attempt had left a transaction open in slot %s: fenced",
                self._key,
                self.transactional_id,
            )

    def detach(self) -> OpenTransaction | None:
        """Send what is left, and leave the transaction to the driver."""
        return self.producer.detach()

    def abandon(self) -> None:
        """The task has failed: nothing of it shall count. As well as it can be done now; a new attempt fences it."""
        try:
            self.producer.close()
        except OttlaError as e:
            _logger.warning("%s: slot %s could not be closed: %s", self._key, self.transactional_id, e)


# --- the driver's side ---------------------------------------------------------------------------------


def commit(link: Link, key: BatchKey, transactions: Sequence[OpenTransaction], *, insist_ms: int) -> None:
    """Make all of a batch count, or raise. Nothing is undone here: see `abort`."""
    asked = queries(link)
    try:
        is_repeated = _insist(
            link, lambda: run_now(asked.commit_together(*key, transactions)), insist_ms=insist_ms, key=key
        )
    except Refusal as e:
        if link.cluster.may_pass(e):
            raise
        advice = LOST_SLOT if e.code in FENCED | ASTRAY else ""
        raise NotCommitted(f"{key} was not committed: {e}. {advice}Nothing of the batch counts") from e
    if is_repeated:
        # Committed by an earlier run of the query, while some tasks of this one were writing: theirs must not count.
        _logger.warning("%s had been committed already; what may still be open of it is dropped", key)
        for each in transactions:
            _drop_own(asked, each)
        # If it was a later run, that one is at work now: what is open in other slots is not for us to sweep.
        _SWEPT[link.cluster] = key.query_id


def sweep(link: Link, key: BatchKey) -> None:
    """Drop what earlier runs of a query have left open in slots that this one has no task for, once in each process.

    For the driver, when a batch is committed: no task of the query is at work then, so whatever is open is nobody's. A
    new attempt fences its own slot only, and a run with fewer tasks than the last would leave the others to their time.
    """
    if _SWEPT.get(link.cluster) == key.query_id:
        return
    asked = queries(link)
    try:
        listed = run_now(asked.open_slots(key.query_id))
        for slot in listed:
            run_now(asked.abort_transaction(slot))
            COUNTS.transactions_aborted += 1
            _logger.warning("%s: an earlier run had left a transaction open in slot %s: aborted", key, slot)
    except OttlaError as e:
        # Its time will be over.
        _logger.warning("%s: what earlier runs may have left open could not be dropped now: %s", key, e)
        return
    _SWEPT[link.cluster] = key.query_id


def abort(link: Link, key: BatchKey, *, tasks: int, is_final: bool) -> None:
    """End whatever is open in the slots of a batch that failed, unless the batch is committed after all.

    Spark does not wait for tasks that it kills. So every slot is taken over, whether or not something is open in it: a
    task that is still at work finds itself fenced. Where the batch is never written again (`is_final`), its key is used
    up as well, by a commit of nothing: a task that begins only now takes the batch for a replay.
    """
    asked = queries(link)
    if is_final:
        is_committed = run_now(asked.commit_together(*key, ()))
    else:
        is_committed = run_now(asked.commit_of(key)).is_committed
    if is_committed:
        _logger.warning("%s: Spark gives it up, but it is committed, and stays so", key)
        return
    for number in range(tasks):
        _take_over(asked, key.slot(number))


def _drop_own(asked: Queries, transaction: OpenTransaction) -> None:
    """Abort a transaction if it is still the one that is open: by now its slot may be that of a later run's task."""
    try:
        found = run_now(asked.describe_transaction(transaction.transactional_id))
    except OttlaError as e:
        _logger.warning("%s was not asked whether it has something open: %s", transaction.transactional_id, e)
        return
    mine = (ONGOING, transaction.producer_id, transaction.producer_epoch)
    if found is not None and (found.state, found.producer_id, found.producer_epoch) == mine:
        _take_over(asked, transaction.transactional_id)


def _take_over(asked: Queries, slot: str) -> None:
    try:
        before = run_now(asked.abort_transaction(slot))
        COUNTS.transactions_aborted += before.state == ONGOING
    except OttlaError as e:
        if isinstance(e, Refusal) and e.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            # Its task did not come so far.
            return
        # Its time will be over, or the next attempt in this slot fences it.
        _logger.warning("the transaction of %s could not be aborted now: %s", slot, e)


def _insist(link: Link, attempt: Callable[[], T], *, insist_ms: int, key: BatchKey) -> T:
    """Ask again while the answer is not known: a broker that restarts comes back, and a key is committed only once."""
    deadline_ms = link.cluster.ticks.now_ms() + insist_ms
    while True:
        try:
            return attempt()
        except OttlaError as e:
            is_unknown = isinstance(e, CommitUncertain) or link.cluster.may_pass(e)
            if not is_unknown or link.cluster.ticks.now_ms() >= deadline_ms:
                raise
            _logger.warning("%s: the commit was not answered (%s); asking again", key, e)
        run_now(link.transport.sleep(link.cluster.settings.retry_backoff_max_ms))

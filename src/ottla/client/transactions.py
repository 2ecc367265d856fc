"""A producer's transactions: who it is, which one is open, what is part of it, and how it ends.

Coroutines that await the transport alone, so the same code serves both faces; see `transport`. Records are `sending`'s
business: it asks whether a partition is part of the transaction, and tells what went wrong. What is asked for and not
answered is remembered before it is sent, so that a call that was broken off leaves nothing in doubt that is not said.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from ottla.client.accumulator import NOBODY, Batch, Identity
from ottla.client.cluster import UNANSWERED, Cluster
from ottla.client.commits import NOBODY as NO_MEMBER
from ottla.client.coordinator import TRANSACTION_KEY, Coordinator
from ottla.client.errors import (
    CommitFailed,
    CommitUncertain,
    ProducerFenced,
    TransactionFailed,
    Unreachable,
    UnsupportedVersion,
)
from ottla.client.errors_by_code import error_for
from ottla.client.group_commits import CHANGING, GONE, OUT, put_out
from ottla.client.group_member import GroupMember
from ottla.client.settings import ProducerSettings
from ottla.client.transaction_requests import add_group, add_partitions, describe, end, init_producer, store_offsets
from ottla.client.values import Committed, OpenTransaction, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidTransactionState, OttlaError, Refusal
from ottla.protocol.api_keys import ApiKey

FEATURE = "transaction.version"
IMPLICIT_SINCE = 2
"""The version of transactions in which whatever is sent becomes part of them, and each has an epoch of its own."""
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Our epoch is not the present one: the transaction took too long, or somebody else has taken the id."""
ONGOING = "Ongoing"
ABORTED = frozenset({"PrepareEpochFence", "PrepareAbort", "CompleteAbort"})
"""States of transactions as they are described."""
ASTRAY = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The coordinator's idea of the transaction is not ours: only a new epoch leads out of that."""
NOT_DECIDED = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Answers that may pass and after which the transaction is known not to have been ended by that request."""

_logger = logging.getLogger(__name__)


class Stage(Enum):
    """How far the producer is."""

    NEW = "new"
    """Nobody knows it yet."""
    READY = "ready"
    OPEN = "open"
    UNCERTAIN = "uncertain"
    """A commit was asked for; until it is answered it may stand or not."""
    UNFINISHED = "unfinished"
    """An abort was asked for, or is due."""
    OVER = "over"


class Transactions:
    """One transactional producer as its coordinator sees it. Everything but `gate` is called by one at a time."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        assert settings.transactional_id is not None, "made for a transactional id"
        self._cluster = cluster
        self._settings = settings
        self._coordinator = Coordinator(cluster, settings.transactional_id, key_type=TRANSACTION_KEY)
        self._group_coordinators: dict[str, Coordinator] = {}
        self._stage = Stage.NEW
        self._why_over = ""
        self._is_taking = False
        """Whether records may become part of the transaction."""
        self._is_begun = False
        """Whether the brokers may know of the transaction."""
        self._in_doubt = False
        """Whether a commit that was asked for may stand although nobody said so."""
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._has_unknown_numbers = False
        """Whether a batch was given up of which nobody knows if it was written, so that its number cannot be reused."""
        self.failure: Exception | None = None
        """What has spoiled the transaction: it can only be aborted."""
        self.identity = NOBODY
        self.is_implicit = False

    @property
    def transactional_id(self) -> str:
        return self._coordinator.group

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that has to be ended."""
        return self._stage is Stage.OPEN

    # --- what comes in -------------------------------------------------------------------------------

    def gate(self) -> Exception | None:
        """Why no record may come in now, if that is so; for any thread."""
        if self._stage is Stage.OVER:
            return ProducerFenced(self._why_over)
        if self.failure is not None and self._stage is Stage.OPEN:
            return spoiled(self.failure)
        if not self._is_taking:
            return InvalidTransactionState(
                f"{self._coordinator.about}: no transaction is open; send inside `with producer.transaction():`"
            )
        return None

    def stop_taking(self) -> None:
        """The transaction is about to end: from now on no record may come in."""
        if self._stage is Stage.OVER:
            raise ProducerFenced(self._why_over)
        if self._stage not in (Stage.OPEN, Stage.UNCERTAIN, Stage.UNFINISHED):
            raise InvalidTransactionState(f"{self._coordinator.about}: no transaction is open")
        self._is_taking = False

    def spoil(self, error: Exception) -> Exception:
        """Something in the transaction has failed for good; returns the error as the user shall see it."""
        if isinstance(error, Refusal) and error.code in FENCED:
            error = self._cut_off(error)
        if self.failure is None:
            self.failure = error
        return error

    def dropped(self, batches: Iterable[Batch]) -> None:
        """These will not be sent, although they may have been."""
        if any(batch.uncertain for batch in batches):
            self._has_unknown_numbers = True

    def _cut_off(self, error: Refusal) -> TransactionFailed:
        """Ended over our head. Only the abort tells by whom."""
        made = TransactionFailed(
            f"{self._coordinator.about}: the transaction is over ({error.code.name}): it took longer than "
            f"{self._timeout} and was aborted, or another producer has taken over. Abort it to find out"
        )
        made.__cause__ = error
        return made

    def _timed_out(self, error: BaseException | None) -> TransactionFailed:
        made = TransactionFailed(
            f"{self._coordinator.about}: the transaction took longer than {self._timeout} and was aborted: nothing of "
            "it counts, and the next one may begin"
        )
        made.__cause__ = error
        return made

    @property
    def _timeout(self) -> str:
        return f"transaction_timeout_ms={self._settings.transaction_timeout_ms}"

    def _over(self, error: Refusal, *, can_tell: bool = True) -> ProducerFenced:
        """`can_tell`: whether a producer that was only too slow would not have been refused."""
        self._stage, self._is_taking = Stage.OVER, False
        reason = "another one has taken over" if can_tell else f"another one has taken over, or {self._timeout} is over"
        self._why_over = (
            f"{self._coordinator.about}: this producer is fenced ({error.code.name}): {reason}; "
            "it cannot be used any more"
        )
        fenced = ProducerFenced(self._why_over)
        fenced.__cause__ = error
        return fenced

    # --- the beginning -------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Open a transaction, after introducing the producer and ending what was left unfinished."""
        if self._stage is Stage.OVER:
            raise ProducerFenced(self._why_over)
        if self._stage is Stage.OPEN:
            raise InvalidTransactionState(f"{self._coordinator.about}: a transaction is open; commit or abort it first")
        if self._stage is Stage.UNCERTAIN:
            await self.commit()
            _logger.warning("%s: the commit whose answer was lost stands", self._coordinator.about)
        elif self._stage is Stage.UNFINISHED:
            await self.abort()
        elif self._stage is Stage.NEW:
            self.identity = await self._init(NOBODY, self._deadline_ms())
        self.is_implicit = self._cluster.feature(FEATURE) >= IMPLICIT_SINCE
        self._partitions.clear()
        self._groups.clear()
        self._stage, self._is_taking, self._is_begun = Stage.OPEN, True, False
        self._in_doubt = False

    async def _init(self, resumed: Identity, deadline_ms: int, *, can_tell: bool = True) -> Identity:
        timeout_ms = self._settings.transaction_timeout_ms
        try:
            return await self._coordinator.insist(
                lambda: init_producer(self._coordinator, timeout_ms=timeout_ms, resumed=resumed),
                deadline_ms=deadline_ms,
            )
        except Refusal as e:
            if e.code in FENCED:
                raise self._over(e, can_tell=can_tell) from e
            raise

    async def _resume(self, refusal: Refusal, deadline_ms: int) -> Identity:
        """Go on under the next epoch if the coordinator has ended the transaction by itself; if not, it is over.

        In the first version it refuses whoever was too slow just as it refuses whoever was replaced; the difference is
        that the former may name its old epoch once more (Apache Kafka allows even that in its second version only). It
        is done after a look: with Kafka, a producer that was replaced would abort its successor's open transaction by
        it, although it is refused.
        """
        if self.is_implicit:
            raise self._over(refusal) from refusal
        try:
            present = await self._coordinator.insist(lambda: describe(self._coordinator), deadline_ms=deadline_ms)
            if present is not None and (
                present.producer_id != self.identity.producer_id
                or present.producer_epoch > self.identity.epoch + 1
                or present.transaction_state == ONGOING
            ):
                raise self._over(refusal) from refusal
            was_aborted = present is not None and present.transaction_state in ABORTED
            return await self._init(self.identity, deadline_ms, can_tell=not was_aborted)
        except UnsupportedVersion:
            raise self._over(refusal, can_tell=False) from refusal

    def _deadline_ms(self) -> int:
        return self._cluster.ticks.now_ms() + self._settings.delivery_timeout_ms

    # --- what is part of it --------------------------------------------------------------------------

    def holds(self, key: TopicPartition) -> bool:
        """Whether a partition can be written to without telling the coordinator first."""
        return self.is_implicit or key in self._partitions

    def sends(self) -> None:
        """Something is about to leave, of which the brokers may make a transaction."""
        self._is_begun = True

    async def add(self, partitions: Collection[TopicPartition]) -> None:
        """Tell the coordinator, once, what will be written to."""
        self._is_begun = True
        try:
            await add_partitions(self._coordinator, self.identity, partitions)
        except OttlaError as e:
            self._coordinator.failed(e)
            raise
        self._partitions.update(partitions)

    async def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed], member: GroupMember | None
    ) -> None:
        """Store how far a group has read, if the transaction is committed; a failure spoils the transaction."""
        refusal = self.gate()
        if refusal is not None:
            raise refusal
        if not offsets:
            return
        coordinator = self._group_coordinators.setdefault(group, Coordinator(self._cluster, group))
        self._is_begun = True
        try:
            await self._add_group(group)
            await coordinator.insist(
                lambda: self._store(coordinator, offsets, member), deadline_ms=self._deadline_ms(), also=CHANGING
            )
        except OttlaError as e:
            judged = self.spoil(e)
            if judged is e:
                raise
            raise judged from e

    async def _add_group(self, group: str) -> None:
        if self.is_implicit or group in self._groups:
            return
        await self._coordinator.insist(
            lambda: add_group(self._coordinator, self.identity, group), deadline_ms=self._deadline_ms()
        )
        self._groups.add(group)

    async def _store(
        self, coordinator: Coordinator, offsets: Mapping[TopicPartition, Committed], member: GroupMember | None
    ) -> None:
        """One attempt, under the number that the member has now."""
        identity = NO_MEMBER if member is None else member.identity
        if member is not None and member.is_subscribed and identity == NO_MEMBER:
            raise CommitFailed(f"{coordinator.about}: not a member at present; the records are read again")
        try:
            await store_offsets(
                coordinator, self.transactional_id, self.identity, offsets, identity, implicit=self.is_implicit
            )
        except Refusal as e:
            if e.code in GONE:
                raise CommitFailed(f"{coordinator.about}: {e}") from e
            if e.code not in OUT:
                raise
            if member is not None and member.is_renumbered and e.code is ErrorCode.ILLEGAL_GENERATION:
                # Its epoch has gone up, and the keeper is about to hear of it, or of worse.
                raise error_for(ErrorCode.STALE_MEMBER_EPOCH, about=coordinator.about) from e
            raise put_out(e, coordinator, member, identity) from e

    # --- the end -------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Decide for it. Everything that was sent must have been settled; after a failure it is aborted instead."""
        if self._stage is not Stage.UNCERTAIN:
            self._require_open()
            if self.failure is not None:
                await self._abort_and_raise(self.failure)
            if not self._is_begun:
                self._ended(self.identity)
                return
        self._stage = Stage.UNCERTAIN
        try:
            identity = await self._insist_on_commit()
        except Refusal as e:
            await self._not_committed(e)
        except OttlaError as e:
            raise self._uncertain(e) from e
        else:
            self._ended(identity)

    async def _insist_on_commit(self) -> Identity:
        deadline_ms = self._deadline_ms()
        for tries in itertools.count(1):
            was_in_doubt = self._in_doubt
            try:
                # Somebody is there, so that whatever fails from here on may have arrived.
                await self._coordinator.version(ApiKey.END_TXN)
                self._in_doubt = True
                return await end(self._coordinator, self.identity, committed=True, implicit=self.is_implicit)
            except OttlaError as e:
                self._in_doubt = was_in_doubt or (self._in_doubt and leaves_doubt(e))
                delay_ms = self._cluster.settings.backoff_after_ms(e, tries)
                may_pass = self._coordinator.failed(e)
                if not may_pass or self._cluster.ticks.now_ms() + delay_ms >= deadline_ms:
                    raise
                _logger.debug("%s: commit: %s; trying again", self._coordinator.about, e)
            await self._cluster.transport.sleep(delay_ms)
        raise AssertionError("unreachable")

    async def _not_committed(self, error: Refusal) -> None:
        """The last word on a commit was a refusal: finds out what can be said about it, and raises that."""
        is_closed = self.is_implicit and error.code is ErrorCode.INVALID_TXN_STATE
        if is_closed:
            # A commit that had been carried out would have been confirmed, so it was aborted, and not by us.
            self._in_doubt = False
        if not self._in_doubt:
            self._stage = Stage.OPEN
            await self._abort_and_raise(self.spoil(self._timed_out(error) if is_closed else error))
        if error.code in FENCED:
            await self._find_out(error)
        if not self._cluster.may_pass(error):
            # Asking again would bring the same; what is left of it is cleared away before the next one begins.
            self._stage = Stage.UNFINISHED
        raise self._uncertain(error) from error

    async def _find_out(self, error: Refusal) -> None:
        """A commit may stand, and our epoch is not the present one: raises what can be said then.

        If nobody has taken over, the transaction was still open when its time was over.
        """
        try:
            self._ended(await self._resume(error, self._deadline_ms()))
        except OttlaError as e:
            raise self._uncertain(e) from e
        raise self._timed_out(error)

    def _uncertain(self, error: OttlaError) -> CommitUncertain:
        return CommitUncertain(
            f"{self._coordinator.about}: the outcome of the commit is not known: it may or may not stand; last: {error}"
        )

    async def _abort_and_raise(self, error: Exception) -> None:
        """The transaction cannot be committed; an abort that is not answered now is made up for by the next begin."""
        try:
            await self.abort(time_ms=self._cluster.settings.request_timeout_ms)
            if is_cut_off(error):
                # Whoever was replaced would have heard so.
                error = self._timed_out(error.__cause__)
            else:
                error.add_note("the transaction was aborted")
        except ProducerFenced as e:
            raise e from error
        except OttlaError as e:
            error.add_note(f"the transaction will not be committed, but could not be aborted yet: {e}")
        raise error

    async def abort(self, *, time_ms: int | None = None) -> None:
        """Decide against it, within so much time. Nothing may be under way; what waited has been dropped."""
        if self._stage is not Stage.UNFINISHED:
            self._require_open()
        self._is_taking = False
        if not self._is_begun:
            self._ended(self.identity)
            return
        self._stage = Stage.UNFINISHED
        deadline_ms = self._deadline_ms() if time_ms is None else self._cluster.ticks.now_ms() + time_ms
        try:
            identity = await self._coordinator.insist(
                lambda: end(self._coordinator, self.identity, committed=False, implicit=self.is_implicit),
                deadline_ms=deadline_ms,
            )
            is_astray = self._has_unknown_numbers or self.failure is not None
        except Refusal as e:
            if e.code in FENCED:
                identity, is_astray = await self._resume(e, deadline_ms), False
            elif e.code in ASTRAY:
                identity, is_astray = self.identity, True
            else:
                raise
        if is_astray and identity == self.identity:
            # Version 1 goes on with the same epoch, in which numbers may have been used that we know nothing of.
            identity = await self._init(self.identity, deadline_ms)
        if self.failure is not None and is_cut_off(self.failure):
            self.failure.add_note("it had taken too long and was aborted; the next one may begin")
        self._ended(identity)

    def _require_open(self) -> None:
        if self._stage is Stage.OVER:
            raise ProducerFenced(self._why_over)
        if self._stage is Stage.UNCERTAIN:
            raise CommitUncertain(
                f"{self._coordinator.about}: a commit was asked for and not answered; commit again to find out"
            )
        if self._stage is not Stage.OPEN:
            raise InvalidTransactionState(f"{self._coordinator.about}: no transaction is open")

    def _ended(self, identity: Identity) -> None:
        self.identity = identity
        self.failure = None
        self._has_unknown_numbers = self._in_doubt = False
        self._stage, self._is_taking = Stage.READY, False

    def leave_open(self) -> OpenTransaction | None:
        """Let somebody else end it. None: nothing was sent, so there is none."""
        self._require_open()
        assert self.failure is None, "a transaction that has failed is aborted"
        was_begun = self._is_begun
        self._ended(self.identity)
        if not was_begun:
            return None
        return OpenTransaction(self.transactional_id, self.identity.producer_id, self.identity.epoch)


def transactional(transactions: Transactions | None) -> Transactions:
    """A producer's transactions, if it has them."""
    if transactions is None:
        raise InvalidTransactionState("transactions need a producer that was made with transactional_id=")
    return transactions


def spoiled(failure: Exception) -> TransactionFailed:
    """What whoever sends, or has sent, within a transaction is told after something of it has failed."""
    said = str(failure) if is_cut_off(failure) else f"the transaction can only be aborted: {failure}"
    made = TransactionFailed(said)
    made.__cause__ = failure
    return made


def is_cut_off(failure: BaseException) -> bool:
    """Whether a transaction failed because its epoch was not the present one any more."""
    cause = failure.__cause__
    return isinstance(failure, TransactionFailed) and isinstance(cause, Refusal) and cause.code in FENCED


def leaves_doubt(error: OttlaError) -> bool:
    """Whether the commit may have been decided by the request that failed so."""
    if isinstance(error, Unreachable):
        return False
    if isinstance(error, UNANSWERED) or not isinstance(error, Refusal):
        return True
    return error.code.retriable and error.code not in NOT_DECIDED

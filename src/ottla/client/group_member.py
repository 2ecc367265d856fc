"""A member of a group: what the broker was told, what it decided, and what the reader has to do about it.

Two sides share one. The *keeper* (see `group_keeper`) runs beside the user and calls `step`: it joins, sends
heartbeats and leaves. The *reader* (see `group_reading`) acts only inside the user's own calls: it gives partitions
up and takes them over when `next_change` says so, since commits and callbacks come with that. The sides meet under
one lock, which is never held while anybody waits. The two protocols are in `group_member_classic` and
`group_member_consumer`.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ottla.client.background import Signal
from ottla.client.commits import NOBODY, Identity
from ottla.client.coordinator import Coordinator
from ottla.client.errors_by_code import error_for
from ottla.client.settings import ConsumerSettings
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal

Partitions = frozenset[TopicPartition]
NONE: Partitions = frozenset()

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants to read."""

    topics: frozenset[str]
    pattern: str | None = None


class Kind(Enum):
    """What becomes of partitions in a change."""

    ADOPT = "adopt"
    """They are ours from now on."""
    REVOKE = "revoke"
    """They go to somebody else once we have let go; until then they are ours."""
    LOSE = "lose"
    """They have gone already: nothing about them can be committed any more."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that the reader has to do."""

    kind: Kind
    partitions: Partitions


class GroupMember(ABC):
    """What both protocols share."""

    is_renumbered: ClassVar[bool] = False
    """Whether its number goes up while it stays a member, without its doing."""

    def __init__(self, coordinator: Coordinator, settings: ConsumerSettings, *, news: Signal, wake: Signal) -> None:
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self._settings = settings
        self._news = news
        """Set when the reader has something to do."""
        self._wake = wake
        """Set when the keeper has something to do."""
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._owned = NONE
        """What the reader reads, or is just giving up."""
        self._target: Partitions | None = None
        """What it shall read; None while nothing has been decided."""
        self._adopted = True
        """Whether the reader knows of the target."""
        self._lost = False
        """Whether what is owned is ours no more."""
        self._give_up = False
        """Whether all has to be given up before the next join."""
        self.releases = 0
        """How often partitions were let go of; a commit that was wanted before that might undo another member's."""
        self._error: OttlaError | None = None
        self._identity = NOBODY
        self.is_leaving = False
        """Whether a good-bye is due or under way: until it is over nothing that the group says concerns the reader."""
        self._asleep = False
        """Left because nobody polled; the next poll joins again."""
        self._last_poll_ms = self._cluster.ticks.now_ms()
        self._attempts = 0
        self.is_joining = False
        """Whether the member's number in the group is about to change."""
        self.is_parked = False
        """Whether the keeper waits for an answer that may take as long as a rebalance."""

    # --- the reader's side ---------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription | None) -> None:
        """Want these topics from now on; None: leave the group."""
        with self._lock:
            self._subscription = subscription
            self._error = None
            self._last_poll_ms = self._cluster.ticks.now_ms()
            self._asleep = False
            if subscription is None:
                # Whoever leaves on purpose has let go of everything. The group has to hear of it even if the next
                # subscription comes at once: it would go on believing that we read what it has given us.
                self._owned, self._target, self._adopted = NONE, None, True
                self._lost = self._give_up = False
                self.is_leaving = True
                self.releases += 1
            self._subscription_changed()
        self._wake.set()

    def polled(self) -> None:
        """The user has polled, so the member is alive and well."""
        was_asleep, self._asleep = self._asleep, False
        self._last_poll_ms = self._cluster.ticks.now_ms()
        if was_asleep:
            self._wake.set()

    @property
    def is_subscribed(self) -> bool:
        """Whether the reader wants to be a member."""
        return self._subscription is not None

    @property
    def identity(self) -> Identity:
        """Who commits."""
        return self._identity

    def next_change(self) -> Change | None:
        """What has to be done next, to be reported by `settled`; raises what keeps the member out of its group.

        Partitions that are adopted belong to the reader from this call on, so the keeper cannot join without them.
        """
        with self._lock:
            if self._error is not None:
                raise self._taken_error()
            if self.is_leaving:
                return None
            if self._lost:
                return Change(Kind.LOSE, self._owned)
            if self._give_up:
                return Change(Kind.REVOKE, self._owned)
            if self._target is None:
                return None
            gone = self._owned - self._target
            if gone:
                return Change(Kind.REVOKE, gone)
            if self._adopted:
                return None
            new = self._target - self._owned
            self._owned, self._adopted = self._target, True
            return Change(Kind.ADOPT, new)

    def _taken_error(self) -> OttlaError:
        error = self._error
        assert error is not None, "just looked at"
        if not (isinstance(error, Refusal) and error.code is ErrorCode.FENCED_INSTANCE_ID):
            # The next attempt may do better. Whoever was replaced must not come back and replace the other.
            self._error = None
            self._wake.set()
        return error

    def settled(self, change: Change) -> None:
        """The reader has done it."""
        with self._lock:
            if change.kind is not Kind.ADOPT:
                self.releases += 1
            if change.kind is Kind.LOSE:
                self._owned, self._lost, self._give_up = NONE, False, False
            elif change.kind is Kind.REVOKE:
                self._owned -= change.partitions
                if not self._owned:
                    self._give_up = False
            self._change_settled(change)
        self._wake.set()

    def fenced(self, code: ErrorCode, identity: Identity) -> None:
        """A commit was refused because this member is not what it was."""
        with self._lock:
            if identity == self._identity:
                self._out(code)
        self._wake.set()

    @property
    def owned(self) -> Partitions:
        return self._owned

    @abstractmethod
    def look_at_topics(self) -> None:
        """A topic has changed: find out whether that concerns the group."""

    # --- the keeper's side ---------------------------------------------------------------------------

    async def step(self) -> int | None:
        """Do what is due; returns in how many milliseconds more will be, or None: when woken."""
        try:
            if self.is_leaving:
                await self.leave()
            if self._subscription is None:
                return None
            if self._error is not None:
                return None
            overdue_ms = self._last_poll_ms + self._settings.poll_interval_max_ms - self._cluster.ticks.now_ms()
            if overdue_ms <= 0 and not self._asleep:
                await self._fall_asleep()
            if self._asleep:
                return None
            due_ms = await self._advance()
            self._attempts = 0
        except OttlaError as e:
            return self._failed(e)
        return overdue_ms if due_ms is None else max(0, min(due_ms, overdue_ms))

    def _failed(self, error: OttlaError) -> int | None:
        if self._coordinator.failed(error):
            self._attempts += 1
            _logger.debug("group %s: %s; trying again", self._coordinator.group, error)
            return self._cluster.settings.backoff_ms(self._attempts)
        with self._lock:
            self._error = error
        self._news.set()
        return None

    async def _fall_asleep(self) -> None:
        _logger.warning(
            "group %s: no poll for %d ms (poll_interval_max_ms); leaving until the next one",
            self._coordinator.group,
            self._settings.poll_interval_max_ms,
        )
        self._asleep = True
        await self.leave()

    async def leave(self) -> None:
        """Tell the group good-bye, if there is one to tell; whatever was owned is lost."""
        identity = self._identity
        with self._lock:
            self._out(None)
        try:
            await self._say_goodbye(identity, self._coordinator)
        except OttlaError as e:
            # The group finds out when the session ends.
            self._coordinator.failed(e)
            _logger.info("group %s: could not say good-bye: %s", self._coordinator.group, e)
        self.is_leaving = False

    async def unpark(self, coordinator: Coordinator) -> None:
        """Leave over other connections, so that an answer that is waited for comes at once."""
        await self._say_goodbye(self._identity, coordinator)

    def _out(self, code: ErrorCode | None) -> None:
        """Not a member any more (with the lock held)."""
        if code is not None and self._owned:
            _logger.warning("group %s: not a member any more: %s", self._coordinator.group, code.name)
        self._identity = NOBODY
        self._target = None
        self._adopted = True
        self._lost = bool(self._owned)
        self._give_up = False
        self._news.set()

    def _decided(self, target: Partitions) -> None:
        """The group has decided what we shall read (with the lock held)."""
        self._target, self._adopted = target, False
        self._news.set()

    def _refused(self, code: int, about: str, message: str | None = None) -> Refusal:
        return error_for(code, about=f"group {self._coordinator.group!r}: {about}", message=message)

    # --- what the protocols differ in ----------------------------------------------------------------

    @abstractmethod
    def _subscription_changed(self) -> None:
        """With the lock held."""

    @abstractmethod
    def _change_settled(self, change: Change) -> None:
        """With the lock held."""

    @abstractmethod
    async def _advance(self) -> int | None:
        """Join, or stay; returns in how many milliseconds something will be due."""

    @abstractmethod
    async def _say_goodbye(self, identity: Identity, coordinator: Coordinator) -> None:
        """One request; none if the group cannot know us."""


NewMember = Callable[[Coordinator, ConsumerSettings, Signal, Signal], GroupMember]

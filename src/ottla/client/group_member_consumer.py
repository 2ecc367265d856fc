"""A member of a consumer group (KIP-848): one kind of heartbeat joins, stays, reports and leaves.

The broker shares partitions out. It tells each member what to read, the reader lets go and takes over, and the next
heartbeat says what is owned now, so that the others can have what was let go.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from ottla.client.background import Signal
from ottla.client.commits import NOBODY, Identity
from ottla.client.coordinator import Coordinator
from ottla.client.errors import UnsupportedVersion
from ottla.client.group_member import Change, GroupMember, Subscription
from ottla.client.settings import ConsumerSettings
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""A static member that will be back."""
OWN_ID_SINCE = 1
"""From this version on members make up their own ids, and patterns are known."""
NO_PATTERN = ""
OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})

Owned = frozenset[tuple[bytes, int]]
"""Partitions by topic id: a topic that was created anew is another one, although its name is the same."""

_logger = logging.getLogger(__name__)


class ConsumerMember(GroupMember):
    """One member."""

    is_renumbered: ClassVar[bool] = True

    def __init__(
        self, coordinator: Coordinator, settings: ConsumerSettings, *, member_id: str, news: Signal, wake: Signal
    ) -> None:
        super().__init__(coordinator, settings, news=news, wake=wake)
        self._member_id = member_id
        self._epoch = JOIN_EPOCH
        self._is_new_subscription = True
        self._reported: Owned | None = frozenset()
        """What the last heartbeat said we own; None: nobody knows which of the last ones arrived."""
        self._has_told_pattern = False
        self._assigned: dict[bytes, tuple[int, ...]] | None = None
        """What the broker told us to read, by topic id, while some of it has no name yet."""
        self._next_beat_ms = 0
        self._interval_ms = settings.heartbeat_interval_ms
        self._has_warned = False

    # --- the reader's side ---------------------------------------------------------------------------

    def look_at_topics(self) -> None:
        """The broker watches the topics itself."""

    def _subscription_changed(self) -> None:
        self._is_new_subscription = True

    def _change_settled(self, change: Change) -> None:
        """The keeper finds that what is owned differs from what was reported."""

    # --- the keeper's side ---------------------------------------------------------------------------

    async def _advance(self) -> int | None:
        if self._lost:
            # The reader has to let go first; it wakes us.
            return None
        if self._assigned is not None:
            await self._name_partitions()
        now_ms = self._cluster.ticks.now_ms()
        if now_ms >= self._next_beat_ms or self._has_news():
            await self._beat()
        return max(0, self._next_beat_ms - self._cluster.ticks.now_ms())

    def _has_news(self) -> bool:
        """Whether the broker should hear something now, and not only at the next heartbeat."""
        with self._lock:
            if self._is_new_subscription:
                return True
            # While the reader is between two sets of partitions there is nothing to report yet.
            is_settled = self._adopted and (self._target is None or self._owned == self._target)
            return is_settled and self._owned_now() != self._reported

    def _owned_now(self) -> Owned:
        views = self._cluster.topology.topics
        return frozenset((bytes(views[key.topic].topic_id), key.partition) for key in self._owned if key.topic in views)

    async def _beat(self) -> None:
        if await self._coordinator.version(ApiKey.CONSUMER_GROUP_HEARTBEAT) < OWN_ID_SINCE:
            raise UnsupportedVersion('this broker is too old for protocol="consumer"; protocol="classic" works')
        with self._lock:
            subscription, owned = self._subscription, self._owned_now()
            if subscription is None:
                return
            request = self._heartbeat(subscription, owned)
            is_news, self._is_new_subscription = self._is_new_subscription, False
        try:
            response = await self._coordinator.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse
            )
        except BaseException:
            # It may have arrived or not, so the next one says everything again.
            self._is_new_subscription, self._reported = True, None
            raise
        if response.error_code:
            self._is_new_subscription = self._is_new_subscription or is_news
            self._answered_badly(response, request)
            return
        self._has_warned = False
        if request.topic_partitions is not None:
            self._reported = frozenset() if request.member_epoch == JOIN_EPOCH else owned
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        self._next_beat_ms = self._cluster.ticks.now_ms() + self._interval_ms
        with self._lock:
            self._epoch = response.member_epoch
            self._identity = Identity(self._member_id, self._epoch, self._settings.group_instance_id)
        if response.assignment is not None:
            told = response.assignment.topic_partitions
            self._assigned = {bytes(each.topic_id): tuple(each.partitions) for each in told}
            await self._name_partitions()

    def _heartbeat(self, subscription: Subscription, owned: Owned) -> ConsumerGroupHeartbeatRequest:
        """What there is to say: all of it at the start and after a loss, later only what has changed."""
        is_joining = self._epoch == JOIN_EPOCH
        says_all = is_joining or self._reported is None
        names: list[str] | None = None
        pattern: str | None = None
        if says_all or self._is_new_subscription:
            names = sorted(subscription.topics)
            # Nothing is said of a pattern that never was; an empty one takes the last one back.
            pattern = subscription.pattern or (NO_PATTERN if self._has_told_pattern and not is_joining else None)
            self._has_told_pattern = self._has_told_pattern or pattern is not None
        reported: list[TopicPartitions] | None = None
        if says_all or owned != self._reported:
            by_id: dict[bytes, list[int]] = {}
            for topic_id, number in sorted(owned) if not is_joining else ():
                by_id.setdefault(topic_id, []).append(number)
            reported = [TopicPartitions(topic_id=each, partitions=numbers) for each, numbers in by_id.items()]
        return ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._settings.group_instance_id,
            rebalance_timeout_ms=self._settings.poll_interval_max_ms if says_all else -1,
            subscribed_topic_names=names,
            subscribed_topic_regex=pattern,
            server_assignor=self._settings.server_assignor if says_all else None,
            topic_partitions=reported,
        )

    def _answered_badly(self, response: ConsumerGroupHeartbeatResponse, request: ConsumerGroupHeartbeatRequest) -> None:
        code = response.error_code
        self._next_beat_ms = self._cluster.ticks.now_ms() + self._interval_ms
        if code in OUT and request.member_epoch > JOIN_EPOCH:
            with self._lock:
                self._out(ErrorCode(code))
            return
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            # The one before us did not say good-bye; its session ends some time.
            if not self._has_warned:
                name = self._settings.group_instance_id
                _logger.warning("group %s: %r is still a member; waiting for it", self._coordinator.group, name)
            self._has_warned = True
            return
        self._is_new_subscription, self._reported = True, None
        if code == ErrorCode.FENCED_INSTANCE_ID:
            with self._lock:
                self._out(ErrorCode(code))
        raise self._refused(code, "heartbeat", response.error_message)

    def _out(self, code: ErrorCode | None) -> None:
        super()._out(code)
        self._epoch = JOIN_EPOCH
        self._reported, self._assigned = frozenset(), None
        self._next_beat_ms = 0

    async def _name_partitions(self) -> None:
        """Turn what we were told into names, as far as they are known; the rest follows with the metadata."""
        told = self._assigned
        if told is None:
            return
        by_id = self._names_by_id()
        if not by_id.keys() >= told.keys():
            subscription = self._subscription
            is_named = subscription is not None and subscription.pattern is None
            await self._cluster.refresh(sorted(subscription.topics) if subscription and is_named else None)
            by_id = self._names_by_id()
        target = frozenset(
            TopicPartition(by_id[topic_id], number)
            for topic_id, numbers in told.items()
            if topic_id in by_id
            for number in numbers
        )
        if by_id.keys() >= told.keys():
            self._assigned = None
        with self._lock:
            if self._epoch > JOIN_EPOCH and target != self._target:
                self._decided(target)

    def _names_by_id(self) -> dict[bytes, str]:
        return {bytes(view.topic_id): name for name, view in self._cluster.topology.topics.items()}

    async def _say_goodbye(self, identity: Identity, coordinator: Coordinator) -> None:
        if identity == NOBODY:
            return
        is_static = identity.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=coordinator.group,
            member_id=identity.member_id,
            member_epoch=LEAVE_FOR_A_WHILE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=identity.instance_id,
        )
        await coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)

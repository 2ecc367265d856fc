"""How members leave a consumer group, on their own or because nobody heard of them, and what the group becomes then."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinators.groups.consumer_deadlines import Wait
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import ConsumerMember, MemberState
from ottla.coordinators.groups.consumer_progress import Progress
from ottla.coordinators.groups.consumer_subscriptions import Subscriptions
from ottla.coordinators.groups.conversion import Conversion
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome


class Departures:
    """Lets members go."""

    def __init__(self, progress: Progress, conversion: Conversion, subscriptions: Subscriptions) -> None:
        self._progress = progress
        self._conversion = conversion
        self._subscriptions = subscriptions

    def dismiss(self, group: ConsumerGroup, members: Iterable[ConsumerMember], outcome: Outcome, now_ms: int) -> None:
        """These are gone. Those who stay are a classic group again if none of them speaks the consumer protocol."""
        for member in members:
            self._progress.remove(group, member, outcome)
        if not self.convert_back(group, outcome, now_ms):
            self._progress.raise_epoch_without(group, outcome, now_ms)

    def convert_back(self, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> bool:
        """Make it a classic group again where that is all its members speak; says whether it was done."""
        value = self._conversion.plan_downgrade(group, self._subscriptions.view(), now_ms)
        if value is None:
            return False
        self._conversion.downgrade(group, value, outcome, now_ms)
        return True

    def expect(
        self, group: ConsumerGroup, member: ConsumerMember, outcome: Outcome, now_ms: int, settings: GroupSettings
    ) -> None:
        """After a restart: give the member as long as it ever had."""
        classic = member.facts.classic
        session_ms = settings.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        group.deadlines.set(Wait.SESSION, member.member_id, outcome, at_ms=now_ms + session_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            at_ms = now_ms + max(0, member.facts.rebalance_timeout_ms)
            group.deadlines.set(Wait.REVOCATION, member.member_id, outcome, at_ms=at_ms)

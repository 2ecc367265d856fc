"""How a classic group comes from one generation to the next, and what happens to members that are too slow for it.

    Empty --join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance --leader syncs--> Stable
                           |    ^------ somebody comes, goes, or changes its mind ------'-----------------'
                           '--nobody is left--> Empty

Every request of a member has been checked when it comes here. Session timeouts, the time that a rebalance waits for
members to join and the time that it waits for them to sync are kept here too; each timer is checked against the
deadline in the state, because a decision of the same moment may have moved it.
"""

from __future__ import annotations

import logging

from ottla.coordinators.groups.classic_group import ClassicGroup, GroupState
from ottla.coordinators.groups.classic_member import ClassicMember, JoinCall, session_key
from ottla.coordinators.groups.classic_replies import (
    answer_join,
    answer_sync,
    joined,
    park_join,
    refuse_join,
    refuse_sync,
    synced,
)
from ottla.coordinators.groups.classic_subscription import no_assignment
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.records import GroupMetadataKey
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome
from ottla.error_codes import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long somebody waits for its first generation. It sends no heartbeats meanwhile, and before JoinGroup 4 comes back
as another member if its connection broke, so nothing else would ever remove it."""
ALL_AWAY_WAIT_MS_MIN = 1_000
"""A rebalance timeout of nothing must not make a timer that is due again at once, for ever."""

_logger = logging.getLogger(__name__)


class Rebalances:
    """Moves groups through their states. Holds nothing itself."""

    __slots__ = ("_groups", "_settings")

    def __init__(self, groups: Groups, settings: GroupSettings) -> None:
        self._groups = groups
        self._settings = settings

    # --- into a rebalance -----------------------------------------------------------------------------------

    def take_in(
        self, group: ClassicGroup, member_id: str, call: JoinCall, reason: str, outcome: Outcome, now_ms: int
    ) -> None:
        """Somebody new joins, and waits for the generation that it will be in."""
        if group.state is GroupState.PREPARING_REBALANCE and group.rebalance_is_initial:
            group.member_was_added = True
        member = group.add(member_id, call)
        park_join(group, member, call, outcome)
        member.expect_sign_of_life(outcome, at_ms=now_ms + NEW_MEMBER_TIMEOUT_MS)
        self.begin_or_complete(group, reason, outcome, now_ms)

    def take_back(
        self, group: ClassicGroup, member: ClassicMember, call: JoinCall, reason: str, outcome: Outcome, now_ms: int
    ) -> None:
        """A member joins again, and waits for the next generation."""
        group.update(member, call)
        park_join(group, member, call, outcome)
        self.begin_or_complete(group, reason, outcome, now_ms)

    def begin_or_complete(self, group: ClassicGroup, reason: str, outcome: Outcome, now_ms: int) -> None:
        """Somebody came or went: that begins a rebalance, or is what the one under way has waited for."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(group, outcome, now_ms)
        else:
            self.begin(group, reason, outcome, now_ms)

    def begin(self, group: ClassicGroup, reason: str, outcome: Outcome, now_ms: int) -> None:
        """From now on members are told by their heartbeats to join again."""
        _logger.debug(
            "group %s rebalances from generation %d (%s): %s",
            group.group_id,
            group.generation,
            group.state_name,
            reason,
        )
        for member in group.members.values():
            if refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, outcome):
                # It did not have to send heartbeats while it waited, so its session begins anew.
                member.expect_heartbeat(outcome, now_ms)
        self._forget_sync(group, outcome)
        group.rebalance_is_initial = group.state is GroupState.EMPTY
        group.member_was_added = False
        group.enter(GroupState.PREPARING_REBALANCE, now_ms)
        if group.rebalance_is_initial:
            # Members of a new group start at about the same time: better one generation for all than one for each.
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.initial_deadline_ms = now_ms + max(group.rebalance_timeout_ms, delay_ms)
            self._wait_for_joins(group, outcome, until_ms=now_ms + delay_ms)
        elif group.all_have_joined:
            self._complete(group, outcome, now_ms)
        else:
            self._wait_for_joins(group, outcome, until_ms=now_ms + group.rebalance_timeout_ms)

    def _wait_for_joins(self, group: ClassicGroup, outcome: Outcome, *, until_ms: int) -> None:
        group.join_deadline_ms = until_ms
        outcome.set_timer(group.join_key, at_ms=until_ms)

    def _complete_if_all_joined(self, group: ClassicGroup, outcome: Outcome, now_ms: int) -> None:
        # The initial rebalance always waits for its time: more members may be on their way.
        if not group.rebalance_is_initial and group.all_have_joined:
            self._complete(group, outcome, now_ms)

    # --- out of it ------------------------------------------------------------------------------------------

    def _complete(self, group: ClassicGroup, outcome: Outcome, now_ms: int) -> None:
        """Nobody is waited for any longer: whoever has joined is in the next generation."""
        for member in list(group.members.values()):
            # A static member may be away for as long as its session lasts.
            if member.parked_join is None and not member.is_static:
                _logger.debug(
                    "group %s goes on without %s, which did not join in time", group.group_id, member.member_id
                )
                self.let_go(group, member, outcome)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and all are away: their sessions end, or one of them comes back.
            wait_ms = max(group.rebalance_timeout_ms, ALL_AWAY_WAIT_MS_MIN)
            self._wait_for_joins(group, outcome, until_ms=now_ms + wait_ms)
            return
        group.join_deadline_ms = None
        outcome.cancel_timer(group.join_key)
        group.begin_generation(now_ms)
        if not group.members:
            _logger.debug("group %s is empty since generation %d", group.group_id, group.generation)
            self.record(group, {}, outcome, since_ms=now_ms)
            return
        _logger.debug("group %s has %d members in generation %d", group.group_id, len(group.members), group.generation)
        for member in group.members.values():
            # The session of a static member that is away goes on towards its end.
            if answer_join(group, member, joined(group, member), outcome):
                member.is_new = False
                member.expect_heartbeat(outcome, now_ms)
        self.wait_for_syncs(group, outcome, now_ms)

    def assign(self, group: ClassicGroup, assigned: dict[str, bytes], outcome: Outcome, now_ms: int) -> None:
        """The leader has brought the assignments: record them, and let everybody have its own."""
        nothing = no_assignment(group.protocol_type)
        # An assignment without a byte is none either: consumers would fail to read it.
        complete = {member_id: assigned.get(member_id) or nothing for member_id in group.members}
        self.record(group, complete, outcome, since_ms=now_ms)
        for member in group.members.values():
            if answer_sync(member, synced(group, member), outcome):
                member.expect_heartbeat(outcome, now_ms)

    def record(
        self, group: ClassicGroup, assignments: dict[str, bytes], outcome: Outcome, *, since_ms: int | None
    ) -> None:
        """Write the group down as it is; that makes it stable, or empty."""
        outcome.write(GroupMetadataKey(group=group.group_id), group.snapshot(assignments, since_ms=since_ms))

    def wait_for_syncs(self, group: ClassicGroup, outcome: Outcome, now_ms: int) -> None:
        """Members have been told of the generation; as long as they may take to join they may take to sync."""
        group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms
        outcome.set_timer(group.sync_key, at_ms=group.sync_deadline_ms)

    def note_sync(self, group: ClassicGroup, member: ClassicMember, outcome: Outcome) -> None:
        """The member has asked for its assignment; once all have, nobody is waited for."""
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._forget_sync(group, outcome)

    def _forget_sync(self, group: ClassicGroup, outcome: Outcome) -> None:
        group.pending_sync.clear()
        if group.sync_deadline_ms is not None:
            group.sync_deadline_ms = None
            outcome.cancel_timer(group.sync_key)

    # --- members go -----------------------------------------------------------------------------------------

    def let_go(self, group: ClassicGroup, member: ClassicMember, outcome: Outcome) -> None:
        """Remove a member; `go_on` follows, once all who go are gone."""
        # Whoever still waits under this id has to join anew, without one.
        refuse_join(group, member, "", ErrorCode.UNKNOWN_MEMBER_ID, outcome)
        refuse_sync(member, ErrorCode.UNKNOWN_MEMBER_ID, outcome)
        group.remove(member)
        outcome.cancel_timer(member.session_key)

    def withdraw(self, group: ClassicGroup, member_id: str, outcome: Outcome) -> None:
        """Nobody will come with this id, which was given out; `go_on` follows."""
        del group.pending[member_id]
        outcome.cancel_timer(session_key(group.group_id, member_id))

    def go_on(self, group: ClassicGroup, reasons: list[str], outcome: Outcome, now_ms: int) -> None:
        """Some are gone: members, for these reasons, or only such as were expected to join."""
        if reasons:
            self.begin_or_complete(group, "; ".join(reasons), outcome, now_ms)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(group, outcome, now_ms)
        elif group.is_empty and not group.is_recorded:
            # An id was given out for a group that never came to be: there is nothing to keep.
            group.enter(GroupState.DEAD, now_ms)
            self._groups.remove(group.group_id)

    # --- time is up -----------------------------------------------------------------------------------------

    def session_due(self, group: ClassicGroup, member_id: str, outcome: Outcome, now_ms: int) -> None:
        """A member, or one that was asked to come back with its id, has not been heard of for too long."""
        member = group.members.get(member_id)
        deadline_ms = group.pending.get(member_id) if member is None else member.session_deadline_ms
        if deadline_ms is None:
            return
        if deadline_ms > now_ms:
            outcome.set_timer(session_key(group.group_id, member_id), at_ms=deadline_ms)
        elif member is None:
            self.withdraw(group, member_id, outcome)
            self.go_on(group, [], outcome, now_ms)
        elif member.is_new or not member.is_waiting:
            self.let_go(group, member, outcome)
            self.go_on(group, [f"the session of {member_id} has ended"], outcome, now_ms)
        # Whoever waits for us is alive; its session goes on with the answer.

    def join_due(self, group: ClassicGroup, outcome: Outcome, now_ms: int) -> None:
        """The rebalance has waited for long enough."""
        deadline_ms = group.join_deadline_ms
        if group.state is not GroupState.PREPARING_REBALANCE or deadline_ms is None:
            return
        if deadline_ms > now_ms:
            outcome.set_timer(group.join_key, at_ms=deadline_ms)
        elif group.rebalance_is_initial and group.member_was_added and now_ms < group.initial_deadline_ms:
            group.member_was_added = False
            next_ms = now_ms + self._settings.initial_rebalance_delay_ms
            self._wait_for_joins(group, outcome, until_ms=min(next_ms, group.initial_deadline_ms))
        else:
            self._complete(group, outcome, now_ms)

    def sync_due(self, group: ClassicGroup, outcome: Outcome, now_ms: int) -> None:
        """Members that have joined the generation never asked for their assignment."""
        deadline_ms = group.sync_deadline_ms
        if deadline_ms is None:
            return
        if deadline_ms > now_ms:
            outcome.set_timer(group.sync_key, at_ms=deadline_ms)
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self.let_go(group, group.members[member_id], outcome)
        self.begin(group, f"{', '.join(late)} did not sync in time", outcome, now_ms)

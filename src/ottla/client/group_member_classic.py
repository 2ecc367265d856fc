"""A member of a classic group: joins, shares partitions out if it leads, and sends heartbeats.

Eager assignors have every member give up all partitions before it joins again; with cooperative ones only, members
keep reading and give up what they have to afterwards.
"""

from __future__ import annotations

import logging
import re

from ottla.client.assignors import ASSIGNORS, Assignor
from ottla.client.background import Signal
from ottla.client.commits import NOBODY, Identity
from ottla.client.coordinator import Coordinator
from ottla.client.group_member import NONE, Change, GroupMember, Kind, Partitions
from ottla.client.settings import ConsumerSettings
from ottla.client.subscriptions import (
    NO_GENERATION,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_previous,
    encode_subscription,
)
from ottla.error_codes import ErrorCode
from ottla.errors import ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PROTOCOL_TYPE = "consumer"
SEVERAL_LEAVE_SINCE = 3
"""From this version on LeaveGroup has its members in another field."""
JOIN_SLACK_MS = 5_000
"""How much longer than the rebalance itself the answer to a join may take."""
OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})

_logger = logging.getLogger(__name__)


class ClassicMember(GroupMember):
    """One member."""

    def __init__(self, coordinator: Coordinator, settings: ConsumerSettings, *, news: Signal, wake: Signal) -> None:
        super().__init__(coordinator, settings, news=news, wake=wake)
        self._assignors = [ASSIGNORS[name] for name in settings.assignors]
        self._is_cooperative = all(each.is_cooperative for each in self._assignors)
        self._member_id = ""
        self._rounds_wanted = 0
        self._rounds_done = 0
        self._previous = NONE
        """The last assignment, which the sticky assignor wants to know even after it was given up."""
        self._previous_generation = NO_GENERATION
        self._next_beat_ms = 0
        self._topics: frozenset[str] = frozenset()
        """What was joined with: the names, or what the pattern matched."""
        self._led: frozenset[str] | None = None
        """What all members wanted when we, as leader, shared it out; None: we do not lead."""
        self._counts: dict[str, int] = {}
        """How many partitions there were then."""
        self._next_look_ms = 0

    # --- the reader's side ---------------------------------------------------------------------------

    def look_at_topics(self) -> None:
        self._next_look_ms = 0
        self._wake.set()

    def _subscription_changed(self) -> None:
        self._rounds_wanted += 1

    def _change_settled(self, change: Change) -> None:
        if change.kind is Kind.REVOKE and self._is_cooperative:
            # What we have let go of can be given to others only in another round.
            self._rounds_wanted += 1

    # --- joining -------------------------------------------------------------------------------------

    async def _advance(self) -> int | None:
        if self._identity == NOBODY or self._rounds_wanted != self._rounds_done:
            if self._may_join():
                self.is_joining = True
                try:
                    return await self._join()
                finally:
                    self.is_joining = False
            if self._identity == NOBODY:
                # The reader has to let go of what was lost first; it wakes us.
                return None
        now_ms = self._cluster.ticks.now_ms()
        if now_ms >= self._next_beat_ms:
            await self._beat()
            return 0
        if now_ms >= self._next_look_ms:
            await self._look()
            return 0
        return max(0, min(self._next_beat_ms, self._next_look_ms) - self._cluster.ticks.now_ms())

    def _may_join(self) -> bool:
        """Whether nothing is in the way; asks the reader to let go of what is."""
        with self._lock:
            if self._lost:
                return False
            # What was decided but not taken over yet is void: the next generation decides anew.
            self._target, self._adopted = None, True
            self._give_up = bool(self._owned) and not self._is_cooperative
            if not self._give_up:
                return True
        self._news.set()
        return False

    async def _join(self) -> int:
        subscription = self._subscription
        if subscription is None:
            return 0
        topics = subscription.topics
        if subscription.pattern is not None:
            topics = await self._matching(subscription.pattern)
        with self._lock:
            owned, round_wanted = self._owned, self._rounds_wanted
        answer = await self._ask_to_join(topics, owned)
        if isinstance(answer, int):
            return answer
        assignor = ASSIGNORS.get(answer.protocol_name or "")
        if assignor is None or assignor not in self._assignors:
            raise ProtocolError(f"the group chose the assignor {answer.protocol_name!r}, which we did not offer")
        self._topics, self._led = topics, None
        shares: list[SyncGroupRequestAssignment] = []
        if answer.leader == answer.member_id and not answer.skip_assignment:
            shares = await self._share_out(answer, assignor)
        assignment = await self._sync(answer, shares)
        if assignment is None:
            return 0
        now_ms = self._cluster.ticks.now_ms()
        self._next_beat_ms = now_ms + self._settings.heartbeat_interval_ms
        self._next_look_ms = now_ms + self._cluster.settings.metadata_age_max_ms
        with self._lock:
            self._identity = Identity(answer.member_id, answer.generation_id, self._settings.group_instance_id)
            self._previous, self._previous_generation = assignment, answer.generation_id
            self._rounds_done = round_wanted
            self._decided(assignment)
        _logger.info(
            "group %s: generation %d, %d partitions", self._coordinator.group, answer.generation_id, len(assignment)
        )
        return 0

    async def _ask_to_join(self, topics: frozenset[str], owned: Partitions) -> JoinGroupResponse | int:
        """Wait for the new generation; a number of milliseconds after which another attempt has to be made."""
        request = JoinGroupRequest(
            group_id=self._coordinator.group,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.poll_interval_max_ms,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=each.name, metadata=self._metadata(each, topics, owned))
                for each in self._assignors
            ],
        )
        timeout_ms = self._settings.poll_interval_max_ms + JOIN_SLACK_MS
        self.is_parked = bool(self._member_id) or self._settings.group_instance_id is not None
        try:
            answer = await self._coordinator.ask(
                ApiKey.JOIN_GROUP, request, JoinGroupResponse, timeout_ms=max(timeout_ms, self._request_timeout_ms)
            )
        finally:
            self.is_parked = False
        if answer.error_code == ErrorCode.NONE:
            self._member_id = answer.member_id
            return answer
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return 0
        if answer.error_code in OUT:
            with self._lock:
                self._out(ErrorCode(answer.error_code))
            self._member_id = ""
            return 0
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return self._cluster.settings.retry_backoff_ms
        raise self._joining_failed(answer.error_code)

    def _joining_failed(self, code: int) -> Exception:
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            offered = ", ".join(each.name for each in self._assignors)
            return self._refused(code, f"its members share none of our assignors ({offered})")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._member_id = ""
            return self._refused(
                code, f"another member has taken group_instance_id {self._settings.group_instance_id!r}"
            )
        return self._refused(code, "join")

    @property
    def _request_timeout_ms(self) -> int:
        return self._cluster.settings.request_timeout_ms

    def _metadata(self, assignor: Assignor, topics: frozenset[str], owned: Partitions) -> bytes:
        user_data = None
        if assignor.previous_in_user_data:
            user_data = encode_previous(self._previous, generation=self._previous_generation)
        return encode_subscription(
            topics, owned=sorted(owned), generation=self._previous_generation, user_data=user_data
        )

    async def _share_out(self, answer: JoinGroupResponse, assignor: Assignor) -> list[SyncGroupRequestAssignment]:
        """We lead: decide who reads what."""
        members = [
            decode_subscription(
                each.metadata,
                each.member_id,
                each.group_instance_id,
                previous_in_user_data=assignor.previous_in_user_data,
            )
            for each in answer.members
        ]
        self._led = frozenset[str]().union(*(member.topics for member in members))
        self._counts = await self._partition_counts(self._led)
        assigned = assignor.assign(members, self._counts)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assigned.items()
        ]

    async def _sync(self, answer: JoinGroupResponse, shares: list[SyncGroupRequestAssignment]) -> Partitions | None:
        """Our assignment; None when another attempt has to be made."""
        request = SyncGroupRequest(
            group_id=self._coordinator.group,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=answer.protocol_name,
            assignments=shares,
        )
        timeout_ms = max(self._settings.poll_interval_max_ms + JOIN_SLACK_MS, self._request_timeout_ms)
        self.is_parked = True
        try:
            response = await self._coordinator.ask(ApiKey.SYNC_GROUP, request, SyncGroupResponse, timeout_ms=timeout_ms)
        finally:
            self.is_parked = False
        if response.error_code == ErrorCode.NONE:
            return decode_assignment(response.assignment)
        if response.error_code in OUT:
            with self._lock:
                self._out(ErrorCode(response.error_code))
            self._member_id = ""
            return None
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        raise self._refused(response.error_code, "sync")

    # --- staying -------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        identity = self._identity
        request = HeartbeatRequest(
            group_id=self._coordinator.group,
            generation_id=identity.epoch,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
        )
        self._next_beat_ms = self._cluster.ticks.now_ms() + self._settings.heartbeat_interval_ms
        response = await self._coordinator.ask(ApiKey.HEARTBEAT, request, HeartbeatResponse)
        code = response.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._want_round()
        elif code in OUT:
            self._member_id = self._member_id if code == ErrorCode.ILLEGAL_GENERATION else ""
            with self._lock:
                self._out(ErrorCode(code))
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            with self._lock:
                self._out(ErrorCode(code))
            raise self._joining_failed(code)
        elif code != ErrorCode.NONE:
            raise self._refused(code, "heartbeat")

    def _want_round(self) -> None:
        with self._lock:
            self._rounds_wanted = self._rounds_done + 1

    async def _look(self) -> None:
        """Whether topics or partitions have come or gone since the last generation."""
        self._next_look_ms = self._cluster.ticks.now_ms() + self._cluster.settings.metadata_age_max_ms
        subscription = self._subscription
        pattern = None if subscription is None else subscription.pattern
        if pattern is not None and await self._matching(pattern) != self._topics:
            self._want_round()
        if self._led is not None and await self._partition_counts(self._led) != self._counts:
            self._want_round()

    async def _matching(self, pattern: str) -> frozenset[str]:
        self._cluster.topology.topics.clear()
        await self._cluster.refresh(None)
        compiled = re.compile(pattern)
        found = self._cluster.topology.topics.values()
        return frozenset(view.name for view in found if not view.is_internal and compiled.fullmatch(view.name))

    async def _partition_counts(self, topics: frozenset[str]) -> dict[str, int]:
        if not topics:
            return {}
        await self._cluster.refresh(sorted(topics))
        known = self._cluster.topology.topics
        return {name: len(known[name].partitions) for name in topics if name in known}

    async def _say_goodbye(self, identity: Identity, coordinator: Coordinator) -> None:
        member_id, self._member_id = self._member_id, ""
        if not member_id or self._settings.group_instance_id is not None:
            # A static member is expected back; its partitions wait for it until its session ends.
            return
        if await coordinator.version(ApiKey.LEAVE_GROUP) >= SEVERAL_LEAVE_SINCE:
            request = LeaveGroupRequest(group_id=coordinator.group, members=[MemberIdentity(member_id=member_id)])
        else:
            request = LeaveGroupRequest(group_id=coordinator.group, member_id=member_id)
        await coordinator.ask(ApiKey.LEAVE_GROUP, request, LeaveGroupResponse)

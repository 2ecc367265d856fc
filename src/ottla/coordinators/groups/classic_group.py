"""A classic group: its members, its generation, and the questions that the rest of the broker asks of it.

What is recorded changes in `apply` only. The rest is soft: who has joined the rebalance that is under way, who waits
for an answer, the generation that the members know of but whose assignments are not there yet. After a restart the
group stands where its last record says. When a rebalance begins and ends is not known here: see `classic_rebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum

from ottla.coordinators.groups.classic_member import ClassicMember, JoinCall, ParkedJoin, restored, session_key
from ottla.coordinators.groups.classic_subscription import CONSUMER, subscribed_topics
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import GroupMetadataKey, GroupMetadataValue
from ottla.coordinators.outcome import Outcome, TimerKey
from ottla.errors import FencedInstanceId, IllegalGeneration, RebalanceInProgress, UnknownMemberId
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.join_group import JoinGroupResponseMember

GENERATION_MAX = 2**31 - 1
PENDING_MEMBERS_MAX = 10_000
"""Ids given out to members that have not come back with them. Each ends by itself, this bounds a flood."""
PENDING_MS_MAX = 60_000
"""How long an id is kept for a member, however long its session would be: clients come back with it at once."""

MEMBERS_BYTES_MAX = 32 << 20
"""What all members together may bring along."""
ASSIGNMENTS_BYTES_MAX = 32 << 20
"""What a leader may assign. With the members it has to fit into one record, or nothing could be recorded any more."""


class GroupState(Enum):
    """Named as Kafka's tools print them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


Transitions = Counter[tuple[GroupState, GroupState]]


class ClassicGroup:
    """One classic group."""

    def __init__(self, group_id: str, transitions: Transitions | None = None, *, since_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = since_ms
        """When it came into its state; None if a record does not tell."""
        self.is_recorded = False
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.pending: dict[str, int] = {}
        """Member ids that were given out but not used yet, and when they expire; the oldest first."""
        self.pending_sync: set[str] = set()
        """Members of the generation that have not asked for their assignment."""
        self.rebalance_is_initial = False
        """The rebalance began with an empty group, so it waits a little for more members."""
        self.member_was_added = False
        """Since the initial wait was last extended."""
        self.join_deadline_ms: int | None = None
        self.initial_deadline_ms = 0
        self.sync_deadline_ms: int | None = None
        self._transitions = Transitions() if transitions is None else transitions
        self._instances: dict[str, str] = {}
        self._speakers: Counter[str] = Counter()
        self._joined_count = 0
        self._size_bytes = 0

    # --- questions ------------------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "classic"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def empty_since_ms(self) -> int | None:
        return self.state_since_ms if self.is_empty else None

    @property
    def joined_count(self) -> int:
        """Members that wait for this rebalance to come to an end."""
        return self._joined_count

    @property
    def all_have_joined(self) -> bool:
        return self._joined_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member decides how long everybody waits."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def join_key(self) -> TimerKey:
        return ("classic", "join", self.group_id)

    @property
    def sync_key(self) -> TimerKey:
        return ("classic", "sync", self.group_id)

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """Whom the instance id belongs to."""
        return None if group_instance_id is None else self._instances.get(group_instance_id)

    def member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """The member that a request claims to come from. Raises UnknownMemberId, FencedInstanceId."""
        if group_instance_id is not None:
            holder = self._instances.get(group_instance_id)
            if holder is None:
                raise UnknownMemberId(f"group {self.group_id!r} has no instance {group_instance_id!r}")
            if holder != member_id:
                raise FencedInstanceId(f"instance {group_instance_id!r} of group {self.group_id!r} is now {holder!r}")
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}")
        return found

    def member_of_generation(self, member_id: str, group_instance_id: str | None, generation: int) -> ClassicMember:
        """As `member`; also raises IllegalGeneration."""
        found = self.member(member_id, group_instance_id)
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.group_id!r} is in generation {self.generation}, not {generation}")
        return found

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        """Raise the Refusal for a commit that does not come from a member of this generation.

        Without a member and a generation it comes from an admin, or from a consumer that assigns itself; they may
        commit while the group is empty. A transaction need not say which member it commits for; if it does, that is
        checked.
        """
        if self.state is GroupState.EMPTY and generation < 0:
            return
        if generation >= 0 or member_id or group_instance_id is not None:
            self.member_of_generation(member_id, group_instance_id, generation)
        elif not is_transactional and self.state is not GroupState.EMPTY:
            raise UnknownMemberId(f"group {self.group_id!r} has members; only they may commit")
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # The member knows the generation from its JoinGroup, but not yet what it was assigned in it.
            raise RebalanceInProgress(f"generation {generation} of group {self.group_id!r} is not complete")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may ask a classic group for its offsets."""

    def note_commit(self, member_id: str, outcome: Outcome, now_ms: int) -> None:
        """A commit says that the member is alive."""
        member = self.members.get(member_id)
        if member is not None:
            member.expect_heartbeat(outcome, now_ms)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members read; None where their bytes do not tell."""
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER or self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            metadata = member.protocols.get(self.protocol_name)
            wanted = None if metadata is None else subscribed_topics(metadata)
            if wanted is None:
                return None
            topics |= wanted
        return frozenset(topics)

    def speaks(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Whether somebody with these protocols can be in the group: one of them has to be everybody's."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._speakers[name] == everybody for name in protocols)

    def holds(self, call: JoinCall, present: ClassicMember | None) -> bool:
        """Whether what the member brings along still fits; what it has brought before goes."""
        freed_bytes = present.size_bytes if present is not None else 0
        return self._size_bytes - freed_bytes + call.size_bytes <= MEMBERS_BYTES_MAX

    def selected_protocol(self) -> str:
        """Of the protocols that everybody speaks, the one that most like best; at a tie, whom the first voted for."""
        candidates = {name for name, count in self._speakers.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def described(self) -> DescribedGroup:
        """As DescribeGroups answers. The protocol and what members said in it are told of a stable group only."""
        is_stable = self.state is GroupState.STABLE
        protocol = self.protocol_name or ""
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type,
            protocol_data=protocol if is_stable else "",
            members=tuple(
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client.client_id,
                    client_host=member.client.client_host,
                    member_metadata=member.protocols.get(protocol, b"") if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )

    def for_leader(self) -> tuple[JoinGroupResponseMember, ...]:
        """The members, as whoever assigns the partitions has to know them."""
        protocol = self.protocol_name or ""
        return tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.protocols.get(protocol, b""),
            )
            for member in self.members.values()
        )

    # --- members come and go --------------------------------------------------------------------------------

    def add(self, member_id: str, call: JoinCall) -> ClassicMember:
        """Take in a member that was not there. The first one decides what kind of group this is."""
        request = call.request
        assert member_id not in self.members, "a member id is given out once"
        if not self.members:
            self.protocol_type = request.protocol_type
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client=call.client,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=call.protocols(),
            session_key=session_key(self.group_id, member_id),
            size_bytes=call.size_bytes,
            is_new=True,
        )
        self.pending.pop(member_id, None)
        self._hold(member)
        if self.leader_id is None:
            self.leader_id = member_id
        return member

    def update(self, member: ClassicMember, call: JoinCall) -> None:
        """The member has joined again, perhaps with other wishes."""
        self._count_out(member)
        member.protocols = call.protocols()
        member.size_bytes = call.size_bytes
        self._count_in(member)
        member.rebalance_timeout_ms = call.rebalance_timeout_ms
        member.session_timeout_ms = call.request.session_timeout_ms
        member.client = call.client

    def remove(self, member: ClassicMember) -> None:
        """Let the member go. Whatever it waited for has been answered."""
        assert not member.is_waiting, "its answer would be lost"
        self._release(member)
        self.pending_sync.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, old: ClassicMember, new_member_id: str, client: ClientFacts) -> ClassicMember:
        """A static member is back under a new id: it takes the place of the old one, with its assignment."""
        assert not old.is_waiting, "its answer would be lost"
        new = ClassicMember(
            member_id=new_member_id,
            group_instance_id=old.group_instance_id,
            client=client,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            session_key=session_key(self.group_id, new_member_id),
            size_bytes=old.size_bytes,
            assignment=old.assignment,
        )
        self._release(old)
        self._hold(new)
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new_member_id)
        return new

    def park_join(self, member: ClassicMember, parked: ParkedJoin | None) -> None:
        """What the member waits with for the end of the rebalance; None once that has been answered."""
        self._joined_count += (parked is not None) - (member.parked_join is not None)
        member.parked_join = parked

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one that has joined; False if nobody has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is None or leader.parked_join is None:
            joined = next((member for member in self.members.values() if member.parked_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    # --- states ---------------------------------------------------------------------------------------------

    def enter(self, state: GroupState, now_ms: int | None) -> None:
        """Come into a state, or stay in it from anew."""
        if state is not self.state:
            self._transitions[self.state, state] += 1
        self.state = state
        self.state_since_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """All who will be in it have joined. It counts for members from now on, and for a restart once it is recorded.

        A group without members is left as it is: its record makes it empty.
        """
        # After the last number comes the first again; a negative one would mean that a commit has no generation.
        self.generation = self.generation + 1 if self.generation < GENERATION_MAX else 1
        self.protocol_name = self.selected_protocol() if self.members else None
        self.rebalance_is_initial = False
        self.pending_sync = set(self.members)
        if self.members:
            self.enter(GroupState.COMPLETING_REBALANCE, now_ms)

    def snapshot(self, assignments: Mapping[str, bytes], *, since_ms: int | None) -> GroupMetadataValue:
        """The record of the group as it is, with the assignment of each member."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if since_ms is None else since_ms,
            members=tuple(
                member.recorded(self.protocol_name, assignments[member.member_id]) for member in self.members.values()
            ),
        )

    def apply(self, value: GroupMetadataValue) -> None:
        """Stand where the record says. Members that are as it says already keep what is soft about them."""
        before = dict(self.members)
        for former in before.values():
            self._release(former)
        for fields in value.members:
            member = before.get(fields.member_id)
            if member is None or member.recorded(value.protocol, fields.assignment) != fields:
                # Also a member that we know, while records are replayed: each tells all there is to know of it.
                self._hold(restored(self.group_id, fields, value.protocol))
            else:
                member.assignment = fields.assignment
                self._hold(member)
        self.protocol_type = value.protocol_type
        self.protocol_name = value.protocol
        self.generation = value.generation
        self.leader_id = value.leader
        self.is_recorded = True
        since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self.enter(GroupState.STABLE if self.members else GroupState.EMPTY, since_ms)

    def delete(self, outcome: Outcome) -> None:
        """Write the tombstone; its replay removes the group."""
        outcome.write(GroupMetadataKey(group=self.group_id), None)

    def _hold(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        self._count_in(member)
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member.member_id

    def _release(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        self._count_out(member)
        instance_id = member.group_instance_id
        if instance_id is not None and self._instances.get(instance_id) == member.member_id:
            del self._instances[instance_id]

    def _count_in(self, member: ClassicMember) -> None:
        self._size_bytes += member.size_bytes
        self._speakers.update(member.protocols.keys())

    def _count_out(self, member: ClassicMember) -> None:
        """Its protocols have one speaker less; names that nobody uses are forgotten, whatever a client makes up."""
        self._size_bytes -= member.size_bytes
        for name in member.protocols:
            if self._speakers[name] > 1:
                self._speakers[name] -= 1
            else:
                del self._speakers[name]

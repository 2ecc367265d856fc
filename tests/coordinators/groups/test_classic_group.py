"""Classic groups where a scenario cannot look: numbers at their ends, limits, clocks that jump, descriptions."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ottla.coordinators.groups.classic import ClassicProtocol
from ottla.coordinators.groups.classic_group import (
    ASSIGNMENTS_BYTES_MAX,
    GENERATION_MAX,
    MEMBERS_BYTES_MAX,
    PENDING_MEMBERS_MAX,
    PENDING_MS_MAX,
    ClassicGroup,
    GroupState,
)
from ottla.coordinators.groups.classic_member import session_key
from ottla.coordinators.groups.classic_subscription import EMPTY_ASSIGNMENT
from ottla.coordinators.groups.groups import Group, Groups
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.errors import GroupMaxSizeReached, RecordTooLarge, UnknownMemberId
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema import Message
from tests.coordinators.groups.classic_stage import subscription

HERE = ClientFacts("client", "/127.0.0.1")


@dataclass
class Coordinator:
    """The protocol with what it decided last."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    groups: Groups = field(default_factory=Groups)
    made: int = 0

    def __post_init__(self) -> None:
        self.protocol = ClassicProtocol(self.groups, self.settings, self._new_member_id)
        self.outcome = self.next_outcome()

    def _new_member_id(self, client_id: str) -> str:
        self.made += 1
        return f"{client_id}-{self.made}"

    def next_outcome(self) -> Outcome:
        def replay(key: Message, value: Message | None) -> None:
            assert isinstance(key, GroupMetadataKey)
            assert value is None or isinstance(value, GroupMetadataValue)
            self.protocol.replay(key, value)

        self.outcome = Outcome(replay)
        return self.outcome

    def group(self) -> ClassicGroup:
        found = self.groups.of_kind("g", ClassicGroup)
        assert found is not None
        return found

    def join(
        self,
        ticket: Ticket,
        *,
        version: int = 3,
        now_ms: int = 0,
        protocols: tuple[str, ...] = ("range",),
        metadata: bytes = subscription("t"),
        member_id: str = "",
        session_timeout_ms: int = 10_000,
    ) -> None:
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
        )
        self.protocol.join(request, version, HERE, ticket, self.next_outcome(), now_ms)

    def timer(self, *key: str, now_ms: int) -> None:
        self.protocol.on_timer(("classic", *key), self.next_outcome(), now_ms)

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes], ticket: Ticket) -> None:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in assignments.items()
            ],
        )
        self.protocol.sync(request, ticket, self.next_outcome(), 3_000)

    def replayed(self, value: GroupMetadataValue) -> None:
        self.protocol.replay(GroupMetadataKey(group="g"), value)


def recorded(*members: MemberMetadata, generation: int = 5) -> GroupMetadataValue:
    """A record of a group with these members."""
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        current_state_timestamp=1_000,
        members=members,
    )


def member(member_id: str, *, topics: str = "t", assignment: bytes = b"") -> MemberMetadata:
    return MemberMetadata(
        member_id=member_id,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=subscription(topics),
        assignment=assignment,
    )


def test_after_the_last_generation_comes_the_first() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded(generation=GENERATION_MAX))
    coordinator.join(1)

    coordinator.timer("join", "g", now_ms=3_000)

    assert coordinator.group().generation == 1


def test_in_a_flood_of_members_that_never_come_back_the_oldest_is_given_up_for_a_new_one() -> None:
    coordinator = Coordinator()
    for ticket in range(PENDING_MEMBERS_MAX):
        coordinator.join(ticket, version=4)
    oldest, second, *_ = coordinator.group().pending

    coordinator.join(-1, version=4)

    newest = f"client-{coordinator.made}"
    assert coordinator.outcome.timers[session_key("g", oldest)] is None
    assert len(coordinator.group().pending) == PENDING_MEMBERS_MAX
    assert (next(iter(coordinator.group().pending)), [*coordinator.group().pending][-1]) == (second, newest)
    coordinator.join(-2, version=4, member_id=newest)
    assert newest in coordinator.group().members
    with pytest.raises(UnknownMemberId):
        coordinator.join(-3, version=4, member_id=oldest)


def test_an_id_is_kept_for_a_minute_however_long_the_session_would_be() -> None:
    coordinator = Coordinator()
    coordinator.join(1, version=4, session_timeout_ms=1_800_000)
    (expected,) = coordinator.group().pending

    assert coordinator.outcome.timers == {session_key("g", expected): PENDING_MS_MAX}

    coordinator.timer("session", "g", expected, now_ms=PENDING_MS_MAX)
    assert coordinator.groups.of_kind("g", ClassicGroup) is None


def test_members_that_bring_more_than_a_record_holds_are_turned_away() -> None:
    coordinator = Coordinator()
    coordinator.join(1, metadata=bytes(MEMBERS_BYTES_MAX - 100))

    with pytest.raises(GroupMaxSizeReached):
        coordinator.join(2, metadata=bytes(100))

    coordinator.join(3, metadata=bytes(10))
    assert len(coordinator.group().members) == 2


def test_a_member_may_bring_as_much_again_as_it_has_brought() -> None:
    coordinator = Coordinator()
    coordinator.join(1, metadata=bytes(MEMBERS_BYTES_MAX - 100))

    coordinator.join(2, metadata=bytes(MEMBERS_BYTES_MAX - 200), member_id="client-1")
    coordinator.join(3, metadata=bytes(100))

    assert len(coordinator.group().members) == 2


def test_assignments_that_no_record_holds_are_refused_and_change_nothing() -> None:
    coordinator = Coordinator()
    coordinator.join(1)
    coordinator.timer("join", "g", now_ms=3_000)

    with pytest.raises(RecordTooLarge):
        coordinator.sync("client-1", 1, {"client-1": bytes(ASSIGNMENTS_BYTES_MAX + 1)}, 2)

    assert coordinator.outcome.timers == {}
    assert coordinator.group().state is GroupState.COMPLETING_REBALANCE


def test_a_timer_that_runs_before_its_time_is_set_again() -> None:
    coordinator = Coordinator()
    coordinator.join(1, now_ms=50_000)

    coordinator.timer("join", "g", now_ms=40_000)

    assert coordinator.outcome.timers == {("classic", "join", "g"): 53_000}
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE


def test_a_timer_of_a_session_that_goes_on_is_set_again() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded(member("a")))
    coordinator.protocol.loaded(coordinator.outcome, 20_000)

    coordinator.timer("session", "g", "a", now_ms=29_999)

    assert coordinator.outcome.timers == {("classic", "session", "g", "a"): 30_000}


@pytest.mark.parametrize("key", [("session", "g", "a"), ("join", "g"), ("sync", "g"), ("session", "none", "a")])
def test_a_timer_that_nobody_needs_any_more_does_nothing(key: tuple[str, ...]) -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded())

    coordinator.timer(*key, now_ms=99_000)

    assert coordinator.outcome.timers == {}
    assert coordinator.outcome.records == []


def test_each_record_tells_all_there_is_to_know_of_a_member() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded(member("a", topics="t"), member("b"), generation=5))
    coordinator.replayed(recorded(member("a", topics="u", assignment=b"u0"), generation=6))

    assert coordinator.group().subscribed_topics() == frozenset({"u"})
    assert list(coordinator.group().members) == ["a"]
    assert coordinator.group().members["a"].assignment == b"u0"


def test_a_record_without_a_rebalance_timeout_means_the_session_timeout() -> None:
    coordinator = Coordinator()
    old = MemberMetadata(member_id="a", session_timeout=7_000, subscription=subscription("t"))
    coordinator.replayed(recorded(old))

    assert coordinator.group().rebalance_timeout_ms == 7_000


def test_a_stable_group_is_described_with_what_its_members_said_and_got() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded(member("a", topics="t,u", assignment=b"all")))

    described = coordinator.group().described()

    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (only,) = described.members
    assert (only.member_id, only.client_id, only.client_host) == ("a", "client", "/127.0.0.1")
    assert (only.member_metadata, only.member_assignment) == (subscription("t,u"), b"all")


def test_a_group_in_a_rebalance_is_described_without_its_protocol() -> None:
    coordinator = Coordinator()
    coordinator.join(1)

    described = coordinator.group().described()

    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""


def test_a_group_is_empty_since_its_record_says_so() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded())
    group: Group = coordinator.group()

    assert (group.is_empty, group.empty_since_ms) == (True, 1_000)


def test_a_group_is_not_empty_while_somebody_is_expected() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded())
    coordinator.join(1, version=4)
    group: Group = coordinator.group()

    assert (group.is_empty, group.empty_since_ms) == (False, None)


def test_subscribed_topics_are_not_told_where_the_bytes_are_not_understood() -> None:
    coordinator = Coordinator()
    strange = MemberMetadata(member_id="b", session_timeout=10_000, subscription=b"?")
    coordinator.replayed(recorded(member("a"), strange))

    assert coordinator.group().subscribed_topics() is None


def test_a_leader_that_forgets_a_consumer_leaves_it_an_assignment_that_it_can_read() -> None:
    coordinator = Coordinator()
    coordinator.join(1)
    coordinator.join(2)
    coordinator.timer("join", "g", now_ms=3_000)
    coordinator.timer("join", "g", now_ms=6_000)
    coordinator.sync("client-2", 1, {}, 3)
    coordinator.sync("client-1", 1, {"client-1": b"all"}, 4)

    replies = {ticket: reply for ticket, reply in coordinator.outcome.replies if isinstance(reply, SyncGroupResponse)}

    assert replies[3].assignment == EMPTY_ASSIGNMENT
    assert replies[4].assignment == b"all"


def test_of_a_protocol_that_is_named_twice_the_first_counts() -> None:
    coordinator = Coordinator()
    coordinator.join(1, protocols=("range", "sticky", "range"))
    coordinator.timer("join", "g", now_ms=3_000)

    ((_, reply),) = coordinator.outcome.replies

    assert isinstance(reply, JoinGroupResponse)
    assert reply.protocol_name == "range"


def test_a_protocol_that_nobody_speaks_any_more_is_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.join(1, protocols=("range", "made-up"))
    group = coordinator.group()
    first = group.members["client-1"]
    coordinator.join(2, protocols=("range",))

    assert not group.speaks("consumer", {"made-up": b""})
    assert group.speaks("consumer", {"range": b""})
    assert group.selected_protocol() == "range"
    assert first.protocols.keys() == {"range", "made-up"}


def test_a_heartbeat_sets_one_timer_and_writes_nothing() -> None:
    coordinator = Coordinator()
    coordinator.replayed(recorded(member("a")))
    request = HeartbeatRequest(group_id="g", generation_id=5, member_id="a")
    outcome = coordinator.next_outcome()

    coordinator.protocol.heartbeat(request, 1, outcome, 40_000)

    assert outcome.timers == {("classic", "session", "g", "a"): 50_000}
    assert outcome.records == []


def test_a_tombstone_of_a_group_that_is_not_there_is_no_news() -> None:
    coordinator = Coordinator()

    coordinator.protocol.replay(GroupMetadataKey(group="g"), None)

    assert "g" not in coordinator.groups


def test_a_rebalance_timeout_of_nothing_does_not_make_a_timer_that_is_always_due() -> None:
    coordinator = Coordinator()
    away = MemberMetadata(
        member_id="a", group_instance_id="one", session_timeout=10_000, rebalance_timeout=0, subscription=b"?"
    )
    coordinator.replayed(recorded(away))
    coordinator.protocol.rebalance(coordinator.group(), "a test", coordinator.next_outcome(), 5_000)

    coordinator.timer("join", "g", now_ms=5_000)

    assert coordinator.outcome.timers == {("classic", "join", "g"): 6_000}

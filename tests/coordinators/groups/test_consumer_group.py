"""What a consumer group makes of records, also of odd ones, and what it tells of itself."""

from __future__ import annotations

import logging

import pytest

from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.consumer import ConsumerProtocol
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import MemberState
from ottla.coordinators.groups.consumer_replay import RECORD_KEYS, replay
from ottla.coordinators.groups.groups import Group, Groups
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome
from ottla.errors import GroupIdNotFound, UnknownMemberId
from ottla.protocol.codec import decode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from tests.coordinators.groups.consumer_stage import StageTopics

TOPIC = b"t...............".ljust(16, b".")


class Desk:
    """A consumer protocol with a topic `t` of two partitions."""

    def __init__(self) -> None:
        self.topics = StageTopics()
        self.topics.put("t", 2)
        self.groups = Groups()
        self.protocol = ConsumerProtocol(self.groups, GroupSettings(), lambda: self.topics, lambda client: client)

    def outcome(self) -> Outcome:
        return Outcome(self.protocol.replay)

    def join(self, member_id: str) -> Outcome:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        outcome = self.outcome()
        self.protocol.heartbeat(request, 1, ClientFacts("client", "/host"), 1, outcome, 0)
        return outcome

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.of_kind("g", ConsumerGroup)
        assert group is not None
        return group


def current(
    member_id: str, *, state: int = 0, has: list[int], gives_back: list[int]
) -> tuple[ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue]:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=state,
        assigned_partitions=[TopicPartitions(topic_id=TOPIC, partitions=has)] if has else [],
        partitions_pending_revocation=[TopicPartitions(topic_id=TOPIC, partitions=gives_back)] if gives_back else [],
    )
    return key, value


def test_a_consumer_group_can_be_asked_what_any_group_can() -> None:
    desk = Desk()
    desk.join("a")
    group: Group = desk.group

    assert (group.type_name, group.protocol_type, group.state_name) == ("consumer", "consumer", "Stable")
    assert group.subscribed_topics() == frozenset({"t"})
    assert not group.is_empty
    assert group.empty_since_ms is None


def test_a_group_remembers_since_when_it_is_empty() -> None:
    desk = Desk()
    desk.join("a")
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1)

    desk.protocol.heartbeat(request, 1, ClientFacts("client", "/host"), 2, desk.outcome(), 123)

    assert desk.group.is_empty
    assert desk.group.empty_since_ms == 123


def test_a_group_that_is_read_back_empty_is_so_since_then() -> None:
    desk = Desk()
    desk.protocol.replay(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=3))

    desk.protocol.loaded(desk.outcome(), 77)

    assert desk.group.empty_since_ms == 77


def test_what_a_member_has_may_come_before_what_it_wants() -> None:
    groups = Groups()

    replay(groups, *current("a", has=[0], gives_back=[]))
    wish = ConsumerGroupMemberMetadataValue(subscribed_topic_names=["t"], subscribed_topic_regex=None)
    replay(groups, ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"), wish)

    group = groups.of_kind("g", ConsumerGroup)
    assert group is not None
    member = group.member("a")
    assert member.epoch == 5
    assert member.assigned == {TOPIC: frozenset({0})}
    assert member.facts.topic_names == frozenset({"t"})
    assert group.owner_of((TOPIC, 0)) == "a"


@pytest.mark.parametrize(
    ("gives_back", "state"), [([1], MemberState.UNREVOKED_PARTITIONS), ([], MemberState.UNRELEASED_PARTITIONS)]
)
def test_a_state_of_a_later_kafka_gives_nothing_away(gives_back: list[int], state: MemberState) -> None:
    groups = Groups()

    replay(groups, *current("a", state=99, has=[0], gives_back=gives_back))

    group = groups.of_kind("g", ConsumerGroup)
    assert group is not None
    assert group.member("a").state is state
    assert group.owner_of((TOPIC, 1)) == ("a" if gives_back else None)


def test_where_two_records_overlap_the_later_one_counts() -> None:
    groups = Groups()
    replay(groups, *current("a", has=[0, 1], gives_back=[]))
    replay(groups, *current("b", has=[1], gives_back=[]))
    group = groups.of_kind("g", ConsumerGroup)
    assert group is not None

    replay(groups, ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"), None)

    assert group.owner_of((TOPIC, 0)) is None
    assert group.owner_of((TOPIC, 1)) == "b"


@pytest.mark.parametrize("key_class", sorted(RECORD_KEYS, key=str))
def test_a_tombstone_of_what_is_not_there_changes_nothing(key_class: type[ConsumerGroupMetadataKey]) -> None:
    groups = Groups()

    replay(groups, key_class(group_id="g"), None)

    assert len(groups) == 0


def test_tombstones_take_away_what_records_brought() -> None:
    groups = Groups()
    target_key = ConsumerGroupTargetAssignmentMetadataKey(group_id="g")
    pattern_key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*")
    replay(groups, target_key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4))
    replay(groups, pattern_key, ConsumerGroupRegularExpressionValue(topics=["t"]))
    replay(groups, *current("a", has=[0], gives_back=[1]))
    group = groups.of_kind("g", ConsumerGroup)
    assert group is not None

    replay(groups, target_key, None)
    replay(groups, pattern_key, None)
    replay(groups, current("a", has=[], gives_back=[])[0], None)

    assert group.target_epoch == 0
    assert group.resolved == {}
    assert (group.member("a").assigned, group.member("a").revoking) == ({}, {})
    assert group.owner_of((TOPIC, 1)) is None


def test_a_group_with_records_of_both_protocols_is_a_consumer_group(caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups()
    groups.add(ClassicGroup("g"))

    with caplog.at_level(logging.WARNING):
        replay(groups, ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=3))

    assert groups.of_kind("g", ConsumerGroup) is not None
    assert "both protocols" in caplog.text


def test_the_end_of_a_consumer_group_does_not_end_a_classic_one() -> None:
    groups = Groups()
    groups.add(ClassicGroup("g"))

    replay(groups, ConsumerGroupMetadataKey(group_id="g"), None)

    assert groups.of_kind("g", ClassicGroup) is not None


def test_members_of_equal_wishes_share_one_object_also_after_many_changes() -> None:
    desk = Desk()
    desk.join("a")
    desk.join("b")
    for number in range(50):
        key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="b")
        names = ["t"] if number == 49 else [f"t{number}"]
        desk.protocol.replay(key, ConsumerGroupMemberMetadataValue(subscribed_topic_names=names))

    assert desk.group.member("a").facts.topic_names is desk.group.member("b").facts.topic_names


def test_a_timer_that_is_out_of_date_lets_nobody_go() -> None:
    desk = Desk()
    desk.join("a")
    key = ("consumer", "session", "g", "a")

    outcome = desk.outcome()
    desk.protocol.on_timer(key, outcome, 44_999)
    desk.protocol.on_timer(("consumer", "session", "g", "nobody"), outcome, 99_999)
    desk.protocol.on_timer(("consumer", "session", "nowhere", "a"), outcome, 99_999)

    assert desk.group.member("a").epoch == 1
    assert outcome.records == []
    assert outcome.timers == {key: 45_000}


def test_a_group_is_described_as_tools_that_know_only_classic_groups_expect() -> None:
    desk = Desk()
    desk.join("a")

    described = desk.protocol.described_as_classic("g")

    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "uniform",
    )
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == ("a", "client", "/host")
    assignment = decode(ConsumerProtocolAssignment, 0, member.member_assignment, start=2)
    assert [(part.topic, list(part.partitions)) for part in assignment.assigned_partitions] == [("t", [0, 1])]


def test_a_group_that_is_not_there_cannot_be_described() -> None:
    desk = Desk()

    with pytest.raises(GroupIdNotFound):
        desk.protocol.described("g")
    with pytest.raises(GroupIdNotFound):
        desk.protocol.described_as_classic("g")


def test_a_member_without_an_id_is_not_known_by_the_empty_one() -> None:
    desk = Desk()
    desk.join("a")

    with pytest.raises(UnknownMemberId):
        desk.group.check_fetch(None, 1)

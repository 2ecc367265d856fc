"""That the reading of a group's records finds what it looks for."""

from __future__ import annotations

from ottla.coordinators.groups.consumer_embedded import write_assignment
from ottla.coordinators.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    TopicPartitions,
)
from ottla.coordinators.outcome import CoordinatorRecord
from tests.clients.tools.group_history import told

GROUP = "group"
TOPIC_ID = bytes(range(16))


def generation(**shares: set[int]) -> CoordinatorRecord:
    members = [
        MemberMetadata(member_id=name, assignment=write_assignment({"a": numbers}, version=0))
        for name, numbers in shares.items()
    ]
    return CoordinatorRecord(GroupMetadataKey(group=GROUP), GroupMetadataValue(generation=7, members=members))


def owns(member_id: str, *numbers: int, revoking: tuple[int, ...] = ()) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        assigned_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=numbers)],
        partitions_pending_revocation=[TopicPartitions(topic_id=TOPIC_ID, partitions=revoking)],
    )
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id), value)


def gone(member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id), None)


def test_two_owners_in_a_generation_of_the_classic_protocol_are_found() -> None:
    found = told([[generation(x={0, 1}, y={2})], [generation(x={0, 1}, y={1})]], GROUP)
    assert found.doubles == ["generation 7: ('a', 1) belongs to x and to y"]
    assert found.generations == {"classic": 2}
    assert found.member_ids == {"x", "y"}


def test_a_partition_that_one_member_has_and_another_gets_is_found() -> None:
    assert told([[owns("x", 0, 1)], [owns("y", 1)]], GROUP).doubles
    assert told([[owns("x", 0, revoking=(1,))], [owns("y", 1)]], GROUP).doubles


def test_a_partition_that_was_given_back_may_be_given_to_another() -> None:
    assert told([[owns("x", 0, 1)], [owns("x", 0)], [owns("y", 1)]], GROUP).doubles == []
    assert told([[owns("x", 0, 1)], [gone("x"), owns("y", 1)]], GROUP).doubles == []


def test_what_happens_in_one_decision_happens_at_once() -> None:
    assert told([[owns("x", 0)], [owns("y", 0), gone("x")]], GROUP).doubles == []


def test_epochs_are_counted_and_other_groups_are_not() -> None:
    epoch = CoordinatorRecord(ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=1))
    other = CoordinatorRecord(ConsumerGroupMetadataKey(group_id="other"), ConsumerGroupMetadataValue(epoch=1))
    assert told([[epoch, other]], GROUP).generations == {"consumer": 1}

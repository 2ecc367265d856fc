"""A consumer group as tools see it: ConsumerGroupDescribe, and DescribeGroups for tools that know no other."""

from __future__ import annotations

from ottla.coordinators.groups.assignors import Assignment
from ottla.coordinators.groups.consumer_embedded import write_assignment, write_subscription
from ottla.coordinators.groups.consumer_group import CONSUMER, ConsumerGroup
from ottla.coordinators.groups.consumer_member import ConsumerMember
from ottla.coordinators.groups.conversion import named
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.protocol.messages import consumer_group_describe, describe_groups

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def described(
    group: ConsumerGroup, view: TopicsView, settings: GroupSettings
) -> consumer_group_describe.DescribedGroup:
    """As ConsumerGroupDescribe answers."""
    return consumer_group_describe.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(settings.consumer_assignors),
        members=tuple(_member(group, member, view) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, view: TopicsView) -> consumer_group_describe.Member:
    facts = member.facts
    return consumer_group_describe.Member(
        member_id=member.member_id,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        member_epoch=member.epoch,
        client_id=facts.client.client_id,
        client_host=facts.client.client_host,
        subscribed_topic_names=sorted(facts.topic_names),
        subscribed_topic_regex=facts.pattern or None,
        assignment=_assignment(member.assigned, view),
        target_assignment=_assignment(group.target_of(member.member_id), view),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(assignment: Assignment, view: TopicsView) -> consumer_group_describe.Assignment:
    found = ((topic_id, view.topic_name(topic_id), numbers) for topic_id, numbers in assignment.items())
    parts = [
        consumer_group_describe.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
        for topic_id, name, numbers in found
        if name is not None
    ]
    return consumer_group_describe.Assignment(topic_partitions=tuple(sorted(parts, key=lambda part: part.topic_name)))


def described_as_classic(
    group: ConsumerGroup, view: TopicsView, settings: GroupSettings
) -> describe_groups.DescribedGroup:
    """As DescribeGroups answers of a classic group: more than Kafka tells, whose answer is that there is no group."""
    return describe_groups.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=CONSUMER,
        protocol_data=group.preferred_assignor(settings.consumer_assignors),
        members=tuple(
            describe_groups.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.facts.instance_id,
                client_id=member.facts.client.client_id,
                client_host=member.facts.client.client_host,
                member_metadata=write_subscription(member.facts.topic_names, named(member.assigned, view)),
                member_assignment=write_assignment(named(member.assigned, view), version=0),
            )
            for member in group.members.values()
        ),
    )

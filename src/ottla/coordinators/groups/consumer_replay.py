"""How the records of consumer groups become groups: the one place that changes what is recorded of them.

Each record stands for itself. A compacted log may show them in another order than they were written in, say what a
member has before what it wants, so that any of them brings its group and its member into being.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import ConsumerMember, MemberState, restored_facts, restored_target
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

_logger = logging.getLogger(__name__)


def replay(groups: Groups, key: Message, value: Message | None) -> None:
    """Let the groups follow a record of a consumer group."""
    _REPLAYS[type(key)](groups, key, value)


def _group_metadata(groups: Groups, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
    if value is None:
        if groups.of_kind(key.group_id, ConsumerGroup) is not None:
            groups.remove(key.group_id)
        return
    group = _made(groups, key.group_id)
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _member_metadata(
    groups: Groups, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group = groups.of_kind(key.group_id, ConsumerGroup)
        if group is not None:
            group.drop_member(key.member_id)
        return
    group = _made(groups, key.group_id)
    member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
    facts = restored_facts(value)
    group.put_member(replace(member, facts=replace(facts, topic_names=group.shared(facts.topic_names))))


def _target_metadata(
    groups: Groups,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    if value is not None:
        _made(groups, key.group_id).target_epoch = value.assignment_epoch
        return
    group = groups.of_kind(key.group_id, ConsumerGroup)
    if group is not None:
        group.target_epoch = 0


def _target_member(
    groups: Groups,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is not None:
        _made(groups, key.group_id).targets[key.member_id] = restored_target(value)
        return
    group = groups.of_kind(key.group_id, ConsumerGroup)
    if group is not None:
        group.targets.pop(key.member_id, None)


def _current_assignment(
    groups: Groups,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is not None:
        group = _made(groups, key.group_id)
        member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
        group.put_member(member.restored(value))
        return
    present = groups.of_kind(key.group_id, ConsumerGroup)
    known = None if present is None else present.members.get(key.member_id)
    if present is not None and known is not None:
        present.put_member(ConsumerMember(key.member_id, known.facts, state=MemberState.STABLE))


def _regular_expression(
    groups: Groups, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    if value is not None:
        _made(groups, key.group_id).resolved[key.regular_expression] = frozenset(value.topics)
        return
    group = groups.of_kind(key.group_id, ConsumerGroup)
    if group is not None:
        group.resolved.pop(key.regular_expression, None)


def _passed_over(groups: Groups, key: ConsumerGroupPartitionMetadataKey, value: Message | None) -> None:
    """The hash of the topics has taken the place of what Kafka 4.0 kept here."""


def _made(groups: Groups, group_id: str) -> ConsumerGroup:
    group = groups.of_kind(group_id, ConsumerGroup)
    if group is None:
        if group_id in groups:
            _logger.warning("group %s has records of both protocols; it is a consumer group from now on", group_id)
        group = ConsumerGroup(group_id)
        groups.add(group)
    return group


_REPLAYS: Mapping[type[Message], Callable[[Groups, Any, Any], None]] = MappingProxyType(
    {
        ConsumerGroupMetadataKey: _group_metadata,
        ConsumerGroupPartitionMetadataKey: _passed_over,
        ConsumerGroupMemberMetadataKey: _member_metadata,
        ConsumerGroupTargetAssignmentMetadataKey: _target_metadata,
        ConsumerGroupTargetAssignmentMemberKey: _target_member,
        ConsumerGroupCurrentMemberAssignmentKey: _current_assignment,
        ConsumerGroupRegularExpressionKey: _regular_expression,
    }
)

RECORD_KEYS = frozenset(_REPLAYS)
"""The keys of all records of consumer groups."""

"""What a ConsumerGroupHeartbeat must look like, before anybody asks which group and which member it is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.coordinators.groups.assignors import Assignment
from ottla.coordinators.groups.consumer_limits import check_heartbeat_size
from ottla.coordinators.groups.consumer_member import JOIN_EPOCH, NO_TIMEOUT, STATIC_LEAVE_EPOCH
from ottla.coordinators.groups.settings import GroupSettings
from ottla.errors import InvalidRequest, UnsupportedAssignor
from ottla.protocol.messages.consumer_group_heartbeat import Assignment as AssignmentMessage
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

OWN_ID_VERSION = 1
"""From this version on members make their ids themselves, so that a join that is sent twice is one member."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, settings: GroupSettings) -> None:
    """Raise InvalidRequest, or UnsupportedAssignor, for a heartbeat that cannot be meant."""
    check_heartbeat_size(request)
    if not request.group_id:
        raise InvalidRequest("a heartbeat must name its group")
    if not request.member_id and (version >= OWN_ID_VERSION or request.member_epoch != JOIN_EPOCH):
        raise InvalidRequest("a heartbeat must name its member")
    if request.instance_id == "":
        raise InvalidRequest("an instance id cannot be empty; leave it out for a member without one")
    if request.rack_id == "":
        raise InvalidRequest("a rack cannot be empty; leave it out for a member without one")
    if request.rebalance_timeout_ms < NO_TIMEOUT:
        raise InvalidRequest(f"a rebalance timeout of {request.rebalance_timeout_ms} ms is not possible")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest(f"there is no member epoch {request.member_epoch}")
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequest("only a member with an instance id can leave for a while")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    if request.server_assignor is not None and request.server_assignor not in settings.consumer_assignors:
        offered = ", ".join(settings.consumer_assignors)
        raise UnsupportedAssignor(f"there is no assignor {request.server_assignor!r} here; there are {offered}")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise InvalidRequest("whoever joins must say its rebalance timeout")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequest("whoever joins must say that it owns no partitions")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequest("whoever joins must say which topics it is subscribed to, by name or by pattern")


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells everything, as it does when it joins and when it is not sure what we know.

    Then it may have missed an answer, too, and is told its assignment.
    """
    return (
        request.rebalance_timeout_ms != NO_TIMEOUT
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def owned_partitions(parts: Iterable[TopicPartitions] | None) -> dict[bytes, set[int]] | None:
    """What a member says that it owns, by topic; None where it does not say."""
    if parts is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for part in parts:
        if part.partitions:
            owned.setdefault(part.topic_id, set()).update(part.partitions)
    return owned


def told(assignment: Assignment) -> AssignmentMessage:
    """An assignment, as the answer carries it."""
    parts: Sequence[TopicPartitions] = [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(assignment.items())
    ]
    return AssignmentMessage(topic_partitions=tuple(parts))

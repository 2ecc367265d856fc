"""ShareGroupDescribe (API 77): describes share groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int16, Int32, Message, String, Uuid
from ottla.protocol.versions import Versions


class ShareGroupDescribeRequest(Message, frozen=True):
    """The groups to describe."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_GROUP_DESCRIBE].versions

    group_ids: Sequence[String] = ()
    include_authorized_operations: Bool = False


class TopicPartitions(Message, frozen=True):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: Sequence[Int32] = ()


class Assignment(Message, frozen=True):
    """The partitions that a member reads from."""

    topic_partitions: Sequence[TopicPartitions] = ()


class Member(Message, frozen=True):
    """One member of a group."""

    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    assignment: Assignment = Assignment()


class DescribedGroup(Message, frozen=True):
    """One group, or why it cannot be described."""

    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Sequence[Member] = ()
    authorized_operations: Int32 = -(2**31)


class ShareGroupDescribeResponse(Message, frozen=True):
    """The state and the members of each group."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_GROUP_DESCRIBE].versions

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup] = ()

"""ShareGroupHeartbeat (API 76): a member of a share group joins, stays or leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Message, String, Uuid
from ottla.protocol.versions import Versions


class ShareGroupHeartbeatRequest(Message, frozen=True):
    """What has changed at the member since its last heartbeat."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_GROUP_HEARTBEAT].versions

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: String | None = None
    subscribed_topic_names: Sequence[String] | None = None


class TopicPartitions(Message, frozen=True):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


class Assignment(Message, frozen=True):
    """The partitions that the member reads from."""

    topic_partitions: Sequence[TopicPartitions] = ()


class ShareGroupHeartbeatResponse(Message, frozen=True):
    """The member's epoch and, when it has changed, its assignment."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SHARE_GROUP_HEARTBEAT].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None

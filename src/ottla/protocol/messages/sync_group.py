"""SyncGroup (API 14): members fetch their assignments, which the leader brings along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bytes, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class SyncGroupRequestAssignment(Message, frozen=True):
    """The assignment that the leader made for one member."""

    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message, frozen=True):
    """The member's generation and, from the leader, everyone's assignment."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SYNC_GROUP].versions

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3)] = None
    protocol_type: Annotated[String | None, Since(5, ignorable=True)] = None
    protocol_name: Annotated[String | None, Since(5, ignorable=True)] = None
    assignments: Sequence[SyncGroupRequestAssignment] = ()


class SyncGroupResponse(Message, frozen=True):
    """The member's own assignment."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SYNC_GROUP].versions

    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, Since(5, ignorable=True)] = None
    protocol_name: Annotated[String | None, Since(5, ignorable=True)] = None
    assignment: Bytes = b""

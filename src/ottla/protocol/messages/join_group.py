"""JoinGroup (API 11): a member enters a group, or enters it again in a rebalance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Bytes, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class JoinGroupRequestProtocol(Message, frozen=True):
    """One protocol that the member speaks, with its subscription."""

    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message, frozen=True):
    """Who wants to join, and which assignment protocols it speaks."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.JOIN_GROUP].versions

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1, ignorable=True)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(5)] = None
    protocol_type: String = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    reason: Annotated[String | None, Since(8, ignorable=True)] = None


class JoinGroupResponseMember(Message, frozen=True):
    """A member, as the leader has to know it to assign partitions."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(5, ignorable=True)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message, frozen=True):
    """The new generation; its leader also gets the members."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.JOIN_GROUP].versions

    throttle_time_ms: Annotated[Int32, Since(2, ignorable=True)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Since(7, ignorable=True)] = None
    protocol_name: Annotated[String | None, Since(nullable_first=7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, Since(9)] = False
    member_id: String = ""
    members: Sequence[JoinGroupResponseMember] = ()

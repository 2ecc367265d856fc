"""LeaveGroup (API 13): members leave a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class MemberIdentity(Message, frozen=True):
    """A member that leaves."""

    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, Since(5, ignorable=True)] = None


class LeaveGroupRequest(Message, frozen=True):
    """Who leaves; since 3 several members at once."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LEAVE_GROUP].versions

    group_id: String = ""
    member_id: Annotated[String, Since(last=2)] = ""
    members: Annotated[Sequence[MemberIdentity], Since(3)] = ()


class MemberResponse(Message, frozen=True):
    """Whether one member was let go."""

    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message, frozen=True):
    """Whether each member was let go."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LEAVE_GROUP].versions

    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    error_code: Int16 = 0
    members: Annotated[Sequence[MemberResponse], Since(3)] = ()

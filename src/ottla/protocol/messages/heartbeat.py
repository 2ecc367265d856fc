"""Heartbeat (API 12): a member says that it is alive."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class HeartbeatRequest(Message, frozen=True):
    """Which member of which generation is alive."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.HEARTBEAT].versions

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3)] = None


class HeartbeatResponse(Message, frozen=True):
    """Whether the group is still as the member thinks."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.HEARTBEAT].versions

    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    error_code: Int16 = 0

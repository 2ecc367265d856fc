"""DescribeGroups (API 15): describes classic groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Bytes, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class DescribeGroupsRequest(Message, frozen=True):
    """The groups to describe."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_GROUPS].versions

    groups: Sequence[String] = ()
    include_authorized_operations: Annotated[Bool, Since(3)] = False


class DescribedGroupMember(Message, frozen=True):
    """One member of a group."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(4, ignorable=True)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message, frozen=True):
    """One group, or why it cannot be described."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: Annotated[Int32, Since(3)] = -(2**31)


class DescribeGroupsResponse(Message, frozen=True):
    """The state and the members of each group."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_GROUPS].versions

    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    groups: Sequence[DescribedGroup] = ()

"""ListGroups (API 16): lists the groups that a broker coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class ListGroupsRequest(Message, frozen=True):
    """Which states and types of groups are wanted."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_GROUPS].versions

    states_filter: Annotated[Sequence[String], Since(4)] = ()
    types_filter: Annotated[Sequence[String], Since(5)] = ()


class ListedGroup(Message, frozen=True):
    """One group, by name and kind."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4, ignorable=True)] = ""
    group_type: Annotated[String, Since(5, ignorable=True)] = ""


class ListGroupsResponse(Message, frozen=True):
    """The groups that were found."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_GROUPS].versions

    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    error_code: Int16 = 0
    groups: Sequence[ListedGroup] = ()

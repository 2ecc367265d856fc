"""DescribeAcls (API 29): lists access rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class DescribeAclsRequest(Message, frozen=True):
    """A filter for the rules that are wanted."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_ACLS].versions

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Message, frozen=True):
    """Who may, or may not, do what."""

    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Message, frozen=True):
    """The rules for one resource."""

    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: Sequence[AclDescription] = ()


class DescribeAclsResponse(Message, frozen=True):
    """The rules that match."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_ACLS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: Sequence[DescribeAclsResource] = ()

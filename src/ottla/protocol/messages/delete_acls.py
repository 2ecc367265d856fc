"""DeleteAcls (API 31): removes access rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class DeleteAclsFilter(Message, frozen=True):
    """A filter; null matches anything."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Message, frozen=True):
    """Filters for the rules to remove."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_ACLS].versions

    filters: Sequence[DeleteAclsFilter] = ()


class DeleteAclsMatchingAcl(Message, frozen=True):
    """A rule that a filter found."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Message, frozen=True):
    """What one filter found and removed."""

    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(Message, frozen=True):
    """The rules that each filter removed."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_ACLS].versions

    throttle_time_ms: Int32 = 0
    filter_results: Sequence[DeleteAclsFilterResult] = ()

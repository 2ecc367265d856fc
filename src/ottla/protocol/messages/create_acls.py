"""CreateAcls (API 30): adds access rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class AclCreation(Message, frozen=True):
    """A rule to add."""

    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message, frozen=True):
    """The rules to add."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_ACLS].versions

    creations: Sequence[AclCreation] = ()


class AclCreationResult(Message, frozen=True):
    """Whether one rule was added."""

    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(Message, frozen=True):
    """Whether each rule was added."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_ACLS].versions

    throttle_time_ms: Int32 = 0
    results: Sequence[AclCreationResult] = ()

"""IncrementalAlterConfigs (API 44): changes single configs of a resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class AlterableConfig(Message, frozen=True):
    """One change: set, delete, append or subtract."""

    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Message, frozen=True):
    """A resource and the changes to it."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[AlterableConfig] = ()


class IncrementalAlterConfigsRequest(Message, frozen=True):
    """The changes to each resource."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS].versions

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message, frozen=True):
    """Whether one resource was changed."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message, frozen=True):
    """Whether each resource was changed."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS].versions

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()

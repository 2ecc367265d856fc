"""AlterConfigs (API 33): replaces all configs of a resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class AlterableConfig(Message, frozen=True):
    """One config to set."""

    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Message, frozen=True):
    """A resource and all the configs it shall have."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[AlterableConfig] = ()


class AlterConfigsRequest(Message, frozen=True):
    """The configs that each resource shall have; what is absent goes back to its default."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_CONFIGS].versions

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message, frozen=True):
    """Whether one resource was changed."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message, frozen=True):
    """Whether each resource was changed."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_CONFIGS].versions

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()

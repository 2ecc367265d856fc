"""DescribeClientQuotas (API 48): lists client quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Float64, Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class ComponentData(Message, frozen=True):
    """One condition of the filter."""

    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(Message, frozen=True):
    """A filter for the entities whose quotas are wanted."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_CLIENT_QUOTAS].versions

    components: Sequence[ComponentData] = ()
    strict: Bool = False


class EntityData(Message, frozen=True):
    """One part of an entity: a user, a client id or an address."""

    entity_type: String = ""
    entity_name: String | None = ""


class ValueData(Message, frozen=True):
    """One quota."""

    key: String = ""
    value: Float64 = 0.0


class EntryData(Message, frozen=True):
    """One entity and its quotas."""

    entity: Sequence[EntityData] = ()
    values: Sequence[ValueData] = ()


class DescribeClientQuotasResponse(Message, frozen=True):
    """The quotas of each entity that matches."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_CLIENT_QUOTAS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: Sequence[EntryData] | None = ()

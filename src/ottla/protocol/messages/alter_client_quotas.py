"""AlterClientQuotas (API 49): changes client quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Float64, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class EntityData(Message, frozen=True):
    """One part of an entity: a user, a client id or an address."""

    entity_type: String = ""
    entity_name: String | None = ""


class OpData(Message, frozen=True):
    """One quota to set or remove."""

    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class RequestEntryData(Message, frozen=True):
    """One entity and the changes to its quotas."""

    entity: Sequence[EntityData] = ()
    ops: Sequence[OpData] = ()


class AlterClientQuotasRequest(Message, frozen=True):
    """The changes to each entity's quotas."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_CLIENT_QUOTAS].versions

    entries: Sequence[RequestEntryData] = ()
    validate_only: Bool = False


class ResponseEntryData(Message, frozen=True):
    """Whether one entity was changed."""

    error_code: Int16 = 0
    error_message: String | None = ""
    entity: Sequence[EntityData] = ()


class AlterClientQuotasResponse(Message, frozen=True):
    """Whether each entity was changed."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_CLIENT_QUOTAS].versions

    throttle_time_ms: Int32 = 0
    entries: Sequence[ResponseEntryData] = ()

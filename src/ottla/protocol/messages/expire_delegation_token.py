"""ExpireDelegationToken (API 40): lets a token run out sooner, or at once."""

from __future__ import annotations

from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bytes, Int16, Int32, Int64, Message
from ottla.protocol.versions import Versions


class ExpireDelegationTokenRequest(Message, frozen=True):
    """The token, and when it shall end."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.EXPIRE_DELEGATION_TOKEN].versions

    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message, frozen=True):
    """When the token runs out now."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.EXPIRE_DELEGATION_TOKEN].versions

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0

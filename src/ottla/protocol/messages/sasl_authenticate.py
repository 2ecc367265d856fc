"""SaslAuthenticate (API 36): carries one step of a SASL exchange."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bytes, Int16, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class SaslAuthenticateRequest(Message, frozen=True):
    """What the client's side of the mechanism says."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SASL_AUTHENTICATE].versions

    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message, frozen=True):
    """What the broker's side says, and for how long the login holds."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SASL_AUTHENTICATE].versions

    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1, ignorable=True)] = 0

"""SaslHandshake (API 17): a client names the SASL mechanism that it will use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Message, String
from ottla.protocol.versions import Versions


class SaslHandshakeRequest(Message, frozen=True):
    """The mechanism."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SASL_HANDSHAKE].versions

    mechanism: String = ""


class SaslHandshakeResponse(Message, frozen=True):
    """Whether the broker offers it, and what else it offers."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.SASL_HANDSHAKE].versions

    error_code: Int16 = 0
    mechanisms: Sequence[String] = ()

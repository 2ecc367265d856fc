"""Logging in over a new connection, without I/O: requests out, responses in, the login at the end.

A login is a generator: it yields what is to be asked, is sent the answer, and returns how long the login holds.
Both faces drive the same one. Knows nothing of sockets and TLS; no message holds a password or a token.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, Protocol

from ottla.client.errors import Answered, Unreachable
from ottla.client.errors_by_code import code_of, error_class
from ottla.client.scram import ScramError, ScramExchange
from ottla.client.security_errors import AuthenticationFailed
from ottla.client.security_settings import SecuritySettings, check_token
from ottla.client.settings import Address
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, ProtocolError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message

VERSIONS_VERSION = 0
"""Every broker answers this version of ApiVersions, so nothing has to be asked twice."""
HANDSHAKE_VERSION = 1
"""In version 0 what follows has no headers; brokers since Kafka 1.0 know this one."""
ROUNDS_MAX = 4
"""No mechanism that we know takes more; a broker that goes on asking is sent away."""


class Step(NamedTuple):
    """One request of the login."""

    api_key: ApiKey
    version: int
    message: Message


class Mechanism(Protocol):
    """The client's side of a SASL mechanism."""

    def first(self) -> bytes:
        """What to say without having been asked."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """The answer to what the broker said; None when nothing is left to say. ScramError when it must not go on."""
        ...


LoginSteps = Generator[Step, Message, int]


class Plain:
    """User name and password as they are: only TLS keeps them from being read on the way."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def next(self, challenge: bytes) -> None:
        return None


class Scram:
    """Both sides prove that they know the password; neither sends it."""

    def __init__(self, exchange: ScramExchange) -> None:
        self._exchange = exchange
        self._steps = iter((exchange.final_message, self._finish))

    def first(self) -> bytes:
        return self._exchange.first_message()

    def next(self, challenge: bytes) -> bytes | None:
        return next(self._steps)(challenge)

    def _finish(self, server_final: bytes) -> None:
        self._exchange.finish(server_final)


class OAuthBearer:
    """A token that somebody else has signed (RFC 7628)."""

    def __init__(self, token: str) -> None:
        self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        self._is_refused = False

    def first(self) -> bytes:
        return self._message

    def next(self, challenge: bytes) -> bytes | None:
        if self._is_refused:
            raise ScramError("the broker refused the token")
        if not challenge:
            return None
        # The broker has told why it refuses; it says so in its own way once it has heard that we understood.
        self._is_refused = True
        return b"\x01"


def token_of(settings: SecuritySettings) -> str:
    """The token to log in with; asks the user's function for it where that is what was given."""
    given = settings.sasl_token
    assert given is not None, "the settings have been checked"
    if isinstance(given, str):
        return given
    try:
        token = given()
    except OttlaError:
        raise
    except OSError as e:
        # Whoever issues tokens cannot be reached, which may pass.
        raise Unreachable(f"sasl_token: no token could be had: {e}") from e
    if not isinstance(token, str):
        raise AuthenticationFailed(f"sasl_token gave {type(token).__name__} where a text was expected")
    check_token(token)
    return token


def mechanism_of(settings: SecuritySettings, token: str, new_nonce: Callable[[], str]) -> Mechanism:
    """What the settings ask for; `token` is used by OAUTHBEARER alone."""
    assert settings.sasl_mechanism is not None, "the settings have been checked"
    if settings.sasl_mechanism == "OAUTHBEARER":
        return OAuthBearer(token)
    username, password = settings.sasl_username or "", settings.sasl_password or ""
    if settings.sasl_mechanism == "PLAIN":
        return Plain(username, password)
    return Scram(ScramExchange(settings.sasl_mechanism, username=username, password=password, nonce=new_nonce()))


def login(address: Address, settings: SecuritySettings, mechanism: Mechanism) -> LoginSteps:
    """The steps of a login; returns for how many milliseconds it holds, 0 for as long as the connection does."""
    name = settings.sasl_mechanism or ""
    version = yield from _authenticate_version(address)
    yield from _handshake(address, settings, name)
    challenge: bytes | None = None
    answer = mechanism.first()
    for _ in range(ROUNDS_MAX):
        reply = yield Step(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=answer))
        assert isinstance(reply, SaslAuthenticateResponse), "a response is of its request's kind"
        if reply.error_code != ErrorCode.NONE:
            raise _refused(address, settings, reply)
        challenge = bytes(reply.auth_bytes)
        try:
            said = mechanism.next(challenge)
        except ScramError as e:
            raise AuthenticationFailed(f"{address}: login by {name} failed: {e}") from e
        if said is None:
            return max(reply.session_lifetime_ms, 0)
        answer = said
    raise ProtocolError(f"{address}: the broker does not end the login by {name}")


def _authenticate_version(address: Address) -> Generator[Step, Message, int]:
    """The version of SaslAuthenticate that both sides know."""
    reply = yield Step(ApiKey.API_VERSIONS, VERSIONS_VERSION, ApiVersionsRequest())
    assert isinstance(reply, ApiVersionsResponse), "a response is of its request's kind"
    served = {each.api_key: each.max_version for each in reply.api_keys}
    if served.get(ApiKey.SASL_HANDSHAKE, -1) < HANDSHAKE_VERSION or ApiKey.SASL_AUTHENTICATE not in served:
        raise AuthenticationFailed(f"{address}: {_NO_LOGIN}")
    return min(served[ApiKey.SASL_AUTHENTICATE], APIS[ApiKey.SASL_AUTHENTICATE].versions.last)


_NO_LOGIN = (
    "the broker takes no logins here: set security_protocol to PLAINTEXT or SSL, "
    "or use the port of a listener that does"
)


def _handshake(address: Address, settings: SecuritySettings, name: str) -> Generator[Step, Message, None]:
    """Agree on the mechanism."""
    reply = yield Step(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=name))
    assert isinstance(reply, SaslHandshakeResponse), "a response is of its request's kind"
    code = code_of(reply.error_code)
    if code is ErrorCode.NONE:
        return
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(f"{address}: {_NO_LOGIN}")
    offered = ", ".join(sorted(reply.mechanisms)) or "none"
    raise error_class(code)(f"{address}: sasl_mechanism={name}: the broker offers {offered} ({code.name})")


def _refused(address: Address, settings: SecuritySettings, reply: SaslAuthenticateResponse) -> Answered:
    code = code_of(reply.error_code)
    if settings.sasl_mechanism == "OAUTHBEARER":
        who, fix = "the token", "check sasl_token"
    else:
        who, fix = f"user {settings.sasl_username!r}", "check sasl_username and sasl_password"
    said = f": {reply.error_message}" if reply.error_message else ""
    text = f"{address}: the broker refuses {who} by {settings.sasl_mechanism}{said} ({code.name}); {fix}"
    return error_class(code)(text)

"""Logins: the steps by themselves, and over both faces with a broker that wants one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client.blocking.client import connect
from ottla.client.client import connect_async
from ottla.client.errors import InvalidSetting, Unreachable
from ottla.client.sasl import LoginSteps, Step, login, mechanism_of, token_of
from ottla.client.security_errors import AuthenticationFailed, UntrustedConnection
from ottla.client.settings import Address, ClientSettings
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import Request
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message
from tests.client.scripted_broker import ScriptedCluster
from tests.client.socket_broker import SocketBroker, _Session

ADDRESS = Address("broker.example", 9092)
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "hush",
}
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
TOKEN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
OFFER = [
    ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=1),
    ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=2),
]


def _steps(**given: Any) -> LoginSteps:
    settings = ClientSettings(**(given or LOGIN))
    token = token_of(settings) if settings.sasl_token else ""
    return login(ADDRESS, settings, mechanism_of(settings, token, lambda: "nonce"))


def _first_words(steps: LoginSteps) -> Step:
    """Go through the steps up to what the mechanism says first."""
    assert next(steps).api_key is ApiKey.API_VERSIONS
    assert steps.send(ApiVersionsResponse(api_keys=OFFER)).api_key is ApiKey.SASL_HANDSHAKE
    return steps.send(SaslHandshakeResponse(mechanisms=["PLAIN"]))


def _said(step: Step) -> bytes:
    assert isinstance(step.message, SaslAuthenticateRequest)
    return bytes(step.message.auth_bytes)


def test_a_plain_login_sends_name_and_password_and_learns_how_long_it_holds() -> None:
    steps = _steps()

    step = _first_words(steps)

    assert (_said(step), step.version) == (b"\0alice\0hush", 2)
    with pytest.raises(StopIteration) as done:
        steps.send(SaslAuthenticateResponse(session_lifetime_ms=60_000))
    assert done.value.value == 60_000


def test_an_older_broker_is_asked_in_the_version_that_it_knows() -> None:
    steps = _steps()
    next(steps)
    old = [OFFER[0], ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=0)]
    steps.send(ApiVersionsResponse(api_keys=old))

    assert steps.send(SaslHandshakeResponse()).version == 0


def test_a_token_login_sends_the_token() -> None:
    assert _said(_first_words(_steps(**TOKEN, sasl_token="abc.def"))) == b"n,,\x01auth=Bearer abc.def\x01\x01"


def test_a_refused_token_is_acknowledged_before_the_broker_says_so() -> None:
    steps = _steps(**TOKEN, sasl_token="abc")
    _first_words(steps)

    assert _said(steps.send(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))) == b"\x01"
    with pytest.raises(AuthenticationFailed, match=r"expired.*check sasl_token"):
        steps.send(SaslAuthenticateResponse(error_code=58, error_message="expired"))


def test_a_broker_that_first_refuses_a_token_and_then_accepts_it_is_not_believed() -> None:
    steps = _steps(**TOKEN, sasl_token="abc")
    _first_words(steps)
    steps.send(SaslAuthenticateResponse(auth_bytes=b"{}"))

    with pytest.raises(AuthenticationFailed, match="refused the token"):
        steps.send(SaslAuthenticateResponse())


def test_a_broker_that_lets_anybody_in_without_a_proof_is_not_believed() -> None:
    steps = _steps(**{**LOGIN, "sasl_mechanism": "SCRAM-SHA-256"})
    assert _said(_first_words(steps)) == b"n,,n=alice,r=nonce"

    with pytest.raises(AuthenticationFailed, match="not one of SCRAM"):
        steps.send(SaslAuthenticateResponse())


def test_a_refusal_names_the_user_and_not_the_password() -> None:
    steps = _steps()
    _first_words(steps)

    with pytest.raises(AuthenticationFailed, match=r"'alice'.*no such.*sasl_password") as refused:
        steps.send(SaslAuthenticateResponse(error_code=58, error_message="no such user or password"))

    assert "hush" not in str(refused.value)
    assert not refused.value.retriable


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    steps = _steps()
    next(steps)
    steps.send(ApiVersionsResponse(api_keys=OFFER))

    with pytest.raises(OttlaError, match=r"sasl_mechanism=PLAIN.*SCRAM-SHA-256, SCRAM-SHA-512"):
        steps.send(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512", "SCRAM-SHA-256"]))


def test_a_broker_that_knows_no_logins_is_named_as_such() -> None:
    steps = _steps()
    next(steps)

    with pytest.raises(AuthenticationFailed, match="set security_protocol to PLAINTEXT"):
        steps.send(ApiVersionsResponse(api_keys=OFFER[:1]))


def test_a_listener_that_wants_no_login_is_named_as_such() -> None:
    steps = _steps()
    next(steps)
    steps.send(ApiVersionsResponse(api_keys=OFFER))

    with pytest.raises(AuthenticationFailed, match="set security_protocol to PLAINTEXT"):
        steps.send(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def test_a_broker_that_never_ends_the_exchange_is_left() -> None:
    class Patient:
        def first(self) -> bytes:
            return b"x"

        def next(self, challenge: bytes) -> bytes | None:
            return b"x"

    steps = login(ADDRESS, ClientSettings(**LOGIN), Patient())  # type: ignore[arg-type]
    _first_words(steps)

    def go_on() -> None:
        for _ in range(100):
            steps.send(SaslAuthenticateResponse(auth_bytes=b"more"))

    with pytest.raises(ProtocolError, match="does not end"):
        go_on()


def _unreachable() -> str:
    raise ConnectionRefusedError("nobody there")


@pytest.mark.parametrize(
    ("give", "kind"),
    [(_unreachable, Unreachable), (lambda: "a b", InvalidSetting), (lambda: b"bytes", AuthenticationFailed)],
)
def test_a_function_that_gives_no_token_fails_the_login(give: Callable[[], Any], kind: type[OttlaError]) -> None:
    with pytest.raises(kind, match="sasl_token"):
        token_of(ClientSettings(**TOKEN, sasl_token=give))  # type: ignore[arg-type]


# --- over sockets --------------------------------------------------------------------------------------


class Door:
    """Makes a scripted broker want a login by PLAIN before it answers anything else."""

    def __init__(self, broker: SocketBroker, *, lifetime_ms: int = 0) -> None:
        self._broker = broker
        self._lifetime_ms = lifetime_ms
        self._let_in: set[_Session] = set()
        self.logins = 0

    def __call__(self, session: _Session, request: Request) -> bool:
        message = request.message
        if isinstance(message, SaslHandshakeRequest):
            return _answer(session, request, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        if isinstance(message, SaslAuthenticateRequest):
            return self._authenticate(session, request, bytes(message.auth_bytes))
        if request.header.api_key is ApiKey.API_VERSIONS and request.header.api_version == 0:
            return _answer(session, request, ApiVersionsResponse(api_keys=OFFER))
        if session not in self._let_in and request.header.api_key is not ApiKey.API_VERSIONS:
            assert session.transport is not None
            session.transport.close()
            return True
        return False

    def _authenticate(self, session: _Session, request: Request, said: bytes) -> bool:
        if said != b"\0alice\0hush":
            return _answer(session, request, SaslAuthenticateResponse(error_code=58, error_message="wrong password"))
        self.logins += 1
        self._let_in.add(session)
        return _answer(session, request, SaslAuthenticateResponse(session_lifetime_ms=self._lifetime_ms))


def _answer(session: _Session, request: Request, message: Message) -> bool:
    assert session.transport is not None
    session.transport.writelines(session._connection.respond(request, message))
    return True


@pytest.fixture
def broker(cluster: ScriptedCluster) -> Iterator[SocketBroker]:
    cluster.create("t", 1)
    with SocketBroker(cluster) as running:
        yield running


def _send_blocking(bootstrap: str, settings: dict[str, Any], values: list[bytes]) -> list[int]:
    with connect(bootstrap, **{**QUICK, **settings}) as client, client.producer(retries=0) as producer:
        return [producer.send("t", value, partition=0).offset for value in values]


def _send_async(bootstrap: str, settings: dict[str, Any], values: list[bytes]) -> list[int]:
    async def story() -> list[int]:
        given = {**QUICK, **settings}
        async with connect_async(bootstrap, **given) as client, client.producer(retries=0) as producer:
            return [(await producer.send("t", value, partition=0)).offset for value in values]

    return asyncio.run(story())


Send = Callable[[str, dict[str, Any], list[bytes]], list[int]]
both_faces = pytest.mark.parametrize("send", [_send_blocking, _send_async])


@both_faces
def test_a_client_logs_in_once_per_connection(broker: SocketBroker, send: Send) -> None:
    broker.mischief = door = Door(broker)

    assert send(broker.bootstrap, LOGIN, [b"a", b"b", b"c"]) == [0, 1, 2]
    assert door.logins == 1


@both_faces
def test_a_wrong_password_is_told_at_once(broker: SocketBroker, send: Send) -> None:
    broker.mischief = Door(broker)

    with pytest.raises(AuthenticationFailed, match=r"'alice'.*wrong password"):
        send(broker.bootstrap, {**LOGIN, "sasl_password": "guess"}, [b"a"])
    assert len(broker.sessions) == 1


@both_faces
def test_a_login_that_is_about_to_end_is_renewed_on_a_new_connection(broker: SocketBroker, send: Send) -> None:
    broker.mischief = door = Door(broker, lifetime_ms=1)

    # Nothing is tried again here, so a request on a connection that is over would fail.
    assert send(broker.bootstrap, LOGIN, [b"a", b"b", b"c"]) == [0, 1, 2]
    assert door.logins >= 4


@both_faces
def test_a_client_without_a_login_is_told_that_one_is_wanted(broker: SocketBroker, send: Send) -> None:
    broker.mischief = Door(broker)

    with pytest.raises(UntrustedConnection, match="wants TLS or a login, set security_protocol"):
        send(broker.bootstrap, {}, [b"a"])
    assert len(broker.sessions) == 3


@both_faces
def test_a_broker_that_answers_in_tls_is_recognised(broker: SocketBroker, send: Send) -> None:
    def alert(session: _Session, request: Request) -> bool:
        assert session.transport is not None
        session.transport.write(b"\x15\x03\x03\x00\x02\x02\x50")
        return True

    broker.mischief = alert

    with pytest.raises(UntrustedConnection, match="speaks TLS here: set security_protocol to SSL"):
        send(broker.bootstrap, {}, [b"a"])


@both_faces
def test_a_broker_that_says_nothing_during_the_login_is_left_in_time(broker: SocketBroker, send: Send) -> None:
    broker.mischief = lambda session, request: True

    with pytest.raises(OttlaError, match="50 ms"):
        send(broker.bootstrap, {**LOGIN, "connect_timeout_ms": 50}, [b"a"])


@both_faces
def test_a_function_gives_a_fresh_token_for_every_login(broker: SocketBroker, send: Send) -> None:
    given = [f"token-{number}" for number in range(20)]
    seen: list[bytes] = []

    def door(session: _Session, request: Request) -> bool:
        message = request.message
        if isinstance(message, SaslHandshakeRequest):
            return _answer(session, request, SaslHandshakeResponse())
        if isinstance(message, SaslAuthenticateRequest):
            seen.append(bytes(message.auth_bytes))
            return _answer(session, request, SaslAuthenticateResponse(session_lifetime_ms=1))
        if request.header.api_key is ApiKey.API_VERSIONS and request.header.api_version == 0:
            return _answer(session, request, ApiVersionsResponse(api_keys=OFFER))
        return False

    broker.mischief = door

    send(broker.bootstrap, {**TOKEN, "sasl_token": iter(given).__next__}, [b"a"])

    assert [said.split(b" ")[1].rstrip(b"\x01").decode() for said in seen] == given[: len(seen)]
    assert len(seen) > 1

"""Both faces against Apache Kafka with a door for every kind of security."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.client.blocking.client import connect
from ottla.client.client import connect_async
from ottla.client.errors import NoBrokerReachable
from ottla.client.errors_by_code import error_class
from ottla.client.security_errors import AuthenticationFailed, UntrustedConnection
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from tests.client.secure_kafka import (
    LIFETIME_MS,
    PASSWORD,
    SPECIAL_PASSWORD,
    SPECIAL_USER,
    USER,
    SecureKafka,
    secure_kafka,
)
from tests.peers.tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.peers]

TOKEN_SECONDS = 3_600
_numbers = count()


@pytest.fixture(scope="module")
def kafka(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka")) as running:
        yield running


VALUES = [b"%d" % number * 300 for number in range(300)]


def _blocking(bootstrap: str, settings: dict[str, Any]) -> list[bytes | None]:
    """What is read back from a fresh topic."""
    name = f"topic-{next(_numbers)}"
    with connect(bootstrap, **settings) as client:
        client.admin().create_topic(name)
        with client.producer() as producer:
            producer.send_batch(name, VALUES)
        with client.consumer() as consumer:
            consumer.subscribe([name])
            return [record.value for record in consumer.records(idle_ms=300)]


def _async(bootstrap: str, settings: dict[str, Any]) -> list[bytes | None]:
    async def story() -> list[bytes | None]:
        name = f"topic-{next(_numbers)}"
        async with connect_async(bootstrap, **settings) as client:
            await client.admin().create_topic(name)
            async with client.producer() as producer:
                await producer.send_batch(name, VALUES)
            async with client.consumer() as consumer:
                await consumer.subscribe([name])
                return [record.value async for record in consumer.records(idle_ms=300)]

    return asyncio.run(story())


Story = Callable[[str, dict[str, Any]], list[bytes | None]]
both_faces = pytest.mark.parametrize("tell", [_blocking, _async])


def _tls(kafka: SecureKafka) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_ca_location": str(kafka.authority.certificate)}


def _login(mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    login = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
    return {"security_protocol": "SASL_PLAINTEXT", **login}


def _token(lifetime_seconds: int = TOKEN_SECONDS) -> str:
    """A token that nobody has signed, which Kafka accepts where it is not told better."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now - 1, "exp": now + lifetime_seconds})
    return "".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() + "." for part in parts)


@both_faces
def test_records_come_and_go_over_tls(kafka: SecureKafka, tell: Story) -> None:
    assert tell(kafka.addresses["TLS"], _tls(kafka)) == VALUES


@both_faces
def test_records_come_and_go_where_the_client_is_known_by_its_certificate(kafka: SecureKafka, tell: Story) -> None:
    certificate = {
        "ssl_certificate_location": str(kafka.client.certificate),
        "ssl_key_location": str(kafka.client.key),
    }

    assert tell(kafka.addresses["MUTUAL"], {**_tls(kafka), **certificate}) == VALUES


@both_faces
def test_a_client_without_a_certificate_is_told_that_one_is_wanted(kafka: SecureKafka, tell: Story) -> None:
    with pytest.raises((UntrustedConnection, NoBrokerReachable), match="ssl_certificate_location"):
        tell(kafka.addresses["MUTUAL"], _tls(kafka))


@both_faces
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_come_and_go_after_a_login(kafka: SecureKafka, tell: Story, mechanism: str) -> None:
    assert tell(kafka.addresses["LOGIN"], _login(mechanism)) == VALUES


@both_faces
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_come_and_go_after_a_login_over_tls(kafka: SecureKafka, tell: Story, mechanism: str) -> None:
    settings = {**_tls(kafka), **_login(mechanism), "security_protocol": "SASL_SSL"}

    assert tell(kafka.addresses["TLSLOGIN"], settings) == VALUES


@both_faces
def test_name_and_password_may_hold_any_character(kafka: SecureKafka, tell: Story) -> None:
    assert tell(kafka.addresses["LOGIN"], _login("SCRAM-SHA-512", SPECIAL_USER, SPECIAL_PASSWORD)) == VALUES


@both_faces
def test_records_come_and_go_after_a_login_by_token(kafka: SecureKafka, tell: Story) -> None:
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_token": _token}

    assert tell(kafka.addresses["LOGIN"], settings) == VALUES


@both_faces
def test_an_expired_token_is_refused(kafka: SecureKafka, tell: Story) -> None:
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_token": _token(-60)}

    with pytest.raises(AuthenticationFailed, match=r"invalid_token.*check sasl_token"):
        tell(kafka.addresses["LOGIN"], settings)


@both_faces
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", [USER, "nobody"])
def test_a_wrong_password_and_an_unknown_user_are_refused(
    kafka: SecureKafka, tell: Story, mechanism: str, user: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=f"'{user}'.*check sasl_username and sasl_password") as refused:
        tell(kafka.addresses["LOGIN"], _login(mechanism, user, "hush"))
    assert "hush" not in str(refused.value)


@both_faces
def test_a_mechanism_that_is_not_offered_is_refused(kafka: SecureKafka, tell: Story) -> None:
    with pytest.raises(error_class(ErrorCode.UNSUPPORTED_SASL_MECHANISM), match="the broker offers PLAIN "):
        tell(kafka.addresses["PLAINONLY"], _login("SCRAM-SHA-256"))


@both_faces
@pytest.mark.parametrize(
    ("door", "protocol", "told"),
    [
        ("TLS", "PLAINTEXT", "speaks TLS here: set security_protocol to SSL"),
        ("TLSLOGIN", "SASL_PLAINTEXT", "speaks TLS here: set security_protocol to SASL_SSL"),
        ("LOGIN", "PLAINTEXT", "wants TLS or a login, set security_protocol"),
        ("TLSLOGIN", "SSL", "wants a login, set security_protocol to SASL_SSL"),
        ("PLAINTEXT", "SSL", "set security_protocol to PLAINTEXT"),
        ("LOGIN", "SASL_SSL", "set security_protocol to PLAINTEXT or SASL_PLAINTEXT"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "takes no logins here: set security_protocol to PLAINTEXT"),
        ("ELSEWHERE", "SSL", "another host"),
    ],
)
def test_the_wrong_door_is_told_at_once_with_what_to_set(
    kafka: SecureKafka, tell: Story, door: str, protocol: str, told: str
) -> None:
    settings: dict[str, Any] = {"security_protocol": protocol}
    if "SSL" in protocol:
        settings = {**_tls(kafka), **settings}
    if "SASL" in protocol:
        settings = {**_login("PLAIN"), **settings}

    with pytest.raises(OttlaError, match=told):
        tell(kafka.addresses[door], settings)


def test_a_login_that_ends_is_renewed_before_any_request_fails(kafka: SecureKafka) -> None:
    # Without retries a request on a connection whose login is over would fail.
    _blocking(kafka.addresses["PLAINTEXT"], {})  # A broker that has just started hands out no producer ids.
    end = time.monotonic() + 1.5 * LIFETIME_MS / 1000
    with connect(kafka.addresses["SHORT"], **_login("SCRAM-SHA-256")) as client:
        client.admin().create_topic("short")
        with client.producer(retries=0) as producer:
            offsets = [producer.send("short", b"x").offset]
            while time.monotonic() < end:
                offsets.append(producer.send("short", b"x").offset)

    assert offsets == list(range(len(offsets)))


def test_a_login_that_ends_is_renewed_under_requests_that_never_pause(kafka: SecureKafka) -> None:
    _blocking(kafka.addresses["PLAINTEXT"], {})
    end = time.monotonic() + 1.5 * LIFETIME_MS / 1000

    async def story() -> list[int]:
        async with connect_async(kafka.addresses["SHORT"], **_login("PLAIN")) as client:
            await client.admin().create_topic("short-async")

            async def send() -> list[int]:
                offsets = [(await producer.send("short-async", b"x")).offset]
                while time.monotonic() < end:
                    offsets.append((await producer.send("short-async", b"x")).offset)
                return offsets

            async with client.producer(retries=0) as producer:
                found = await asyncio.gather(*(send() for _ in range(5)))
                return [offset for offsets in found for offset in offsets]

    offsets = asyncio.run(story())

    assert sorted(offsets) == list(range(len(offsets)))

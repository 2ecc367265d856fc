"""TLS on both faces: Ottla's own broker behind TLS, and every way in which it does not come about."""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.client.blocking.client import connect
from ottla.client.blocking_transport import BlockingTransport
from ottla.client.client import connect_async
from ottla.client.errors import InvalidSetting, NetworkException, NoBrokerReachable
from ottla.client.security_errors import AuthenticationFailed, UntrustedConnection
from ottla.client.security_settings import SecuritySettings
from ottla.client.settings import ClientSettings, parse_addresses
from ottla.client.tls import tls_context
from ottla.client.transport import Call, run_now
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing.server_thread import ServerThread
from tests.client.certificates import KEY_PASSWORD, Authority, Identity, encrypted_key
from tests.client.tls_relay import TlsRelay

WAIT_SECONDS = 30


class Made(NamedTuple):
    """What the tests share: making keys takes its time."""

    authority: Authority
    stranger: Authority
    server: Identity
    elsewhere: Identity
    client: Identity


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority(root, "authority"), Authority(root, "stranger")
    return Made(
        authority,
        stranger,
        authority.signed("server", "DNS:localhost,IP:127.0.0.1"),
        authority.signed("elsewhere", "DNS:elsewhere.example"),
        authority.signed("client", "DNS:client.example"),
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(str(tmp_path_factory.mktemp("broker") / "data"))
    server.start()
    yield server
    server.stop()


def _clusters_blocking(bootstrap: str, settings: dict[str, Any]) -> int:
    """How many brokers the cluster has, asked once."""
    with connect(bootstrap, **settings) as client:
        return len(client.admin().cluster().brokers)


def _clusters_async(bootstrap: str, settings: dict[str, Any]) -> int:
    async def story() -> int:
        async with connect_async(bootstrap, **settings) as client:
            return len((await client.admin().cluster()).brokers)

    return asyncio.run(story())


Ask = Callable[[str, dict[str, Any]], int]
both_faces = pytest.mark.parametrize("ask", [_clusters_blocking, _clusters_async])


def _tls(made: Made, **more: Any) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_ca_location": str(made.authority.certificate), **more}


def _relay(made: Made, plain: ServerThread, identity: Identity | None = None, clients: Path | None = None) -> TlsRelay:
    return TlsRelay((plain.host, plain.port), identity or made.server, clients=clients)


@both_faces
def test_a_broker_behind_tls_is_asked(made: Made, plain: ServerThread, ask: Ask) -> None:
    with _relay(made, plain) as relay:
        assert ask(relay.bootstrap, _tls(made)) == 1


@both_faces
def test_certificates_and_key_may_be_given_as_text(made: Made, plain: ServerThread, ask: Ask) -> None:
    with _relay(made, plain, clients=made.authority.certificate) as relay:
        settings = {
            "security_protocol": "SSL",
            "ssl_ca_pem": made.authority.certificate.read_text(),
            "ssl_certificate_pem": made.client.certificate.read_text(),
            "ssl_key_pem": made.client.key.read_text(),
        }

        assert ask(relay.bootstrap, settings) == 1


@both_faces
def test_a_client_is_known_by_its_certificate(made: Made, plain: ServerThread, ask: Ask) -> None:
    with _relay(made, plain, clients=made.authority.certificate) as relay:
        certificate = {
            "ssl_certificate_location": str(made.client.certificate),
            "ssl_key_location": str(encrypted_key(made.client)),
            "ssl_key_password": KEY_PASSWORD,
        }

        assert ask(relay.bootstrap, _tls(made, **certificate)) == 1


@both_faces
def test_a_client_without_the_certificate_that_is_wanted_is_told(made: Made, plain: ServerThread, ask: Ask) -> None:
    with (
        _relay(made, plain, clients=made.authority.certificate) as relay,
        pytest.raises((UntrustedConnection, NoBrokerReachable), match="ssl_certificate_location"),
    ):
        ask(relay.bootstrap, _tls(made))


@both_faces
def test_a_certificate_of_an_unknown_authority_is_not_trusted(made: Made, plain: ServerThread, ask: Ask) -> None:
    settings = {"security_protocol": "SSL", "ssl_ca_location": str(made.stranger.certificate)}
    with _relay(made, plain) as relay, pytest.raises(UntrustedConnection, match=r"not trusted.*set ssl_ca_location"):
        ask(relay.bootstrap, settings)


@both_faces
def test_without_an_authority_those_of_the_system_count(made: Made, plain: ServerThread, ask: Ask) -> None:
    with _relay(made, plain) as relay, pytest.raises(UntrustedConnection, match="not trusted"):
        ask(relay.bootstrap, {"security_protocol": "SSL"})


@both_faces
def test_a_certificate_for_another_host_is_refused(made: Made, plain: ServerThread, ask: Ask) -> None:
    with (
        _relay(made, plain, made.elsewhere) as relay,
        pytest.raises(UntrustedConnection, match=r"another host.*127\.0\.0\.1.*ssl_check_hostname"),
    ):
        ask(relay.bootstrap, _tls(made))


@both_faces
def test_the_check_of_the_host_name_can_be_switched_off(made: Made, plain: ServerThread, ask: Ask) -> None:
    with _relay(made, plain, made.elsewhere) as relay:
        assert ask(relay.bootstrap, _tls(made, ssl_check_hostname=False)) == 1


@both_faces
def test_a_context_of_the_user_s_own_is_used(made: Made, plain: ServerThread, ask: Ask) -> None:
    context = tls_context(SecuritySettings(**_tls(made)))
    with _relay(made, plain) as relay:
        assert ask(relay.bootstrap, {"security_protocol": "SSL", "ssl_context": context}) == 1


@both_faces
def test_tls_to_a_plain_broker_is_told(made: Made, plain: ServerThread, ask: Ask) -> None:
    with pytest.raises(NoBrokerReachable, match="set security_protocol to PLAINTEXT"):
        ask(plain.bootstrap, _tls(made))


@both_faces
def test_plain_bytes_to_a_tls_broker_are_told(made: Made, plain: ServerThread, ask: Ask) -> None:
    with (
        _relay(made, plain) as relay,
        pytest.raises((UntrustedConnection, NoBrokerReachable), match="set security_protocol"),
    ):
        ask(relay.bootstrap, {})


@both_faces
def test_a_login_at_a_broker_that_takes_none_is_told(plain: ServerThread, ask: Ask) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    with pytest.raises(AuthenticationFailed, match="takes no logins here"):
        ask(plain.bootstrap, {"security_protocol": "SASL_PLAINTEXT", **login})


class TestOfFiles:
    """What is wrong with a file is told before any connection is made."""

    @pytest.fixture
    def nowhere(self) -> str:
        return "127.0.0.1:1"

    @both_faces
    def test_an_authority_that_is_not_there(self, nowhere: str, tmp_path: Path, ask: Ask) -> None:
        settings = {"security_protocol": "SSL", "ssl_ca_location": str(tmp_path / "none.pem")}
        with pytest.raises(InvalidSetting, match=r"ssl_ca_location='.*none\.pem'"):
            ask(nowhere, settings)

    @both_faces
    def test_a_java_store_for_an_authority(self, nowhere: str, tmp_path: Path, ask: Ask) -> None:
        store = tmp_path / "trust.jks"
        store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
        with pytest.raises(InvalidSetting, match="keytool"):
            ask(nowhere, {"security_protocol": "SSL", "ssl_ca_location": str(store)})

    def test_an_encrypted_key_without_its_password(self, nowhere: str, made: Made) -> None:
        settings = _tls(
            made,
            ssl_certificate_location=str(made.client.certificate),
            ssl_key_location=str(encrypted_key(made.client)),
        )
        with pytest.raises(InvalidSetting, match="set ssl_key_password"):
            _clusters_blocking(nowhere, settings)

    @pytest.mark.parametrize("password", [KEY_PASSWORD[1:], "x"])
    def test_a_wrong_password_does_not_show(self, nowhere: str, made: Made, password: str) -> None:
        settings = _tls(
            made,
            ssl_certificate_location=str(made.client.certificate),
            ssl_key_location=str(encrypted_key(made.client)),
            ssl_key_password=f"hush{password}",
        )
        with pytest.raises(InvalidSetting, match="ssl_key_password must open the key") as refused:
            _clusters_blocking(nowhere, settings)
        assert "hush" not in str(refused.value)

    def test_a_key_that_belongs_to_another_certificate(self, nowhere: str, made: Made) -> None:
        settings = _tls(
            made, ssl_certificate_location=str(made.client.certificate), ssl_key_location=str(made.server.key)
        )
        with pytest.raises(InvalidSetting, match="belong together"):
            _clusters_blocking(nowhere, settings)

    def test_a_certificate_that_is_not_there(self, nowhere: str, made: Made, tmp_path: Path) -> None:
        settings = _tls(made, ssl_certificate_location=str(tmp_path / "none.pem"))
        with pytest.raises(InvalidSetting, match=r"none\.pem"):
            _clusters_blocking(nowhere, settings)

    def test_key_and_certificate_in_one_file(self, made: Made) -> None:
        settings = SecuritySettings(**_tls(made, ssl_certificate_location=str(made.client.together())))
        assert tls_context(settings).check_hostname

    def test_a_directory_of_authorities(self, made: Made, plain: ServerThread, tmp_path: Path) -> None:
        (tmp_path / "authority.pem").write_bytes(made.authority.certificate.read_bytes())
        subprocess.run(["openssl", "rehash", str(tmp_path)], check=True, capture_output=True, timeout=60)
        with _relay(made, plain) as relay:
            assert _clusters_blocking(relay.bootstrap, {"security_protocol": "SSL", "ssl_ca_location": str(tmp_path)})


# The client connects again to what the cluster's metadata names, which is the broker without TLS; so what the blocking
# transport does with one connection over time is looked at by itself.


def test_a_request_that_waits_is_ended_from_another_thread(made: Made) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, TlsRelay(silent.getsockname(), made.server) as relay:
        (address,) = parse_addresses(relay.bootstrap)
        transport = BlockingTransport(ClientSettings(**_tls(made)))
        ended: list[Exception] = []

        def ask() -> None:
            try:
                run_now(transport.request(Call(address, ApiKey.METADATA, 9, MetadataRequest(), 3_600_000)))
            except OttlaError as e:
                ended.append(e)

        thread = threading.Thread(target=ask)
        thread.start()
        # The request has come through the relay, so its thread is waiting for the answer.
        with silent.accept()[0] as behind:
            assert behind.recv(1)
            transport.interrupt()
            thread.join(WAIT_SECONDS)

    assert [type(error) for error in ended] == [NetworkException]


def test_large_requests_and_answers_pass_and_an_idle_connection_that_ended_is_replaced(
    made: Made, plain: ServerThread
) -> None:
    many = [MetadataRequestTopic(name=f"{number}-{'x' * 200}") for number in range(10_000)]
    with _relay(made, plain) as relay:
        (address,) = parse_addresses(relay.bootstrap)
        transport = BlockingTransport(ClientSettings(**_tls(made)))
        large = Call(address, ApiKey.METADATA, 9, MetadataRequest(topics=many, allow_auto_topic_creation=False), 30_000)
        assert len(run_now(transport.request(large)).topics) == 10_000  # type: ignore[union-attr]
        assert len(run_now(transport.request(large)).topics) == 10_000  # type: ignore[union-attr]
        assert relay.accepted == 1

        relay.hang_up()
        assert select.select([transport._lines[address]._socket], [], [], WAIT_SECONDS)[0]
        small = Call(address, ApiKey.METADATA, 9, MetadataRequest(topics=()), 30_000)
        run_now(transport.request(small))

        assert relay.accepted == 2
        run_now(transport.close())

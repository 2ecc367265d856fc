"""Apache Kafka with a door for every kind of security, on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.client.certificates import Authority, Identity
from tests.client.kafka_server import kafka_server
from tests.peers.tools import Tools

USER = "alice"
PASSWORD = 'wonder=land, \\ and "more"'
SPECIAL_USER = "o=,live"
SPECIAL_PASSWORD = "\u2168\u0171\u2003x"
"""Text that a preparation by the RFC of SCRAM would change."""
LIFETIME_MS = 3_000
DOORS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "TLSLOGIN": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "PLAINONLY": "SASL_PLAINTEXT",
}
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
_MODULES = "org.apache.kafka.common.security"


class SecureKafka(NamedTuple):
    """The doors by name, and what it takes to go through them."""

    addresses: Mapping[str, str]
    authority: Authority
    client: Identity


def _settings(server: Identity, elsewhere: Identity, authority: Authority) -> str:
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in DOORS.items())
    lines = [
        f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
        "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={server.together()}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.certificate}",
        "listener.name.mutual.ssl.client.auth=required",
        "listener.name.elsewhere.ssl.keystore.type=PEM",
        f"listener.name.elsewhere.ssl.keystore.location={elsewhere.together()}",
        f"sasl.enabled.mechanisms={MECHANISMS}",
        "listener.name.plainonly.sasl.enabled.mechanisms=PLAIN",
        "connection.failed.authentication.delay.ms=0",
    ]
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{escaped}";'
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    token = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    modules = {"plain": plain, "scram-sha-256": scram, "scram-sha-512": scram, "oauthbearer": token}
    for name, protocol in DOORS.items():
        if protocol.startswith("SASL"):
            for mechanism, module in modules.items():
                # A backslash is read once more by the properties file.
                text = module.replace("\\", "\\\\")
                lines.append(f"listener.name.{name.lower()}.{mechanism}.sasl.jaas.config={text}")
    lines += [f"listener.name.short.{mechanism}.connections.max.reauth.ms={LIFETIME_MS}" for mechanism in modules]
    return "".join(f"{line}\n" for line in lines)


@contextmanager
def secure_kafka(tools: Tools, root: Path) -> Iterator[SecureKafka]:
    """A broker with all doors open until the block ends."""
    authority = Authority(root, "authority")
    server = authority.signed("server", "DNS:localhost,IP:127.0.0.1")
    elsewhere = authority.signed("elsewhere", "DNS:elsewhere.example")
    client = authority.signed("client", "DNS:client.example")
    with ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in DOORS]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        addresses = {name: f"127.0.0.1:{each.getsockname()[1]}" for name, each in zip(DOORS, taken, strict=True)}
    listeners = [f"{name}://{address}" for name, address in addresses.items()]
    settings = _settings(server, elsewhere, authority)
    with kafka_server(tools, root, settings, listeners=listeners) as plain:
        _add_users(tools, plain, root)
        yield SecureKafka({"PLAINTEXT": plain, **addresses}, authority, client)


def _add_users(tools: Tools, address: str, root: Path) -> None:
    """One credential at a time: Kafka takes no more of a user's."""
    for user, password, mechanism in (
        (USER, PASSWORD, "SCRAM-SHA-256"),
        (USER, PASSWORD, "SCRAM-SHA-512"),
        (SPECIAL_USER, SPECIAL_PASSWORD, "SCRAM-SHA-512"),
    ):
        text = password.replace("\\", "\\\\").encode("ascii", "backslashreplace").decode()
        config = root / "user.properties"
        config.write_text(f"{mechanism}=password={text}\n", encoding="utf-8")
        who = ("--entity-type", "users", "--entity-name", user)
        what = ("--alter", "--add-config-file", str(config))
        tools.run("kafka.admin.ConfigCommand", "--bootstrap-server", address, *who, *what)

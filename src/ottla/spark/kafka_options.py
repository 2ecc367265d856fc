"""From Kafka's own settings (`kafka.*`) to those of our client. Pure; what belongs to TLS and logins is elsewhere.

Names come without the prefix and in lower case. Some are refused, because here they would do harm or nothing where
something is expected; some are served in another way and need no word; the rest is handed back to be warned of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from ottla.client.errors import InvalidGroupName, InvalidSetting
from ottla.client.group_names import check_group_name
from ottla.client.settings import (
    Address,
    ClientSettings,
    Isolation,
    ProducerSettings,
    parse_addresses,
)
from ottla.spark.errors import InvalidOption
from ottla.spark.security_options import is_security_name, security_settings
from ottla.spark.values import INT32_MAX, INT64_MAX, switch, whole_number, word_of

SINK_BATCH_BYTES = 512 * 1024
"""The sink fills batches from whole columns, so larger ones than a program's own records make cost it nothing; topics
take up to 1 MiB as Kafka sets them up."""
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much is asked for at once when records are read."""

    request_bytes_max: int = 8 * 1024 * 1024
    partition_bytes_max: int = 8 * 1024 * 1024
    wait_ms: int = 500
    check_crcs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How brokers are reached; equal connections may share sockets."""

    bootstrap: tuple[Address, ...]
    client: ClientSettings
    fetch: FetchSettings
    isolation: Isolation


_START = "Set startingOffsets to earliest or latest: the query itself keeps track of what it has read"
_CAST = "Both come as binary; cast them in the query"
_BYTES = "Both are written as they are in the columns, string or binary"
REFUSED_READING = {
    "auto.offset.reset": ("the source decides where reading starts, so that no new partition is missed", _START),
    "key.deserializer": ("keys are read as bytes", _CAST),
    "value.deserializer": ("values are read as bytes", _CAST),
    "enable.auto.commit": ("offsets are kept in the checkpoint", "Set kafka.group.id to have them stored as well"),
    "interceptor.classes": ("interceptors could change what was read", "Leave it out"),
}
REFUSED_WRITING = {
    "key.serializer": ("keys are written as bytes", _BYTES),
    "value.serializer": ("values are written as bytes", _BYTES),
    "interceptor.classes": ("interceptors are Java classes, which cannot run here", "Leave it out"),
    "partitioner.class": (
        "partitioners are Java classes, which cannot run here",
        "Leave it out to have rows spread as Kafka's own clients do, or give a column named partition",
    ),
    "transactional.id": (
        "the sink names its transactions by query and task, or a second task would fence the first",
        "Leave it out",
    ),
}

NEEDS_NO_WORD = frozenset(
    {
        "allow.auto.create.topics",
        "bootstrap.servers",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "fetch.min.bytes",
        "group.id",
        "heartbeat.interval.ms",
        "isolation.level",
        "key.deserializer",
        "key.serializer",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "value.deserializer",
        "value.serializer",
    }
)
"""Served in another way, or settings of the other direction, which users often keep in one place with the rest."""

Parser = Callable[[str, str], Any]
Settings = TypeVar("Settings")


def _from(lowest: int, *, highest: int = INT32_MAX, least: int = 0) -> Parser:
    """Numbers from `lowest` on; those that Kafka allows and our client does not become `least`."""
    return lambda text, option: max(least, whole_number(text, option=option, lowest=lowest, highest=highest))


def _text(text: str, option: str) -> str:
    return text


def _switch(text: str, option: str) -> bool:
    return switch(text, option=option)


def _acks(text: str, option: str) -> Literal["all", 0, 1]:
    word = word_of(text, ("all", "-1", "0", "1"), option=option)
    return "all" if word in ("all", "-1") else cast(Literal[0, 1], int(word))


def _codec(text: str, option: str) -> str:
    return word_of(text, ("none", "gzip", "snappy", "lz4", "zstd"), option=option)


_CLIENT: dict[str, tuple[str, Parser]] = {
    "client.id": ("client_id", _text),
    "request.timeout.ms": ("request_timeout_ms", _from(1)),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _from(1)),
    "retry.backoff.ms": ("retry_backoff_ms", _from(0, least=1)),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _from(0, least=1)),
    "metadata.max.age.ms": ("metadata_age_max_ms", _from(0, least=1)),
}
_FETCH: dict[str, tuple[str, Parser]] = {
    "fetch.max.bytes": ("request_bytes_max", _from(1)),
    "max.partition.fetch.bytes": ("partition_bytes_max", _from(1)),
    "fetch.max.wait.ms": ("wait_ms", _from(0)),
    "check.crcs": ("check_crcs", _switch),
}
_PRODUCER: dict[str, tuple[str, Parser]] = {
    "acks": ("acks", _acks),
    "enable.idempotence": ("idempotent", _switch),
    "compression.type": ("compression", _codec),
    "linger.ms": ("linger_ms", _from(0)),
    "batch.size": ("batch_bytes", _from(0, least=1)),
    "buffer.memory": ("buffer_bytes", _from(1, highest=INT64_MAX)),
    "max.block.ms": ("block_ms", _from(0)),
    "retries": ("retries", _from(0)),
    "delivery.timeout.ms": ("delivery_timeout_ms", _from(1)),
    "transaction.timeout.ms": ("transaction_timeout_ms", _from(1)),
}
_BY_SETTING = {keyword: name for table in (_CLIENT, _FETCH, _PRODUCER) for name, (keyword, _) in table.items()}


def refuse(kafka: Mapping[str, str], refused: Mapping[str, tuple[str, str]]) -> None:
    """Raises for the first setting that must not be there."""
    for name in sorted(kafka):
        if name in refused:
            problem, fix = refused[name]
            raise InvalidOption(f"kafka.{name}", f"is not supported: {problem}", fix=fix)


def connection(kafka: Mapping[str, str]) -> Connection:
    """How to reach the brokers, and how to fetch from them."""
    if not kafka.get("bootstrap.servers", "").strip():
        raise InvalidOption("kafka.bootstrap.servers", "is missing", fix="Set it to the brokers: host:port,host:port")
    client = _given(kafka, _CLIENT) | security_settings(kafka)
    if "retry_backoff_ms" in client:
        # As in Kafka's clients, whoever sets only the shorter of the two is not told off for the longer one.
        longest_ms = client.get("retry_backoff_max_ms", ClientSettings().retry_backoff_max_ms)
        client["retry_backoff_max_ms"] = max(longest_ms, client["retry_backoff_ms"])
    elif "retry_backoff_max_ms" in client:
        client["retry_backoff_ms"] = min(ClientSettings().retry_backoff_ms, client["retry_backoff_max_ms"])
    levels = ("read_uncommitted", "read_committed")
    isolation = word_of(kafka.get("isolation.level", levels[0]), levels, option="kafka.isolation.level")
    return Connection(
        bootstrap=_addresses(kafka["bootstrap.servers"]),
        client=_checked(lambda: ClientSettings(**client)),
        fetch=FetchSettings(**_given(kafka, _FETCH)),
        isolation=cast(Isolation, isolation),
    )


def producer(kafka: Mapping[str, str]) -> ProducerSettings:
    """How the sink gathers and sends; the names of transactions are the sink's own business."""
    settings = {"batch_bytes": SINK_BATCH_BYTES, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
    return _checked(lambda: ProducerSettings(**(settings | _given(kafka, _PRODUCER))))


def group_id(kafka: Mapping[str, str]) -> str | None:
    """The group whose offsets are stored as the query goes on, if one is named."""
    if "group.id" not in kafka:
        return None
    try:
        return check_group_name(kafka["group.id"])
    except InvalidGroupName as e:
        raise InvalidOption("kafka.group.id", str(e)) from e


def without_effect(kafka: Mapping[str, str]) -> tuple[str, ...]:
    """The settings that nothing here takes notice of, named as users write them."""
    known = NEEDS_NO_WORD | _CLIENT.keys() | _FETCH.keys() | _PRODUCER.keys()
    unknown = (name for name in kafka if name not in known and not is_security_name(name))
    return tuple(f"kafka.{name}" for name in sorted(unknown))


def is_known(name: str) -> bool:
    """Whether a setting of this name is one of Kafka's that is served or refused here."""
    tables = (_CLIENT, _FETCH, _PRODUCER, REFUSED_READING, REFUSED_WRITING)
    return name in NEEDS_NO_WORD or is_security_name(name) or any(name in table for table in tables)


def _given(kafka: Mapping[str, str], table: Mapping[str, tuple[str, Parser]]) -> dict[str, Any]:
    return {keyword: parse(kafka[name], f"kafka.{name}") for name, (keyword, parse) in table.items() if name in kafka}


def _addresses(text: str) -> tuple[Address, ...]:
    # Java's clients take a protocol before an address; it says nothing that kafka.security.protocol does not.
    plain = ",".join(part.strip().rpartition("://")[2] for part in text.split(","))
    try:
        return tuple(parse_addresses(plain))
    except InvalidSetting as e:
        raise InvalidOption("kafka.bootstrap.servers", str(e)) from e


def _checked(make: Callable[[], Settings]) -> Settings:
    """Settings that contradict each other, told by the names that the user knows."""
    try:
        return make()
    except InvalidSetting as e:
        text = str(e)
        keyword = text.partition("=")[0]
        if keyword not in _BY_SETTING:
            raise InvalidOption("kafka.*", text) from e
        raise InvalidOption(f"kafka.{_BY_SETTING[keyword]}", text.partition(": ")[2] or text) from e

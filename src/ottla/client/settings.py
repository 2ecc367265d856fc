"""What a user may set, with its defaults and checks. Knows nothing of what the settings do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ottla.client.assignors import ASSIGNORS
from ottla.client.errors import InvalidSetting
from ottla.client.group_names import check_group_name
from ottla.client.routing import KEY_ROUTERS
from ottla.client.security_settings import SecuritySettings
from ottla.client.values import OffsetSpec
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal, UnsupportedCompression
from ottla.records.compression import Codec

PORT_DEFAULT = 9092
ENDING_BACKOFF_MS = 20
"""How soon it is asked again whether the transaction before has ended."""
INT32_MAX = 2**31 - 1
STRING_BYTES_MAX = 2**15 - 1
"""What a string on the wire can hold."""
Isolation = Literal["read_uncommitted", "read_committed"]


class Address(NamedTuple):
    """Where a broker can be reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """`host:port`, several with commas, or a list of them; `[::1]:9092` for IPv6."""
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    found = [_parse_address(text.strip()) for text in texts if text.strip()]
    if not found:
        raise InvalidSetting(f"bootstrap {bootstrap!r} names no address; it looks like host:port,host:port")
    return found


def _parse_address(text: str) -> Address:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if bracket else "?"
    elif text.count(":") > 1:
        # Bare IPv6: where its last group ends and a port begins cannot be told apart.
        raise InvalidSetting(f"address {text!r}: write an IPv6 address as [address]:port")
    else:
        host, _, port = text.partition(":")
    if not host or not (port == "" or (port.isdecimal() and 0 < int(port) < 65536)):
        raise InvalidSetting(f"address {text!r} is not host:port")
    return Address(host, int(port or PORT_DEFAULT))


def _require(condition: bool, name: str, value: object, what: str) -> None:
    if not condition:
        raise InvalidSetting(f"{name}={value!r}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """What producer, consumer and admin of one client share."""

    client_id: str = "ottla"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_age_max_ms: int = 300_000

    def __post_init__(self) -> None:
        for name in ("request_timeout_ms", "connect_timeout_ms", "retry_backoff_ms", "metadata_age_max_ms"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be above 0")
        _require(
            self.retry_backoff_max_ms >= self.retry_backoff_ms,
            "retry_backoff_max_ms",
            self.retry_backoff_max_ms,
            "must not be below retry_backoff_ms",
        )
        self.check_security()

    def backoff_after_ms(self, error: Exception, attempts: int) -> int:
        """The same after this error: the end of the transaction before takes a few milliseconds, as a rule."""
        delay_ms = self.backoff_ms(attempts)
        is_ending = isinstance(error, Refusal) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        return min(delay_ms, ENDING_BACKOFF_MS) if is_ending else delay_ms

    def backoff_ms(self, attempts: int) -> int:
        """How long to wait after so many failed attempts: twice as long each time, up to the limit."""
        return min(self.retry_backoff_max_ms, self.retry_backoff_ms << min(max(attempts - 1, 0), 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are gathered, sent and acknowledged."""

    acks: Literal["all", 0, 1, -1] = "all"
    idempotent: bool | None = None
    compression: str = "none"
    partitioner: str = "murmur2"
    keyless: str = "sticky"
    linger_ms: int = 5
    batch_bytes: int = 64 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    block_ms: int = 60_000
    retries: int | None = None
    delivery_timeout_ms: int = 120_000
    topic_wait_ms: int = 1_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        self._check_transactions()
        _require(self.acks in ("all", -1, 0, 1), "acks", self.acks, 'is "all", 0 or 1')
        _require(self.partitioner in KEY_ROUTERS, "partitioner", self.partitioner, f"is one of {list(KEY_ROUTERS)}")
        _require(self.keyless in ("sticky", "round-robin"), "keyless", self.keyless, 'is "sticky" or "round-robin"')
        for name in ("batch_bytes", "buffer_bytes", "delivery_timeout_ms"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be above 0")
        for name in ("linger_ms", "block_ms", "topic_wait_ms"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        _require(self.retries is None or self.retries >= 0, "retries", self.retries, "must not be negative")
        _require(
            not self.idempotent or self.wire_acks == -1,
            "idempotent",
            self.idempotent,
            'needs acks="all": a record that was not safely written may have to be sent again',
        )
        try:
            Codec.from_name(self.compression)
        except UnsupportedCompression as e:
            raise InvalidSetting(f"compression={self.compression!r}: {e}") from e

    def _check_transactions(self) -> None:
        name = self.transactional_id
        if name is not None:
            _require(name != "", "transactional_id", name, "must not be empty")
            # What UTF-8 cannot hold counts as too long: no broker could be told of it.
            size = len(name.encode(errors="surrogatepass"))
            fits = size <= STRING_BYTES_MAX and not any("\ud800" <= letter <= "\udfff" for letter in name)
            _require(fits, "transactional_id", name[:20], f"does not fit into {STRING_BYTES_MAX} bytes of UTF-8")
            _require(self.wire_acks == -1, "acks", self.acks, 'must be "all" in a transaction')
            _require(self.idempotent is not False, "idempotent", False, "cannot be switched off in a transaction")
        timeout_ms = self.transaction_timeout_ms
        _require(0 < timeout_ms <= INT32_MAX, "transaction_timeout_ms", timeout_ms, "must be above 0 (and an int32)")

    @property
    def wire_acks(self) -> int:
        return -1 if self.acks == "all" else self.acks

    @property
    def is_idempotent(self) -> bool:
        return self.wire_acks == -1 if self.idempotent is None else self.idempotent

    @property
    def codec(self) -> Codec:
        return Codec.from_name(self.compression)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Where reading starts, how much is read at once, what is seen, and which group it is done in."""

    start: Literal["beginning", "end"] = "beginning"
    start_offset: int | None = None
    start_time_ms: int | None = None
    out_of_range: Literal["earliest", "latest", "error"] = "earliest"
    isolation: Isolation = "read_uncommitted"
    records_max: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    fetch_wait_ms: int = 500
    check_crcs: bool = True
    group: str | None = None
    require_group: bool = False
    protocol: Literal["classic", "consumer"] = "classic"
    auto_offset_reset: Literal["earliest", "latest", "error"] | None = None
    auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    poll_interval_max_ms: int = 300_000
    assignors: Sequence[str] = ("sticky", "range", "roundrobin")
    server_assignor: str | None = None

    def __post_init__(self) -> None:
        self._check_start()
        self._check_group()
        check_isolation(self.isolation)
        for name in ("records_max", "fetch_bytes_max", "partition_bytes_max"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be above 0")
        for name in ("fetch_bytes_min", "fetch_wait_ms"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")

    def _check_start(self) -> None:
        _require(self.start in ("beginning", "end"), "start", self.start, 'is "beginning" or "end"')
        given = [self.start_offset is not None, self.start_time_ms is not None, self.start == "end"]
        _require(sum(given) <= 1, "start", self.start, "give one of start, start_offset and start_time_ms")
        _require(self.start_offset is None or self.start_offset >= 0, "start_offset", self.start_offset, "is 0 or more")
        _require(
            self.start_time_ms is None or self.start_time_ms >= 0, "start_time_ms", self.start_time_ms, "is 0 or more"
        )
        _require(
            self.out_of_range in ("earliest", "latest", "error"),
            "out_of_range",
            self.out_of_range,
            'is "earliest", "latest" or "error"',
        )
        if self.auto_offset_reset is not None:
            _require(
                self.auto_offset_reset in ("earliest", "latest", "error"),
                "auto_offset_reset",
                self.auto_offset_reset,
                'is "earliest", "latest" or "error"',
            )
            _require(
                not any(given) and self.out_of_range == "earliest",
                "auto_offset_reset",
                self.auto_offset_reset,
                "stands for start and out_of_range together: give either it or them",
            )

    def _check_group(self) -> None:
        if self.group is not None:
            check_group_name(self.group)
        _require(self.protocol in ("classic", "consumer"), "protocol", self.protocol, 'is "classic" or "consumer"')
        for name in ("auto_commit", "group_instance_id"):
            _require(self.group is not None or not getattr(self, name), name, getattr(self, name), "needs a group")
        for name in ("auto_commit_interval_ms", "session_timeout_ms", "heartbeat_interval_ms", "poll_interval_max_ms"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be above 0")
        _require(
            self.heartbeat_interval_ms < self.session_timeout_ms,
            "heartbeat_interval_ms",
            self.heartbeat_interval_ms,
            "must be below session_timeout_ms, or every member would be taken for dead",
        )
        is_list = not isinstance(self.assignors, str) and len(self.assignors) > 0
        known = is_list and all(name in ASSIGNORS for name in self.assignors)
        _require(known, "assignors", self.assignors, f"is a list of one or more of {list(ASSIGNORS)}")
        _require(self.group_instance_id != "", "group_instance_id", "", "must not be empty")

    @property
    def start_spec(self) -> int:
        """What to ask for where a partition is first read: a special timestamp, or a time."""
        if self.start_time_ms is not None:
            return self.start_time_ms
        is_end = self.start == "end" or self.auto_offset_reset == "latest"
        return OffsetSpec.LATEST if is_end else OffsetSpec.EARLIEST

    @property
    def when_lost(self) -> Literal["earliest", "latest", "error"]:
        """What to do about a position that the log does not have any more."""
        return self.auto_offset_reset or self.out_of_range


def check_isolation(isolation: str) -> int:
    """The isolation level's number on the wire."""
    levels = {"read_uncommitted": 0, "read_committed": 1}
    _require(isolation in levels, "isolation", isolation, f"is one of {list(levels)}")
    return levels[isolation]

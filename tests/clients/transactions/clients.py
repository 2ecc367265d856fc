"""What the tests ask of every Python client in transactions, and what each client cannot do.

The clients are in `client_confluent`, `client_kafka_python` and `client_aiokafka`, each made to look like the
protocols here. Which answers are right is the tests' business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Protocol, Self, TypeVar

import pytest

from tests.clients.transactions.raw_producer import Place

SECONDS_MAX = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Records = list[tuple[int, bytes]]
"""Offsets and values."""

_Test = TypeVar("_Test", bound=Callable[..., object])


class Ability(Enum):
    """One thing that Kafka clients do in transactions."""

    COMMIT = "commits"
    ABORT = "aborts"
    EMPTY = "ends a transaction in which nothing was written"
    SEVERAL_PARTITIONS = "writes to several topics and partitions"
    EVERY_CODEC = "uses every codec"
    FENCE = "fences its predecessor, and is fenced"
    TIME_OUT = "is aborted when it takes too long"
    RESUME = "takes over after a kill"
    RACE = "competes for an id"
    OFFSETS = "commits offsets in the transaction"
    STABLE_OFFSETS = "asks for offsets that no open transaction may still change"
    COPY = "consumes, transforms and produces, as a member of a group"
    READ_COMMITTED = "reads what is committed"
    READ_UNCOMMITTED = "reads everything"
    END_OFFSETS = "asks for the end as either reader"
    LAST_STABLE_OFFSET = "tells the last stable offset"


class Unstable(Exception):
    """A client has found no offset that it could rely on."""


class TransactionalProducer(Protocol):
    """One client with a transactional id, ready to begin."""

    def begin(self) -> None: ...
    def send(self, place: Place, *values: bytes) -> None:
        """Hand over records, which may be sent later."""

    def flush(self) -> None:
        """Wait until the broker has taken all of them. Raises the client's error otherwise."""

    def send_offsets(self, group: str | Member, offsets: Mapping[Place, int]) -> None:
        """Add a group's offsets to the transaction: of a group that has no members, or as one of them."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Member(Protocol):
    """A reader of committed records that has joined a group."""

    def poll(self) -> list[tuple[Place, int, bytes]]:
        """Records that have come in a little while, perhaps none."""

    def rewind(self, offsets: Mapping[Place, int]) -> None:
        """Read again from there."""

    def close(self) -> None: ...


class TransactionClient(Protocol):
    """One library, at one address."""

    name: str

    def producer(
        self, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none"
    ) -> TransactionalProducer: ...

    def is_fenced(self, error: BaseException) -> bool:
        """Whether an error is the one by which this library says that another producer has taken over."""

    def read(self, place: Place, *, committed: bool, start: int = 0) -> Records:
        """Everything from an offset to the end that such a reader is shown."""

    def end_offset(self, place: Place, *, committed: bool) -> int: ...
    def last_stable_offset(self, place: Place) -> int: ...
    def stored(self, group: str, place: Place, *, stable: bool) -> int | None:
        """The offset that a group has committed. Raises Unstable where the client goes on waiting for one."""

    def member(self, group: str, topic: str) -> Member: ...


MODULES = {
    "confluent-kafka": "client_confluent",
    "kafka-python": "client_kafka_python",
    "aiokafka": "client_aiokafka",
}

LACKING: Mapping[tuple[str, Ability], str] = {
    ("confluent-kafka", Ability.LAST_STABLE_OFFSET): "shows it only in its statistics",
    ("kafka-python", Ability.LAST_STABLE_OFFSET): "keeps only the high watermark of what it fetches",
    ("aiokafka", Ability.STABLE_OFFSETS): "asks for offsets in versions up to 3, and stable ones are known since 7",
}
"""What a client has no way to do, and why."""


def connect(name: str, address: str) -> TransactionClient:
    """A client by its name."""
    client: TransactionClient = import_module(f"{__package__}.{MODULES[name]}").connect(address)
    return client


def shows(*abilities: Ability) -> Callable[[_Test], _Test]:
    """Run a test with every client that can do what it shows."""

    def mark(test: _Test) -> _Test:
        test.__dict__["abilities"] = abilities
        able = [name for name in MODULES if not any((name, ability) in LACKING for ability in abilities)]
        marked: _Test = pytest.mark.parametrize("name", able)(test)
        return marked

    return mark


def unshown(module: ModuleType) -> set[Ability]:
    """What no test of a file shows."""
    return set(Ability) - {ability for test in vars(module).values() for ability in getattr(test, "abilities", ())}

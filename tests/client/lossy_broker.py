"""A broker of this process whose answers get lost, or changed, as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.client.blocking.client import Client, in_process
from ottla.client.errors import NetworkException
from ottla.client.transport import Reply
from ottla.embedded import EmbeddedBroker
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message

Trouble = Callable[[ApiKey, Message, Callable[[], Reply]], Reply]
"""Given a request and the way to carry it out, decides what comes back."""


class LossyBroker:
    """Stands between clients and a broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.trouble: Trouble = lambda api_key, message, carry_out: carry_out()
        self.asked: list[ApiKey] = []

    def request(self, api_key: ApiKey, version: int, message: Message, timeout_ms: int) -> Reply:
        self.asked.append(api_key)
        return self.trouble(api_key, message, lambda: self._broker.request(api_key, version, message, timeout_ms))


def lost(api_key: ApiKey) -> NetworkException:
    return NetworkException(f"the connection broke over {api_key.name}")


@contextmanager
def lossy(path: Path, **settings: int) -> Iterator[tuple[LossyBroker, Client]]:
    """A broker that does as it is told, and a client of it."""
    broker = EmbeddedBroker(path, {"group.initial.rebalance.delay.ms": "0"})
    between = LossyBroker(broker)
    chosen = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **settings}
    with in_process(between, on_close=broker.close, **chosen) as client:
        yield between, client

"""What clients of both faces are put together from: the one place that chooses clocks, chance and transports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from random import Random
from typing import Any, TypeVar
from uuid import UUID, uuid4

from ottla.client.cluster import Acquaintance, Cluster
from ottla.client.errors import InvalidSetting
from ottla.client.settings import Address, ClientSettings, ConsumerSettings, ProducerSettings
from ottla.client.transport import MonotonicClock, Transport
from ottla.clock import Clock, SystemClock

S = TypeVar("S", ClientSettings, ProducerSettings, ConsumerSettings)

IN_PROCESS_BATCH_BYTES = 256 * 1024
"""One request is under way at a time in-process, so larger batches make up for it."""


class Assembly:
    """Makes what a producer, consumer or admin needs; each gets connections of its own."""

    def __init__(
        self,
        make_transport: Callable[[], Transport],
        bootstrap: Sequence[Address],
        settings: ClientSettings,
        *,
        in_process: bool,
        clock: Clock | None = None,
        ticks: Clock | None = None,
        chance: Random | None = None,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._make_transport = make_transport
        self._bootstrap = bootstrap
        self._settings = settings
        self._in_process = in_process
        self.clock = clock or SystemClock()
        self.ticks = ticks or MonotonicClock()
        self.chance = chance or Random()
        self._new_uuid = new_uuid
        self._acquaintance = Acquaintance()

    def new_id(self) -> str:
        """A name that nobody else has."""
        return str(self._new_uuid())

    def cluster(self) -> Cluster:
        return Cluster(
            self._make_transport(),
            self._bootstrap,
            settings=self._settings,
            ticks=self.ticks,
            acquaintance=self._acquaintance,
        )

    def producer_settings(self, given: dict[str, Any]) -> ProducerSettings:
        if self._in_process:
            # A broker in this process knows at once whether a topic is there.
            given = {"batch_bytes": IN_PROCESS_BATCH_BYTES, "topic_wait_ms": 0, **given}
        return checked_settings(ProducerSettings, given)

    def consumer_settings(self, given: dict[str, Any]) -> ConsumerSettings:
        if self._in_process:
            # The broker is our own, so the newer protocol is there, and joining takes no waiting for others.
            given = {"protocol": "consumer", **given}
        return checked_settings(ConsumerSettings, given)


def checked_settings(kind: type[S], given: dict[str, Any]) -> S:
    """Settings from keywords; an unknown one is an error that lists the known ones."""
    known = [field.name for field in fields(kind)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidSetting(f"there is no setting {', '.join(unknown)}; known are {', '.join(known)}")
    return kind(**given)

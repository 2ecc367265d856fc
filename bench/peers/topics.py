"""Topics on either side, and whether everything that a client says it sent is in them."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep

import ottla
from bench.peers.contract import Broker, Unmeasured
from bench.peers.policies import Policy

SETTLE_S_MAX = 10.0
LOOK_AGAIN_S = 0.02
REQUEST_MS_MAX = 60_000
"""Kafka takes long to make a thousand partitions."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One that both the client and this program know."""

    broker: Broker
    name: str
    partitions: int

    def check(self, *, records: int) -> None:
        """Nobody is quick by losing records, or by saying that there are more."""
        until = monotonic() + SETTLE_S_MAX
        while (found := self.end()) != records:
            if monotonic() > until:
                raise Unmeasured(f"{self.name} holds {found:,} records, the client was told of {records:,}")
            sleep(LOOK_AGAIN_S)

    def end(self) -> int:
        """The sum of the partitions' ends."""
        wanted = {(self.name, number): ottla.OffsetSpec.LATEST for number in range(self.partitions)}
        try:
            with ottla.connect(self.broker.address, request_timeout_ms=REQUEST_MS_MAX) as client:
                found = client.admin().list_offsets(wanted)
        except ottla.OttlaError as reason:
            raise Unmeasured(f"the ends of {self.name} could not be had: {reason}") from reason
        return sum(0 if place is None else place.offset for place in found.values())


def create(broker: Broker, name: str, *, partitions: int, policy: Policy) -> Topic:
    """A new topic that takes records."""
    try:
        with ottla.connect(broker.address, request_timeout_ms=REQUEST_MS_MAX) as client:
            client.admin().create_topic(
                name, partitions=partitions, replication_factor=1, configs=policy.configs[broker.side]
            )
    except ottla.OttlaError as reason:
        raise Unmeasured(f"topic {name} could not be made: {reason}") from reason
    topic = Topic(broker, name, partitions)
    # For a moment a new partition has no leader that would take records, and no one to tell its end either.
    topic.end()
    return topic

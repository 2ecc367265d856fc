"""A producer's inner parts on a bench: an accumulator and a sender over the scripted cluster, time moved by hand."""

from __future__ import annotations

from ottla.client.accumulator import Accumulator, Batch, size_of
from ottla.client.cluster import Cluster
from ottla.client.sending import Sender
from ottla.client.settings import ClientSettings, ProducerSettings
from ottla.client.transport import run_now
from ottla.client.values import TopicPartition
from ottla.records.packing import RecordTuple
from tests.client.scripted_broker import ScriptedCluster

ROUNDS_MAX = 10_000


class Bench:
    """Puts records in and runs rounds, without a face around them."""

    def __init__(self, cluster: ScriptedCluster, *, window: int = 5, **settings: object) -> None:
        chosen = ProducerSettings(**settings)  # type: ignore[arg-type]
        self.model = cluster
        self.cluster = Cluster(
            cluster.transport(window=window),
            [next(iter(cluster.nodes.values()))],
            settings=ClientSettings(),
            ticks=cluster.clock,
        )
        self.accumulator = Accumulator(
            batch_bytes=chosen.batch_bytes,
            buffer_bytes=chosen.buffer_bytes,
            linger_ms=chosen.linger_ms,
            delivery_timeout_ms=chosen.delivery_timeout_ms,
        )
        self.sender = Sender(self.cluster, self.accumulator, chosen)

    def put(self, value: bytes, *, partition: int = 0, topic: str = "t") -> Batch:
        """A batch of one record."""
        row: RecordTuple = (None, value, 1_000, ())
        batch = self.accumulator.batch(
            TopicPartition(topic, partition), [row], records_bytes=size_of(row), now_ms=self.model.clock.now_ms()
        )
        assert self.accumulator.add([batch])
        return batch

    def round(self) -> None:
        run_now(self.sender.round())

    def warm(self) -> None:
        """Let the broker get to know the producer, so that more than one batch may be under way."""
        self.put(b"warm")
        self.settle()

    def settle(self) -> None:
        """Rounds, and the time between them, until nothing is left."""
        for _ in range(ROUNDS_MAX):
            self.round()
            wait_ms = self.accumulator.wait_ms(self.model.clock.now_ms())
            if wait_ms is None:
                return
            self.model.pass_time(wait_ms)
        raise AssertionError("the records never settle")

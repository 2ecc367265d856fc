"""librdkafka (confluent-kafka) as a producer, or as fifty of them, as a client of `phases`.

Several producers are several instances in this process, each with threads of its own in C; one Python thread hands them
records in turns, so that no Python threads fight for the interpreter. No report comes for a record that arrived: who
gives the orders looks whether the broker holds them all.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter

from confluent_kafka import Producer

from bench.peers.phases import Done, serve

FLUSH_S = 120.0
WAIT_S = 0.001
CHECK_EVERY = 256
QUEUE_KB = 65_536
MANY_QUEUED = 50
"""Records that each of many producers may have on their way: batches stay tiny, and memory small."""


def settings(bootstrap: str, *, acks: str, producers: int) -> dict[str, object]:
    """As librdkafka has them, except for the bounds of its queue, and no linger where there are many producers."""
    chosen: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "queue.buffering.max.kbytes": QUEUE_KB,
        "delivery.report.only.error": True,
        "log_level": 0,
    }
    if producers > 1:
        chosen |= {"linger.ms": 0, "queue.buffering.max.messages": MANY_QUEUED}
    return chosen


class Producers:
    """All of them, kept between phases."""

    def __init__(self, bootstrap: str, topic: str, *, acks: str, producers: int, size: int) -> None:
        self._topic = topic
        self._value = bytes(range(256)) * (size // 256 + 1)
        self._value = self._value[:size]
        chosen = settings(bootstrap, acks=acks, producers=producers)
        self._producers = [Producer(chosen) for _ in range(producers)]

    def run(self, seconds: float) -> Done:
        """One phase: hand over for so long, and wait until all is acknowledged."""
        begun = perf_counter()
        until = begun + seconds
        sent = self._one(until) if len(self._producers) == 1 else self._many(until)
        left = sum(producer.flush(FLUSH_S) for producer in self._producers)
        if left:
            raise TimeoutError(f"{left} records were not acknowledged within {FLUSH_S} s")
        return Done(records=sent, size_bytes=sent * len(self._value), wall_s=perf_counter() - begun)

    def _one(self, until: float) -> int:
        producer, topic, value, sent = self._producers[0], self._topic, self._value, 0
        produce = producer.produce
        while perf_counter() < until:
            try:
                for _ in range(CHECK_EVERY):
                    produce(topic, value)
                    sent += 1
            except BufferError:
                producer.poll(WAIT_S)
        return sent

    def _many(self, until: float) -> int:
        topic, value, sent = self._topic, self._value, 0
        while perf_counter() < until:
            before = sent
            for producer in self._producers:
                try:
                    producer.produce(topic, value)
                    sent += 1
                except BufferError:
                    continue
            if sent == before:
                self._producers[0].poll(WAIT_S)
        return sent


if __name__ == "__main__":
    serve(Producers(**json.loads(sys.argv[1])).run)

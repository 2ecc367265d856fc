"""librdkafka (confluent-kafka) as a consumer, or as twenty that share the partitions, as a client of `phases`.

From the beginning: a phase of no seconds reads everything once, a longer one again and again for so long. At the tail:
a phase counts what comes for so long. Several consumers are several instances in this process.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, sleep

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.peers.phases import Done, serve
from bench.peers.rdkafka_reading import SETTINGS

BATCH = 1_000
WAIT_S = 0.002
SILENCE_S_MAX = 60.0


class Consumers:
    """All of them, kept between phases."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int, consumers: int, records: int, is_tail: bool = False
    ) -> None:
        self._consumers = [Consumer({"bootstrap.servers": bootstrap, **SETTINGS}) for _ in range(consumers)]
        self._shares = [
            [TopicPartition(topic, number) for number in range(each, partitions, consumers)]
            for each in range(consumers)
        ]
        self._records = records
        self._is_tail = is_tail
        if is_tail:
            # The end is asked for here, so that the first phase need not wait for the answer.
            for consumer, share in zip(self._consumers, self._shares, strict=True):
                for each in share:
                    each.offset = consumer.get_watermark_offsets(each, timeout=SILENCE_S_MAX)[1]
                consumer.assign(share)

    def run(self, seconds: float) -> Done:
        """One phase."""
        if self._is_tail:
            return self._tail(seconds)
        begun = perf_counter()
        records = size_bytes = 0
        while True:
            self._rewind()
            count, size = self._take(self._records, until=None)
            records, size_bytes = records + count, size_bytes + size
            if perf_counter() - begun >= seconds:
                return Done(records=records, size_bytes=size_bytes, wall_s=perf_counter() - begun)

    def _tail(self, seconds: float) -> Done:
        begun = perf_counter()
        records, size_bytes = self._take(None, until=begun + seconds)
        return Done(records=records, size_bytes=size_bytes, wall_s=perf_counter() - begun)

    def _take(self, wanted: int | None, *, until: float | None) -> tuple[int, int]:
        """What comes, until it is as much as is wanted or time is over: records, and bytes of their values."""
        count = size_bytes = 0
        heard = perf_counter()
        wait_s = WAIT_S if len(self._consumers) == 1 else 0.0
        while wanted is None or count < wanted:
            before = count
            for consumer in self._consumers:
                messages = consumer.consume(BATCH, wait_s)
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(str(message.error()))
                    size_bytes += len(message.value() or b"")
                count += len(messages)
            now = perf_counter()
            if count > before:
                heard = now
            elif not wait_s:
                sleep(WAIT_S)
            if until is not None and now >= until:
                break
            if until is None and now - heard > SILENCE_S_MAX:
                raise TimeoutError(f"{count} records of {wanted} came")
        return count, size_bytes

    def _rewind(self) -> None:
        for consumer, share in zip(self._consumers, self._shares, strict=True):
            consumer.assign([TopicPartition(each.topic, each.partition, OFFSET_BEGINNING) for each in share])


if __name__ == "__main__":
    serve(Consumers(**json.loads(sys.argv[1])).run)

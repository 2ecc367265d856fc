"""A transactional producer of librdkafka, as a client of `phases`: one transaction after the other."""

from __future__ import annotations

import json
import sys
from time import perf_counter

from confluent_kafka import Producer

from bench.peers.phases import Done, serve

WAIT_S = 60.0


class Transactions:
    """Kept between phases."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, records: int, size: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._records = records
        self._value = bytes(size)
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
        self._producer.init_transactions(WAIT_S)

    def run(self, seconds: float) -> Done:
        """One phase."""
        producer, begun, count = self._producer, perf_counter(), 0
        while perf_counter() - begun < seconds:
            producer.begin_transaction()
            for number in range(self._records):
                producer.produce(self._topic, self._value, partition=number % self._partitions)
            producer.commit_transaction(WAIT_S)
            count += 1
        records = count * self._records
        return Done(
            records=records,
            size_bytes=records * len(self._value),
            wall_s=perf_counter() - begun,
            figures={"transactions": count},
        )


if __name__ == "__main__":
    serve(Transactions(**json.loads(sys.argv[1])).run)

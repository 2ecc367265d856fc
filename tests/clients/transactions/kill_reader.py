"""What a read_committed reader finds in a topic now: confluent-kafka's, new each time, from the first offset on."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.clients.server_process import ServerProcess

SECONDS_MAX = 60
POLL_SECONDS = 0.5


def committed(server: ServerProcess, topic: str, *, partitions: int, at_least: int = 0) -> dict[int, list[bytes]]:
    """The values in each partition, up to where readers may read now.

    Where a transaction is still being ended readers wait, and so does this, until there are `at_least` so many records.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    at_end: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        while len(at_end) < partitions or sum(map(len, found.values())) < at_least:
            assert time.monotonic() < deadline, (
                f"{sum(map(len, found.values()))} of {at_least} records were seen, {len(at_end)} ends of {partitions}"
            )
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            number, error = message.partition(), message.error()
            assert number is not None
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                found[number].append(value)
                at_end.discard(number)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(number)
            else:
                assert error.retriable(), error
    finally:
        consumer.close()
    return found

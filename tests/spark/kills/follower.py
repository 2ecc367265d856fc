"""Follows the copy as a read_committed reader all the time, and checks each record in the moment in which it comes.

In each partition the next record must be the next of the source's partition. So one that comes twice, too early, too
late, or out of an attempt that was given up, is found at once. The reader is confluent-kafka's.
"""

from __future__ import annotations

import threading
from types import TracebackType

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

POLL_SECONDS = 0.2
END_SECONDS_MAX = 60
WRONG_MAX = 20
"""More is not kept: once one is missing, all that follow are wrong."""


def key_of(partition: int, number: int) -> bytes:
    """The key of a record of the source."""
    return b"key %d" % ((partition * 7 + number) % 101)


def value_of(partition: int, number: int) -> bytes:
    """The value of a record of the source, by its place; so large that a task has written some before it has all."""
    return b"%d %d " % (partition, number) + b"." * (400 + number % 500)


class Seen:
    """What a reader has been given so far, held against the source."""

    def __init__(self, *, partitions: int) -> None:
        self.next_numbers = [0] * partitions
        self.wrong: list[str] = []
        """What ought not to have come where it came, and what the reader could not get over."""

    @property
    def count(self) -> int:
        """How many records have come."""
        return sum(self.next_numbers)

    def add(self, record: tuple[object, object], *, partition: int, offset: int) -> None:
        """A record, as key and value, is the next in its partition."""
        number = self.next_numbers[partition]
        if record != (key_of(partition, number), value_of(partition, number)):
            self.note(f"{partition} at {offset}: {record}, expected number {number}")
        self.next_numbers[partition] += 1

    def note(self, what: str) -> None:
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(what)


class Follower:
    """Reads while the block runs."""

    def __init__(self, address: str, topic: str, *, partitions: int) -> None:
        self.seen = Seen(partitions=partitions)
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        self._thread = threading.Thread(target=self._follow, name=f"follower of {topic}", daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(END_SECONDS_MAX)

    def _follow(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(1_000, POLL_SECONDS):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            # A broker that is down is no failure of the reader; an offset that is gone is.
            if not error.retriable():
                self.seen.note(error.str())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.seen.add((message.key(), message.value()), partition=partition, offset=offset)

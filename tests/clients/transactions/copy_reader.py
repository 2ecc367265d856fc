"""Follows a topic that copiers write to, and its receipts, as a read_committed reader, from the first record on.

Whatever it is given it checks at once: in each partition of the topic the next record must be the next of the source's
partition. So a record that comes twice, too early, too late or out of a transaction that was aborted is found at the
moment at which it is seen. Which records belong together is checked at the end.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.clients.groups.churn_members import News
from tests.clients.transactions.copy_copier import RECEIPTS, TRANSACTION_HEADER

POLL_SECONDS = 0.2
END_SECONDS_MAX = 60


def value_of(partition: int, number: int) -> bytes:
    """The record of the source at this place."""
    return b"%d %d " % (partition, number) + b"." * (number % 50)


@dataclass
class Seen:
    """What a reader has been given so far."""

    next_numbers: list[int]
    """The number of the next record in each partition."""
    wrong: list[str] = field(default_factory=list)
    """Records that ought not to have come where they came."""
    sizes: Counter[str] = field(default_factory=Counter)
    """How many records of each transaction came; of those that tell which they belong to."""
    receipts: dict[str, int] = field(default_factory=dict)
    """How many there are, by the receipts."""

    @property
    def count(self) -> int:
        return sum(self.next_numbers)

    def add(self, partition: int, offset: int, value: bytes, transaction: str | None) -> None:
        expected = self.next_numbers[partition]
        if value != value_of(partition, expected):
            self.wrong.append(f"{partition} at {offset}: {value!r} of {transaction}, expected number {expected}")
            at, number, _ = value.split(b" ")
            expected = int(number) if int(at) == partition else expected
        self.next_numbers[partition] = expected + 1
        if transaction is not None:
            self.sizes[transaction] += 1

    def add_receipt(self, transaction: str, size: int) -> None:
        if transaction in self.receipts:
            self.wrong.append(f"a second receipt of {transaction}")
        self.receipts[transaction] = size

    def torn(self) -> list[str]:
        """Transactions of which a part is missing."""
        names = self.sizes.keys() | self.receipts.keys()
        return [
            f"{name}: {self.sizes[name]} records, {self.receipts.get(name)} by its receipt"
            for name in sorted(names)
            if self.sizes[name] != self.receipts.get(name)
        ]


class Follower:
    """Reads while the block runs."""

    def __init__(self, address: str, topic: str, *, partitions: int, news: News) -> None:
        self.seen = Seen([0] * partitions)
        self.failures: list[str] = []
        self._topic = topic
        self._news = news
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(name, number, OFFSET_BEGINNING)
                for name in (topic, topic + RECEIPTS)
                for number in range(partitions)
            ]
        )
        self._thread = threading.Thread(target=self._follow, name=f"follower of {topic}", daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(END_SECONDS_MAX)

    def _follow(self) -> None:
        while not self._is_over.is_set():
            messages = self._consumer.consume(500, POLL_SECONDS)
            if not messages:
                continue
            with self._news.lock:
                for message in messages:
                    self._take(message)
                self._news.lock.notify_all()
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            # A broker that is down is no failure of the reader; an offset that is gone is.
            if not error.retriable():
                self.failures.append(error.str())
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        if message.topic() == self._topic:
            self.seen.add(partition, offset, value, _transaction(message))
        else:
            receipt = json.loads(value)
            self.seen.add_receipt(receipt["transaction"], receipt["size"])


def _transaction(message: Message) -> str | None:
    headers: dict[str, bytes] = dict(message.headers() or ())  # type: ignore[arg-type]  # It gives pairs.
    return headers[TRANSACTION_HEADER].decode() if TRANSACTION_HEADER in headers else None

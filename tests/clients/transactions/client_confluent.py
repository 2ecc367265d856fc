"""confluent-kafka (librdkafka) in transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.transactions import clients
from tests.clients.transactions.clients import SECONDS_MAX, Records, Unstable
from tests.clients.transactions.raw_producer import Place

POLL_SECONDS = 0.2
UNSTABLE_SECONDS = 1
QUICK = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
}


class ConfluentProducer:
    """A transactional producer."""

    def __init__(self, address: str, transactional_id: str, *, timeout_ms: int, codec: str) -> None:
        self._address = address
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "compression.type": codec,
                "linger.ms": 1,
                "error_cb": lambda _: None,
            }
        )
        self._producer.init_transactions(SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        self._failures.clear()
        self._producer.begin_transaction()

    def send(self, place: Place, *values: bytes) -> None:
        for value in values:
            self._producer.produce(place.topic, value, partition=place.partition, on_delivery=self._delivered)

    def flush(self) -> None:
        # Its own flush ends with a SystemError when the producer is fenced meanwhile.
        deadline = time.monotonic() + SECONDS_MAX
        while len(self._producer):
            assert time.monotonic() < deadline
            self._producer.poll(POLL_SECONDS)
        if self._failures:
            raise KafkaException(self._failures[0])

    def send_offsets(self, group: str | clients.Member, offsets: Mapping[Place, int]) -> None:
        wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        if isinstance(group, str):
            consumer = _consumer(self._address, group, committed=True)
            try:
                self._producer.send_offsets_to_transaction(wanted, consumer.consumer_group_metadata(), SECONDS_MAX)
            finally:
                consumer.close()
        else:
            assert isinstance(group, ConfluentMember)
            metadata = group.consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(wanted, metadata, SECONDS_MAX)

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS_MAX)

    def close(self) -> None:
        # A producer that was fenced says so again.
        with suppress(KafkaException):
            self._producer.close()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)


class ConfluentMember:
    """A member of a group."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.consumer = _consumer(address, group, committed=True)
        self.consumer.subscribe([topic])

    def poll(self) -> list[tuple[Place, int, bytes]]:
        found = []
        for message in self.consumer.consume(20, POLL_SECONDS):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                continue
            offset, value = _record(message)
            found.append((Place(message.topic() or "", message.partition() or 0), offset, value))
        return found

    def rewind(self, offsets: Mapping[Place, int]) -> None:
        for place, offset in offsets.items():
            self.consumer.seek(TopicPartition(*place, offset))

    def close(self) -> None:
        self.consumer.close()


class ConfluentClient:
    """The library at an address."""

    name = "confluent-kafka"

    def __init__(self, address: str) -> None:
        self._address = address

    def producer(self, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> ConfluentProducer:
        return ConfluentProducer(self._address, transactional_id, timeout_ms=timeout_ms, codec=codec)

    def is_fenced(self, error: BaseException) -> bool:
        """Fatal: nothing can be done with the producer any more."""
        return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._FENCED

    def read(self, place: Place, *, committed: bool, start: int = 0) -> Records:
        consumer = _consumer(self._address, "none", committed=committed)
        found: Records = []
        deadline = time.monotonic() + SECONDS_MAX
        try:
            consumer.assign([TopicPartition(*place, start)])
            while True:
                assert time.monotonic() < deadline, f"the end has not come after {found}"
                message = consumer.poll(POLL_SECONDS)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return found
                found.append(_record(message))
        finally:
            consumer.close()

    def end_offset(self, place: Place, *, committed: bool) -> int:
        consumer = _consumer(self._address, "none", committed=committed)
        try:
            ends = consumer.get_watermark_offsets(TopicPartition(*place), timeout=SECONDS_MAX)
        finally:
            consumer.close()
        assert ends is not None
        return int(ends[1])

    def last_stable_offset(self, place: Place) -> int:
        raise NotImplementedError

    def stored(self, group: str, place: Place, *, stable: bool) -> int | None:
        consumer = _consumer(self._address, group, committed=stable)
        try:
            patience = UNSTABLE_SECONDS if stable else SECONDS_MAX
            (found,) = consumer.committed([TopicPartition(*place)], timeout=patience)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT):
                raise Unstable from error
            raise
        finally:
            consumer.close()
        return None if found.offset < 0 else found.offset

    def member(self, group: str, topic: str) -> ConfluentMember:
        return ConfluentMember(self._address, group, topic)


def connect(address: str) -> clients.TransactionClient:
    return ConfluentClient(address)


def _consumer(address: str, group: str, *, committed: bool) -> Consumer:
    return Consumer(
        {
            **QUICK,
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )


def _record(message: Message) -> tuple[int, bytes]:
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert isinstance(value, bytes)
    return offset, value

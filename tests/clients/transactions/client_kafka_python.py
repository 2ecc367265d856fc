"""kafka-python in transactions."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Self

from tests.clients.transactions import clients
from tests.clients.transactions.clients import SECONDS_MAX, Records, Unstable
from tests.clients.transactions.raw_producer import Place

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import (
        InvalidProducerEpochError,
        KafkaTimeoutError,
        ProducerFencedError,
        UnstableOffsetCommitError,
    )
    from kafka.structs import OffsetAndMetadata

POLL_MS = 200
MEMBER_POLL_MS = 2_000
"""A poll that ends while the group forms may lose the partitions: the client never looks at the answer then."""
UNSTABLE_MS = 1_000
QUICK = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100}


class KafkaPythonProducer:
    """A transactional producer. Its calls have no limit of their own, so each waits in a thread that has."""

    def __init__(self, address: str, transactional_id: str, *, timeout_ms: int, codec: str) -> None:
        self._calls = ThreadPoolExecutor(1)
        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
            **QUICK,
        )
        self._limited(self._producer.init_transactions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        self._sent.clear()
        self._producer.begin_transaction()

    def send(self, place: Place, *values: bytes) -> None:
        self._sent += [self._producer.send(place.topic, value, partition=place.partition) for value in values]

    def flush(self) -> None:
        self._producer.flush(SECONDS_MAX)
        for future in self._sent:
            future.get(SECONDS_MAX)

    def send_offsets(self, group: str | clients.Member, offsets: Mapping[Place, int]) -> None:
        wanted = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        if isinstance(group, str):
            whose: Any = group
        else:
            assert isinstance(group, KafkaPythonMember)
            whose = group.consumer.group_metadata()
        self._limited(lambda: self._producer.send_offsets_to_transaction(wanted, whose))

    def commit(self) -> None:
        self._limited(self._producer.commit_transaction)

    def abort(self) -> None:
        self._limited(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=1)
        self._calls.shutdown(wait=False)

    def _limited(self, call: Callable[[], None]) -> None:
        self._calls.submit(call).result(SECONDS_MAX)


class KafkaPythonMember:
    """A member of a group."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.consumer = KafkaConsumer(
            topic, **_settings(address, group, committed=True), max_poll_records=20, metadata_max_age_ms=500
        )

    def poll(self) -> list[tuple[Place, int, bytes]]:
        found = self.consumer.poll(MEMBER_POLL_MS)
        return [
            (Place(place.topic, place.partition), record.offset, record.value)
            for place, records in found.items()
            for record in records
        ]

    def rewind(self, offsets: Mapping[Place, int]) -> None:
        for place, offset in offsets.items():
            self.consumer.seek(TopicPartition(*place), offset)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonClient:
    """The library at an address."""

    name = "kafka-python"

    def __init__(self, address: str) -> None:
        self._address = address

    def producer(self, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> KafkaPythonProducer:
        return KafkaPythonProducer(self._address, transactional_id, timeout_ms=timeout_ms, codec=codec)

    def is_fenced(self, error: BaseException) -> bool:
        # A batch that comes too late is refused under another name; and whoever sends after that has been heard is told
        # what it was as part of another error.
        return any(isinstance(each, ProducerFencedError | InvalidProducerEpochError) for each in (error, *error.args))

    def read(self, place: Place, *, committed: bool, start: int = 0) -> Records:
        found: Records = []
        deadline = time.monotonic() + SECONDS_MAX
        with self._consumer(place, committed=committed) as (consumer, at):
            end = consumer.end_offsets([at])[at]
            consumer.seek(at, start)
            while consumer.position(at) < end:
                assert time.monotonic() < deadline, f"the end has not come after {found}"
                found += [(each.offset, each.value) for each in consumer.poll(POLL_MS).get(at, ())]
        return found

    def end_offset(self, place: Place, *, committed: bool) -> int:
        with self._consumer(place, committed=committed) as (consumer, at):
            return int(consumer.end_offsets([at])[at])

    def last_stable_offset(self, place: Place) -> int:
        raise NotImplementedError

    def stored(self, group: str, place: Place, *, stable: bool) -> int | None:
        with closing(KafkaConsumer(**_settings(self._address, group, committed=stable))) as consumer:
            try:
                patience_ms = UNSTABLE_MS if stable else SECONDS_MAX * 1_000
                found: int | None = consumer.committed(TopicPartition(*place), timeout_ms=patience_ms)
            except (KafkaTimeoutError, UnstableOffsetCommitError) as error:
                raise Unstable from error
        return found

    def member(self, group: str, topic: str) -> KafkaPythonMember:
        return KafkaPythonMember(self._address, group, topic)

    @contextmanager
    def _consumer(self, place: Place, *, committed: bool) -> Iterator[tuple[Any, Any]]:
        with closing(KafkaConsumer(**_settings(self._address, None, committed=committed))) as consumer:
            at = TopicPartition(*place)
            consumer.assign([at])
            yield consumer, at


def connect(address: str) -> clients.TransactionClient:
    return KafkaPythonClient(address)


def _settings(address: str, group: str | None, *, committed: bool) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "group_id": group,
        "isolation_level": "read_committed" if committed else "read_uncommitted",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        **QUICK,
        "fetch_max_wait_ms": 50,
    }

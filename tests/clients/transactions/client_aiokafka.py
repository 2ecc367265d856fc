"""aiokafka in transactions. It runs in a loop of its own thread, so that its background work goes on between calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, ProducerFenced

from tests.clients.transactions import clients
from tests.clients.transactions.clients import SECONDS_MAX, Records
from tests.clients.transactions.raw_producer import Place

POLL_MS = 200

T = TypeVar("T")


class Loop:
    """A thread that runs coroutines for others."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # It complains of errors that nobody looked at, also of those inside the client that it has raised elsewhere.
        self._loop.set_exception_handler(lambda *_: None)
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, SECONDS_MAX), self._loop).result()


class AioProducer:
    """A transactional producer."""

    def __init__(self, loop: Loop, address: str, transactional_id: str, *, timeout_ms: int, codec: str) -> None:
        self._loop = loop
        self._sent: list[Any] = []
        self._producer = loop.run(self._started(address, transactional_id, timeout_ms=timeout_ms, codec=codec))

    @staticmethod
    async def _started(address: str, transactional_id: str, *, timeout_ms: int, codec: str) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
            retry_backoff_ms=10,
        )
        await producer.start()
        return producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        self._sent.clear()
        self._loop.run(self._producer.begin_transaction())

    def send(self, place: Place, *values: bytes) -> None:
        for value in values:
            try:
                future = self._loop.run(self._producer.send(place.topic, value, partition=place.partition))
            except IllegalOperation:
                # It was fenced meanwhile, which the records that were handed over before can tell.
                self.flush()
                raise
            self._sent.append(future)

    def flush(self) -> None:
        async def taken() -> None:
            for future in self._sent:
                await future

        self._loop.run(taken())

    def send_offsets(self, group: str | clients.Member, offsets: Mapping[Place, int]) -> None:
        if isinstance(group, str):
            name = group
        else:
            # It has no way to say which member it is.
            assert isinstance(group, AioMember)
            name = group.group
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(wanted, name))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run(self._producer.stop())


class AioMember:
    """A member of a group."""

    def __init__(self, loop: Loop, address: str, group: str, topic: str) -> None:
        self.group = group
        self._loop = loop
        self._consumer = loop.run(self._started(address, group, topic))

    @staticmethod
    async def _started(address: str, group: str, topic: str) -> Any:
        consumer = AIOKafkaConsumer(topic, **_settings(address, group, committed=True), max_poll_records=20)
        await consumer.start()
        return consumer

    def poll(self) -> list[tuple[Place, int, bytes]]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=POLL_MS))
        return [
            (Place(place.topic, place.partition), record.offset, record.value)
            for place, records in found.items()
            for record in records
        ]

    def rewind(self, offsets: Mapping[Place, int]) -> None:
        async def seek() -> None:
            for place, offset in offsets.items():
                self._consumer.seek(TopicPartition(*place), offset)

        self._loop.run(seek())

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class AioClient:
    """The library at an address."""

    name = "aiokafka"

    def __init__(self, address: str) -> None:
        self._address = address
        self._loop = Loop()

    def producer(self, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> AioProducer:
        return AioProducer(self._loop, self._address, transactional_id, timeout_ms=timeout_ms, codec=codec)

    def is_fenced(self, error: BaseException) -> bool:
        return isinstance(error, ProducerFenced)

    def read(self, place: Place, *, committed: bool, start: int = 0) -> Records:
        async def work() -> Records:
            found: Records = []
            deadline = time.monotonic() + SECONDS_MAX
            async with self._consumer(place, committed=committed) as (consumer, at):
                end = (await consumer.end_offsets([at]))[at]
                consumer.seek(at, start)
                while await consumer.position(at) < end:
                    assert time.monotonic() < deadline, f"the end has not come after {found}"
                    records = await consumer.getmany(at, timeout_ms=POLL_MS)
                    found += [(each.offset, each.value) for each in records.get(at, ())]
            return found

        return self._loop.run(work())

    def end_offset(self, place: Place, *, committed: bool) -> int:
        async def work() -> int:
            async with self._consumer(place, committed=committed) as (consumer, at):
                return int((await consumer.end_offsets([at]))[at])

        return self._loop.run(work())

    def last_stable_offset(self, place: Place) -> int:
        async def work() -> int:
            async with self._consumer(place, committed=True) as (consumer, at):
                consumer.seek(at, 0)
                while consumer.last_stable_offset(at) is None:
                    await consumer.getmany(at, timeout_ms=POLL_MS)
                return int(consumer.last_stable_offset(at))

        return self._loop.run(work())

    def stored(self, group: str, place: Place, *, stable: bool) -> int | None:
        async def work() -> int | None:
            consumer = AIOKafkaConsumer(**_settings(self._address, group, committed=stable))
            await consumer.start()
            try:
                found: int | None = await consumer.committed(TopicPartition(*place))
            finally:
                await consumer.stop()
            return found

        return self._loop.run(work())

    def member(self, group: str, topic: str) -> AioMember:
        return AioMember(self._loop, self._address, group, topic)

    @asynccontextmanager
    async def _consumer(self, place: Place, *, committed: bool) -> AsyncIterator[tuple[Any, Any]]:
        consumer = AIOKafkaConsumer(**_settings(self._address, None, committed=committed))
        await consumer.start()
        at = TopicPartition(*place)
        consumer.assign([at])
        try:
            yield consumer, at
        finally:
            await consumer.stop()


def connect(address: str) -> clients.TransactionClient:
    return AioClient(address)


def _settings(address: str, group: str | None, *, committed: bool) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "group_id": group,
        "isolation_level": "read_committed" if committed else "read_uncommitted",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "retry_backoff_ms": 10,
        "fetch_max_wait_ms": 50,
    }

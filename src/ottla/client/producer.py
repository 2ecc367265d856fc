"""The async producer: a task gathers what was handed over and sends it in rounds.

The task belongs to the producer and ends with it, so a producer is used with `async with`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from ottla.client.accumulator import Accumulator, Batch, notify, size_of
from ottla.client.cluster import Cluster
from ottla.client.errors import BufferFull, ClientClosed, ProducerFenced, TransactionFailed
from ottla.client.intake import Intake, gathered
from ottla.client.progress import Positions, Progress, Reader, progress_of
from ottla.client.sending import Sender
from ottla.client.settings import ProducerSettings
from ottla.client.transactions import Transactions, transactional
from ottla.client.values import HeaderPairs, NewRecord, OpenTransaction, RecordPosition
from ottla.clock import Clock
from ottla.errors import OttlaError

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class AsyncProducer:
    """Sends records from one event loop. Any number of tasks may share one."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, *, clock: Clock, chance: Random) -> None:
        self._cluster = cluster
        self._settings = settings
        self._accumulator = Accumulator(
            batch_bytes=settings.batch_bytes,
            buffer_bytes=settings.buffer_bytes,
            linger_ms=settings.linger_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
        )
        self._intake = Intake(cluster, self._accumulator, settings, clock=clock, chance=chance)
        self._transactions = None if settings.transactional_id is None else Transactions(cluster, settings)
        if self._transactions is not None:
            self._accumulator.gate = self._transactions.gate
        self._sender = Sender(cluster, self._accumulator, settings, self._transactions)
        self._turn = asyncio.Lock()
        """Held by a round, and by whoever ends a transaction: nothing may be under way then."""
        self._work = asyncio.Event()
        self._settled = asyncio.Event()
        """Set after each round, for those who wait for room or for the end of a flush."""
        self._tasks: asyncio.TaskGroup | None = None
        self._pump: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._pump = self._tasks.create_task(self._run(), name="ottla-producer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._close(abort=kind is not None)
        finally:
            tasks, self._tasks = self._tasks, None
            if tasks is not None and isinstance(error, asyncio.CancelledError):
                await tasks.__aexit__(kind, error, traceback)
            elif tasks is not None:
                # The body's own error goes on as it is, not in a group.
                await tasks.__aexit__(None, None, None)

    # --- sending -------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeaderPairs = (),
    ) -> RecordPosition:
        """Send a record and wait until it is acknowledged."""
        return await (await self._hand_over(topic, value, key, partition, timestamp_ms, headers, urgent=True))

    async def send_to(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: HeaderPairs = (),
    ) -> RecordPosition:
        """Send a record to exactly this partition and wait until it is acknowledged."""
        return await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)

    async def submit(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeaderPairs = (),
    ) -> asyncio.Future[RecordPosition]:
        """Hand a record over and go on; waits only for metadata and for room in the buffer."""
        return await self._hand_over(topic, value, key, partition, timestamp_ms, headers, urgent=False)

    async def send_batch(self, topic: str, records: Sequence[bytes | NewRecord | None]) -> list[RecordPosition]:
        """Send records together and wait for all; the positions are in the order of the records.

        Those for one partition are written all or none. PartlySent says so when some partitions failed.
        """
        if not records:
            return []
        plain = self._intake.plain(records)
        highest = None if plain is not None else self._intake.highest_partition(records)
        view = await self._intake.topic(topic, highest)
        shares = self._intake.shares(view, records, plain)
        batches = [batch for batch, _ in shares]
        await self._with_room(lambda: self._accumulator.add(batches) or None)
        self._work.set()
        await self._until_done(batches)
        return gathered(shares, len(records))

    async def flush(self) -> None:
        """Send what was submitted and wait until all of it is acknowledged or has failed."""
        batches = self._accumulator.flush_all()
        self._work.set()
        await self._until_done(batches)

    async def _hand_over(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeaderPairs,
        *,
        urgent: bool,
    ) -> asyncio.Future[RecordPosition]:
        record = self._intake.record(value, key, timestamp_ms, headers)
        view = self._intake.known(topic, partition) or await self._intake.topic(topic, partition)
        size = size_of(record)
        target = self._intake.partition(view, key, partition, size)
        future: asyncio.Future[RecordPosition] = asyncio.get_running_loop().create_future()
        if self._transactions is not None:
            # What became of it is the transaction's business: nobody has to ask.
            future.add_done_callback(_heard)
        now_ms = self._cluster.ticks.now_ms()

        def place() -> tuple[Batch, int] | None:
            return self._accumulator.append(
                target, record, record_bytes=size, urgent=urgent, now_ms=now_ms, waiter=future
            )

        _, index = await self._with_room(place)
        if urgent or index == 0:
            self._work.set()
        return future

    async def _with_room(self, place: Callable[[], T | None]) -> T:
        """What `place` gives once the buffer has room for it; BufferFull when it has none for too long."""
        until_ms = self._cluster.ticks.now_ms() + self._settings.block_ms
        while True:
            self._check_open()
            placed = place()
            if placed is not None:
                return placed
            left_ms = until_ms - self._cluster.ticks.now_ms()
            if left_ms <= 0:
                raise BufferFull(
                    f"{self._accumulator.bytes_waiting} bytes wait to be sent and buffer_bytes is "
                    f"{self._settings.buffer_bytes}; none left within block_ms={self._settings.block_ms}"
                )
            self._accumulator.flush_all()
            self._work.set()
            self._settled.clear()
            await _wait(self._settled, left_ms)

    async def _until_done(self, batches: Sequence[Batch]) -> None:
        while not all(batch.done for batch in batches):
            if self._pump is None or self._pump.done():
                raise ClientClosed("the producer is not open; use it with `async with`")
            self._settled.clear()
            await self._settled.wait()

    # --- transactions --------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """All that is sent in an `async with` block, or nothing of it: committed at its end, aborted if it raises."""
        transactions = transactional(self._transactions)
        await self.begin()
        try:
            yield self
        except BaseException as e:
            if transactions.is_open:
                await self._abort_because_of(e)
            raise
        if transactions.is_open:
            # Unless the block has ended it itself.
            await self.commit()

    async def begin(self) -> None:
        """Open a transaction; the first time, fence whoever used the transactional id before."""
        self._check_open()
        async with self._turn:
            await transactional(self._transactions).begin()

    async def commit(self) -> None:
        """Send what was submitted, and make all of it count; aborts and raises if something could not be sent."""
        self._check_open()
        transactions = transactional(self._transactions)
        transactions.stop_taking()
        await self.flush()
        async with self._turn:
            await transactions.commit()

    async def abort(self) -> None:
        """Make nothing of it count; what was submitted and not sent is dropped."""
        self._check_open()
        await self._abort(None)

    async def send_offsets(self, source: Reader | Progress | Positions, *, group: str | None = None) -> None:
        """Store how far a consumer has read, or these positions of a group, as part of the transaction."""
        self._check_open()
        told = progress_of(source, group)
        async with self._turn:
            await transactional(self._transactions).send_offsets(told.group, told.offsets, told.member)

    async def detach(self) -> OpenTransaction | None:
        """Send what was submitted, then close and leave the transaction open for somebody else to commit.

        None: nothing was sent, so that there is nothing to commit. Aborts and raises if something could not be sent.
        """
        self._check_open()
        transactions = transactional(self._transactions)
        transactions.stop_taking()
        await self.flush()
        async with self._turn:
            if transactions.failure is not None:
                await transactions.commit()
            left_open = transactions.leave_open()
        await self.close()
        return left_open

    async def _abort(self, time_ms: int | None) -> None:
        transactions = transactional(self._transactions)
        transactions.stop_taking()
        async with self._turn:
            gone = self._accumulator.fail_all(
                TransactionFailed("the transaction was aborted before this record was sent")
            )
            transactions.dropped(gone)
            notify(gone)
            self._settled.set()
            await transactions.abort(time_ms=time_ms)

    async def _abort_because_of(self, error: BaseException) -> None:
        """As well as it can be done now; the error is the one to hear of."""
        try:
            await self._abort(self._cluster.settings.request_timeout_ms)
        except OttlaError as e:
            if isinstance(error, TransactionFailed) and isinstance(e, ProducerFenced):
                # Now it is known why.
                raise e from error
            error.add_note(f"the transaction could not be aborted now: {e}")

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transactions is not None and self._transactions.is_open

    def _check_open(self) -> None:
        if self._closing or self._pump is None:
            raise ClientClosed("the producer is not open; use it with `async with`")

    # --- the task ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Send what is ready, wait until more is; ends when the producer closes and nothing is left."""
        try:
            while not (self._closing and self._accumulator.is_empty):
                self._work.clear()
                async with self._turn:
                    await self._sender.round()
                self._settled.set()
                wait_ms = self._accumulator.wait_ms(self._cluster.ticks.now_ms())
                if wait_ms != 0 and not (self._closing and wait_ms is None):
                    await _wait(self._work, wait_ms)
        except BaseException as e:
            if self._transactions is not None:
                # Before anybody hears of the batches: whoever waits for them is about to commit.
                self._transactions.spoil(ClientClosed(f"the producer failed: {e!r}"))
            raise
        finally:
            # After a bug or a cancellation nobody sends any more, so nobody may go on waiting.
            self._closing = True
            notify(self._accumulator.fail_all(ClientClosed("the producer was closed before this record was sent")))
            self._settled.set()

    @property
    def is_closed(self) -> bool:
        return self._closing

    async def close(self) -> None:
        """Send what is left, wait for it, and let go of the connections."""
        await self._close(abort=False)

    async def _close(self, *, abort: bool) -> None:
        if self._transactions is not None and self._transactions.is_open and not self._closing:
            await self._end_transaction()
        self._closing = True
        self._accumulator.flush_all()
        self._work.set()
        pump = self._pump
        if pump is not None and not pump.done():
            if abort:
                pump.cancel()
            await asyncio.wait([pump])
        await self._cluster.transport.close()

    async def _end_transaction(self) -> None:
        """Nobody will commit it, and until it has ended nobody reads beyond it."""
        try:
            await self._abort(self._cluster.settings.request_timeout_ms)
        except OttlaError as e:
            _logger.warning("the transaction that was open at the close could not be aborted: %s", e)


def _heard(future: asyncio.Future[RecordPosition]) -> None:
    if not future.cancelled():
        future.exception()


async def _wait(event: asyncio.Event, timeout_ms: int | None) -> None:
    """Until the event is set or the time is over, whichever is first."""
    if timeout_ms is None:
        await event.wait()
        return
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return

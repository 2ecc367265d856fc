"""The blocking producer: sends on the caller's own thread.

Whoever waits for an acknowledgement drives: takes the one role that may use the connections, and runs
rounds until its own records are settled, along with everybody else's that are ready. The others wait for
the driver, and one of them takes over when it leaves. So concurrent sends share batches, and a lone
sender never changes threads. Only `submit` starts a thread, which watches the clock while nobody waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.accumulator import NEVER_MS, Accumulator, Batch, PackedRows, notify, size_of
from ottla.client.cluster import Cluster
from ottla.client.errors import BufferFull, ClientClosed, ProducerFenced, TransactionFailed
from ottla.client.first_failure import FirstFailure
from ottla.client.intake import Intake, gathered
from ottla.client.progress import Positions, Progress, Reader, progress_of
from ottla.client.sending import Sender
from ottla.client.settings import ProducerSettings
from ottla.client.topology import TopicView
from ottla.client.transactions import Transactions, transactional
from ottla.client.transport import run_now
from ottla.client.values import HeaderPairs, NewRecord, OpenTransaction, RecordPosition, TopicPartition
from ottla.clock import Clock
from ottla.errors import OttlaError
from ottla.records.batch import HEADER_SIZE
from ottla.records.packing import Packed, RecordTuple

LOOK_AGAIN_SECONDS = 1.0
"""Whoever waits for another thread looks again after this time, in case that thread is gone."""

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def _never() -> bool:
    return False


class Producer:
    """Sends records. Any number of threads may share one."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        clock: Clock,
        chance: Random,
        borrows_connections: bool = False,
    ) -> None:
        """`borrows_connections`: they are somebody else's, who goes on with them when this producer is closed."""
        self._cluster = cluster
        self._borrows_connections = borrows_connections
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
        self._changed = threading.Condition()
        self._driving = False
        self._waiting = 0
        """Threads that wait for the role."""
        self._sleeping = 0
        """Threads that wait for the time at which something is due."""
        self._watcher: threading.Thread | None = None
        self._closing = False
        self._packed = FirstFailure()

    # --- sending -------------------------------------------------------------------------------------

    def send(
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
        record = self._intake.record(value, key, timestamp_ms, headers)
        view = self._intake.known(topic, partition) or self._topic(topic, partition)
        size = size_of(record)
        target = self._intake.partition(view, key, partition, size)
        batch, index = self._append(target, record, size, None)
        self._drive(lambda: batch.done)
        return batch.position(index)

    def send_to(
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
        return self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)

    def send_batch(self, topic: str, records: Sequence[bytes | NewRecord | None]) -> list[RecordPosition]:
        """Send records together and wait for all; the positions are in the order of the records.

        Those for one partition are written all or none. PartlySent says so when some partitions failed.
        """
        if not records:
            return []
        plain = self._intake.plain(records)
        highest = None if plain is not None else self._intake.highest_partition(records)
        view = self._intake.known(topic, highest) or self._topic(topic, highest)
        shares = self._intake.shares(view, records, plain)
        batches = [batch for batch, _ in shares]
        self._with_room(lambda: self._accumulator.add(batches) or None)
        self._drive(lambda: all(batch.done for batch in batches))
        return gathered(shares, len(records))

    def submit(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeaderPairs = (),
    ) -> Future[RecordPosition]:
        """Hand a record over and go on; the future says what became of it."""
        record = self._intake.record(value, key, timestamp_ms, headers)
        view = self._intake.known(topic, partition) or self._topic(topic, partition)
        size = size_of(record)
        target = self._intake.partition(view, key, partition, size)
        future: Future[RecordPosition] = Future()
        # From here on it is under way and cannot be cancelled.
        future.set_running_or_notify_cancel()
        if self._watcher is None:
            self._start_watcher()
        self._append(target, record, size, future)
        return future

    def submit_packed(self, topic: str, partition: int, packed: Packed) -> None:
        """Hand over a batch whose records are laid out already, and go on; it takes the packed buffer over.

        Waits only while the buffer is full. What fails, `flush` tells, and from then on nothing more is taken. A
        batch that is too large for the broker is cut in two until its parts fit or hold one record.
        """
        if self._packed.error is not None:
            raise self._packed.error
        view = self._intake.known(topic, partition) or self._topic(topic, partition)
        now_ms = self._cluster.ticks.now_ms()
        batch = self._accumulator.batch(
            view.keys[partition], PackedRows(packed), records_bytes=len(packed[0]) - HEADER_SIZE, now_ms=now_ms
        )
        batch.may_split = True
        batch.waiters = [(0, self._packed)]
        if self._watcher is None:
            self._start_watcher()
        self._with_room(lambda: self._accumulator.add([batch]) or None)
        if self._sleeping:
            with self._changed:
                self._changed.notify_all()

    def topic(self, name: str, partition: int | None = None) -> TopicView:
        """What is known of a topic, asked for if need be; PartitionNotFound if it has no such partition."""
        return self._intake.known(name, partition) or self._topic(name, partition)

    def flush(self) -> None:
        """Send what was submitted and wait until all of it is acknowledged or has failed.

        Whoever submitted a record hears of it by its future; the first error of a packed batch is raised here.
        """
        self._flush()
        if self._packed.error is not None:
            raise self._packed.error

    def _flush(self) -> None:
        splits = -1
        # What a batch was cut into while we waited for it has to be waited for as well.
        while splits != self._accumulator.splits:
            splits = self._accumulator.splits
            batches = self._accumulator.flush_all()
            self._drive(lambda batches=batches: all(batch.done for batch in batches))  # type: ignore[misc]

    def _topic(self, topic: str, partition: int | None) -> TopicView:
        return self._in_role(self._intake.topic(topic, partition))

    def _in_role(self, work: Coroutine[Any, Any, T]) -> T:
        """Use the connections while nobody else does."""
        self._take_role()
        try:
            return run_now(work)
        finally:
            self._leave_role()

    def _append(
        self, target: TopicPartition, record: RecordTuple, size: int, waiter: Future[RecordPosition] | None
    ) -> tuple[Batch, int]:
        now_ms = self._cluster.ticks.now_ms()

        def place() -> tuple[Batch, int] | None:
            return self._accumulator.append(
                target, record, record_bytes=size, urgent=waiter is None, now_ms=now_ms, waiter=waiter
            )

        placed = self._with_room(place)
        if placed[1] == 0 and self._sleeping:
            # A new batch: whoever sleeps may have to wake earlier than it thought, or be needed at once.
            with self._changed:
                self._changed.notify_all()
        return placed

    def _with_room(self, place: Callable[[], T | None]) -> T:
        """What `place` gives once the buffer has room for it; BufferFull when it has none for too long."""
        until_ms: int | None = None
        while True:
            if self._closing:
                raise ClientClosed("the producer is closed")
            placed = place()
            if placed is not None:
                return placed
            now_ms = self._cluster.ticks.now_ms()
            if until_ms is None:
                until_ms = now_ms + self._settings.block_ms
            if now_ms >= until_ms:
                raise BufferFull(
                    f"{self._accumulator.bytes_waiting} bytes wait to be sent and buffer_bytes is "
                    f"{self._settings.buffer_bytes}; none left within block_ms={self._settings.block_ms}"
                )
            self._accumulator.flush_all()
            before = self._accumulator.bytes_waiting
            self._drive(lambda before=before: self._accumulator.bytes_waiting < before, until_ms)  # type: ignore[misc]

    # --- transactions --------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """All that is sent in a `with` block, or nothing of it: committed at its end, aborted if it raises."""
        transactions = transactional(self._transactions)
        self.begin()
        try:
            yield self
        except BaseException as e:
            if transactions.is_open:
                self._abort_because_of(e)
            raise
        if transactions.is_open:
            # Unless the block has ended it itself.
            self.commit()

    def begin(self) -> None:
        """Open a transaction; the first time, fence whoever used the transactional id before."""
        self._check_open()
        self._in_role(transactional(self._transactions).begin())
        # What became of an earlier one's batches was told at its end.
        self._packed = FirstFailure()

    def commit(self) -> None:
        """Send what was submitted, and make all of it count; aborts and raises if something could not be sent."""
        self._check_open()
        transactions = transactional(self._transactions)
        self._send_rest(transactions)
        self._in_role(transactions.commit())

    def _send_rest(self, transactions: Transactions) -> None:
        """Nothing more comes in, and what was submitted is settled; what could not be sent spoils the transaction."""
        transactions.stop_taking()
        self._flush()
        if self._packed.error is not None:
            transactions.spoil(self._packed.error)

    def abort(self) -> None:
        """Make nothing of it count; what was submitted and not sent is dropped."""
        self._check_open()
        transactions = transactional(self._transactions)
        transactions.stop_taking()
        self._in_role(self._abort(transactions, None))

    def send_offsets(self, source: Reader | Progress | Positions, *, group: str | None = None) -> None:
        """Store how far a consumer has read, or these positions of a group, as part of the transaction."""
        self._check_open()
        told = progress_of(source, group)
        self._in_role(transactional(self._transactions).send_offsets(told.group, told.offsets, told.member))

    def detach(self) -> OpenTransaction | None:
        """Send what was submitted, then close and leave the transaction open for somebody else to commit.

        None: nothing was sent, so that there is nothing to commit. Aborts and raises if something could not be sent.
        """
        self._check_open()
        transactions = transactional(self._transactions)
        self._send_rest(transactions)
        if transactions.failure is not None:
            self._in_role(transactions.commit())
        left_open = transactions.leave_open()
        self.close()
        return left_open

    async def _abort(self, transactions: Transactions, time_ms: int | None) -> None:
        gone = self._accumulator.fail_all(TransactionFailed("the transaction was aborted before this record was sent"))
        transactions.dropped(gone)
        notify(gone)
        await transactions.abort(time_ms=time_ms)

    def _abort_because_of(self, error: BaseException) -> None:
        """As well as it can be done now; the error is the one to hear of."""
        transactions = transactional(self._transactions)
        try:
            transactions.stop_taking()
            self._in_role(self._abort(transactions, self._cluster.settings.request_timeout_ms))
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
        if self._closing:
            raise ClientClosed("the producer is closed")

    # --- driving -------------------------------------------------------------------------------------

    def _drive(self, finished: Callable[[], bool], until_ms: int = NEVER_MS) -> None:
        """Send, or let the one who does, until `finished`."""
        while not finished() and self._cluster.ticks.now_ms() < until_ms:
            if not self._take_role(finished, until_ms):
                return
            try:
                self._run_rounds(finished, until_ms)
            finally:
                self._leave_role()

    def _run_rounds(self, finished: Callable[[], bool], until_ms: int) -> None:
        ticks = self._cluster.ticks
        while True:
            run_now(self._sender.round())
            if finished():
                return
            with self._changed:
                if self._waiting:
                    self._changed.notify_all()
                self._sleeping += 1
                try:
                    # Asked for only now: whoever adds a batch later sees that somebody sleeps, and says so.
                    now_ms = ticks.now_ms()
                    wait_ms = self._accumulator.wait_ms(now_ms)
                    if wait_ms and now_ms < until_ms:
                        self._changed.wait(min(wait_ms, until_ms - now_ms) / 1000)
                finally:
                    self._sleeping -= 1
            if wait_ms is None or ticks.now_ms() >= until_ms:
                return

    def _take_role(self, finished: Callable[[], bool] = _never, until_ms: int = NEVER_MS) -> bool:
        """Become the one who may use the connections; False when that is not needed any more."""
        with self._changed:
            while self._driving:
                if finished() or self._cluster.ticks.now_ms() >= until_ms:
                    return False
                if self._sleeping:
                    self._changed.notify_all()
                self._waiting += 1
                try:
                    self._changed.wait(LOOK_AGAIN_SECONDS)
                finally:
                    self._waiting -= 1
            self._driving = True
            return True

    def _leave_role(self) -> None:
        with self._changed:
            self._driving = False
            if self._waiting or (self._sleeping and not self._accumulator.is_empty):
                self._changed.notify_all()

    # --- the clock -----------------------------------------------------------------------------------

    def _start_watcher(self) -> None:
        with self._changed:
            if self._watcher is None and not self._closing:
                self._watcher = threading.Thread(target=self._watch, name="ottla-producer", daemon=True)
                self._watcher.start()

    def _watch(self) -> None:
        """Send what has lingered long enough, when nobody waits for it."""
        while self._work_is_due():
            try:
                run_now(self._sender.round())
            except BaseException as e:
                # A bug; without this, whoever waits would wait for ever.
                _logger.exception("the producer's thread failed; nothing more is sent")
                self._closing = True
                failure = ClientClosed(f"the producer failed: {e!r}")
                if self._transactions is not None:
                    # Before anybody hears of the batches: whoever waits for them is about to commit.
                    self._transactions.spoil(failure)
                notify(self._accumulator.fail_all(failure))
                raise
            finally:
                self._leave_role()

    def _work_is_due(self) -> bool:
        """Take the role when it is time to send; False when the producer closes."""
        with self._changed:
            while not self._closing:
                self._sleeping += 1
                wait_ms = self._accumulator.wait_ms(self._cluster.ticks.now_ms())
                is_due = wait_ms == 0 and not self._driving
                if not is_due:
                    # While somebody else drives, they say when they stop.
                    has_to_look = wait_ms is None or self._driving
                    self._changed.wait(LOOK_AGAIN_SECONDS if has_to_look or wait_ms is None else wait_ms / 1000)
                self._sleeping -= 1
                if is_due:
                    self._driving = True
                    return True
            return False

    # --- the end -------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is left, wait for it, and let go of the connections."""
        self._close(abort=False)

    def discard(self) -> None:
        """Close, and drop what was not sent yet."""
        self._close(abort=True)

    def _close(self, *, abort: bool) -> None:
        if self._transactions is not None and self._transactions.is_open and not self._closing:
            self._end_transaction()
        with self._changed:
            if self._closing and self._watcher is None and self._accumulator.is_empty:
                return
            self._closing = True
            self._changed.notify_all()
        if not abort:
            self._flush()
        self._take_role()
        try:
            notify(self._accumulator.fail_all(ClientClosed("the producer was closed before this record was sent")))
            if not self._borrows_connections:
                run_now(self._cluster.transport.close())
        finally:
            self._leave_role()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.join()

    def _end_transaction(self) -> None:
        """Nobody will commit it, and until it has ended nobody reads beyond it."""
        transactions = transactional(self._transactions)
        try:
            transactions.stop_taking()
            self._in_role(self._abort(transactions, self._cluster.settings.request_timeout_ms))
        except OttlaError as e:
            _logger.warning("the transaction that was open at the close could not be aborted: %s", e)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error nobody may be there to wait for what is left.
        self._close(abort=kind is not None)

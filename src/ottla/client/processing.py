"""The async loop of transactions: read, transform, write, exactly once; see `turns` for its rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from ottla.client.consumer import AsyncConsumer
from ottla.client.errors import ClientClosed, ProducerFenced, TransactionFailed
from ottla.client.producer import AsyncProducer
from ottla.client.turns import Turns, first_offsets, may_be_repeated, reached
from ottla.client.values import HeaderPairs, Record, TopicPartition
from ottla.clock import Clock
from ottla.errors import OttlaError

_logger = logging.getLogger(__name__)


class AsyncProcessor:
    """The loop. Belongs to one task; only `stop` may be called from elsewhere."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        producer: AsyncProducer,
        topics: Sequence[str],
        pattern: str | None,
        *,
        ticks: Clock,
        idle_ms: int | None,
    ) -> None:
        self.consumer = consumer
        self.producer = producer
        self._topics = topics
        self._pattern = pattern
        self._turns = Turns(ticks, idle_ms)
        self._first: dict[TopicPartition, int] = {}
        """Where the turn that is open began, in each partition that it has records of."""
        self._is_abandoned = False
        self._stack = AsyncExitStack()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeaderPairs = (),
    ) -> None:
        """Make a record part of this turn; does not wait for it."""
        try:
            await self.producer.submit(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        except TransactionFailed as e:
            # The end of the turn says what to do about it; until then nothing that is sent matters.
            _logger.debug("not sent: %s", e)

    def stop(self) -> None:
        """Let the loop end when it comes back for more; the turn that is open counts."""
        self._turns.is_stopped = True

    def __aiter__(self) -> Self:
        # A loop that was left in the middle of a turn had no use for it.
        self._is_abandoned = bool(self._first)
        return self

    async def __anext__(self) -> list[Record]:
        if self._is_abandoned:
            await self._give_back()
        elif self._first:
            await self._finish()
        while True:
            wait_ms = self._turns.wait_ms()
            if wait_ms is None:
                raise StopAsyncIteration
            if not self.producer.in_transaction:
                await self._begin()
            try:
                records = await self.consumer.poll(wait_ms)
            except ClientClosed:
                raise StopAsyncIteration from None
            self._turns.came(len(records))
            if records:
                self._first = first_offsets(records)
                return records

    async def _begin(self) -> None:
        """Before anything is read: whatever the last turn has left in doubt is settled here."""
        try:
            await self.producer.begin()
        except TransactionFailed as e:
            if not may_be_repeated(e):
                raise
            # It is known now that the last turn came to nothing; its records have been given back already.
            _logger.warning("the last records are read again: %s", e)
            await self.producer.begin()

    async def _finish(self) -> None:
        """Commit the turn, or see to it that its records come again."""
        progress = self.consumer.progress()
        try:
            await self.producer.send_offsets(reached(progress, self._first))
            await self.producer.commit()
        except OttlaError as e:
            await self._give_back()
            if not may_be_repeated(e):
                raise
            _logger.warning("group %s: the last records are read again: %s", progress.group, e)
            self._turns.ended(well=False)
            return
        self._first = {}
        self._turns.ended(well=True)

    async def _give_back(self) -> None:
        first, self._first, self._is_abandoned = self._first, {}, False
        self.consumer.go_back(first)
        if self.producer.in_transaction:
            try:
                await self.producer.abort()
            except ProducerFenced:
                raise
            except OttlaError as e:
                # The next begin makes up for it.
                _logger.warning("not aborted yet: %s", e)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self.consumer)
            await opening.enter_async_context(self.producer)
            await self.consumer.subscribe(self._topics, pattern=self._pattern)
            self._stack = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The producer goes first, and aborts what is open.
        await self._stack.__aexit__(kind, error, traceback)

"""The blocking loop of transactions; see `ottla.client.processing` for its rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.errors import ClientClosed, ProducerFenced, TransactionFailed
from ottla.client.turns import Turns, first_offsets, may_be_repeated, reached
from ottla.client.values import HeaderPairs, Record, TopicPartition
from ottla.clock import Clock
from ottla.errors import OttlaError

_logger = logging.getLogger(__name__)


class Processor:
    """The loop. Belongs to one thread; only `stop` may be called from elsewhere."""

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
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
        self._stack = ExitStack()

    def send(
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
            self.producer.submit(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        except TransactionFailed as e:
            # The end of the turn says what to do about it; until then nothing that is sent matters.
            _logger.debug("not sent: %s", e)

    def stop(self) -> None:
        """Let the loop end when it comes back for more; the turn that is open counts."""
        self._turns.is_stopped = True

    def __iter__(self) -> Self:
        # A loop that was left in the middle of a turn had no use for it.
        self._is_abandoned = bool(self._first)
        return self

    def __next__(self) -> list[Record]:
        if self._is_abandoned:
            self._give_back()
        elif self._first:
            self._finish()
        while True:
            wait_ms = self._turns.wait_ms()
            if wait_ms is None:
                raise StopIteration
            if not self.producer.in_transaction:
                self._begin()
            try:
                records = self.consumer.poll(wait_ms)
            except ClientClosed:
                raise StopIteration from None
            self._turns.came(len(records))
            if records:
                self._first = first_offsets(records)
                return records

    def _begin(self) -> None:
        """Before anything is read: whatever the last turn has left in doubt is settled here."""
        try:
            self.producer.begin()
        except TransactionFailed as e:
            if not may_be_repeated(e):
                raise
            # It is known now that the last turn came to nothing; its records have been given back already.
            _logger.warning("the last records are read again: %s", e)
            self.producer.begin()

    def _finish(self) -> None:
        """Commit the turn, or see to it that its records come again."""
        progress = self.consumer.progress()
        try:
            self.producer.send_offsets(reached(progress, self._first))
            self.producer.commit()
        except OttlaError as e:
            self._give_back()
            if not may_be_repeated(e):
                raise
            _logger.warning("group %s: the last records are read again: %s", progress.group, e)
            self._turns.ended(well=False)
            return
        self._first = {}
        self._turns.ended(well=True)

    def _give_back(self) -> None:
        first, self._first, self._is_abandoned = self._first, {}, False
        self.consumer.go_back(first)
        if self.producer.in_transaction:
            try:
                self.producer.abort()
            except ProducerFenced:
                raise
            except OttlaError as e:
                # The next begin makes up for it.
                _logger.warning("not aborted yet: %s", e)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self.consumer)
            opening.enter_context(self.producer)
            self.consumer.subscribe(self._topics, pattern=self._pattern)
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The producer goes first, and aborts what is open.
        self._stack.__exit__(kind, error, traceback)

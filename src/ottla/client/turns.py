"""Turns of reading, transforming and writing, each of them one transaction: the rules, without the loop.

A turn holds what was sent and how far the group has read, so that both count or neither does. Nothing is polled while a
transaction is open: partitions change hands only between two turns, and a member that the group has gone on without
finds out when it wants to store its positions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ottla.client.consumer import SLICE_MS
from ottla.client.errors import (
    CommitFailed,
    CommitUncertain,
    DeliveryTimedOut,
    InvalidSetting,
    ProducerFenced,
    TransactionFailed,
)
from ottla.client.progress import Progress
from ottla.client.transactions import ASTRAY, is_cut_off
from ottla.client.values import Record, TopicPartition
from ottla.clock import Clock
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal

LOST_TRACK = ASTRAY | {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.TRANSACTION_ABORTABLE}


def reader_settings(group: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The consumer's settings: what makes it exactly once is not to be chosen."""
    fixed = {"group": group, "isolation": "read_committed", "auto_commit": False}
    wrong = [name for name, value in fixed.items() if given.get(name, value) != value]
    if wrong:
        raise InvalidSetting(f"consumer: {wrong[0]}={given[wrong[0]]!r} cannot be: it is {fixed[wrong[0]]!r} here")
    return {**given, **fixed}


def writer_settings(
    group: str, transactional_id: str | None, given: Mapping[str, Any], new_id: Callable[[], str]
) -> dict[str, Any]:
    """The producer's settings."""
    if "transactional_id" in given:
        raise InvalidSetting("producer: transactional_id has a place of its own")
    return {**given, "transactional_id": transactional_id or f"{group}-{new_id()}"}


def may_be_repeated(error: BaseException | None) -> bool:
    """Whether the same records are worth another turn after it failed so."""
    if isinstance(error, TransactionFailed):
        # Of one that took too long, its records are; one that was taken over has heard so from its abort.
        return is_cut_off(error) or may_be_repeated(error.__cause__)
    if isinstance(error, ProducerFenced):
        return False
    if isinstance(error, (CommitFailed, CommitUncertain, DeliveryTimedOut)):
        return True
    return isinstance(error, Refusal) and (error.code.retriable or error.code in LOST_TRACK)


def first_offsets(records: Sequence[Record]) -> dict[TopicPartition, int]:
    """Where to go on if a turn came to nothing."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return first


def reached(progress: Progress, partitions: Collection[TopicPartition]) -> Progress:
    """How far the group is after a turn, in the partitions that it had records of."""
    return progress._replace(offsets={key: place for key, place in progress.offsets.items() if key in partitions})


class Turns:
    """When a loop over turns ends."""

    def __init__(self, ticks: Clock, idle_ms: int | None) -> None:
        self._ticks = ticks
        self._idle_ms = idle_ms
        self._idle_since_ms = ticks.now_ms()
        self._has_failed = False
        """Whether the last turn came to nothing, so that its records are expected again."""
        self.is_stopped = False

    def wait_ms(self) -> int | None:
        """How long the next poll may wait; None: it is over."""
        if self.is_stopped and not self._has_failed:
            return None
        if self._idle_ms is None:
            return SLICE_MS
        left_ms = self._idle_since_ms + self._idle_ms - self._ticks.now_ms()
        return min(SLICE_MS, left_ms) if left_ms > 0 else None

    def came(self, count: int) -> None:
        """A poll gave so many records."""
        if count:
            self._idle_since_ms = self._ticks.now_ms()
        elif self.is_stopped:
            # Those of the last turn are somebody else's now.
            self._has_failed = False

    def ended(self, *, well: bool) -> None:
        """A turn is over."""
        self._has_failed = not well
        self._idle_since_ms = self._ticks.now_ms()

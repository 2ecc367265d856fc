"""Answers to requests that came together, which count once their batches are on the disk.

They are made when the batches are appended, and wait for every partition of them. Only where one fails, or takes
too long, are they made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.batches import not_on_disk
from ottla.broker.deadlines import Deadlines
from ottla.errors import Refusal
from ottla.partitions.partition import Partition

Refused = Mapping[int, Refusal]
"""By the number of a partition: what its batches are told instead."""
Receiver = Callable[[bytes], None]


class DurableAnswers:
    """The promise of them."""

    __slots__ = ("_answers", "_bucket", "_deadlines", "_make", "_open", "_receiver", "_refused", "_timeout_ms")

    def __init__(
        self,
        answers: bytes,
        make: Callable[[Refused], bytes],
        waiting: Mapping[int, Partition],
        deadlines: Deadlines,
        *,
        timeout_ms: int,
    ) -> None:
        """`make` gives the answers anew where some are refused; `waiting` are the partitions by their numbers."""
        self._answers = answers
        self._make = make
        self._open = dict(waiting)
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._refused: dict[int, Refusal] = {}
        self._receiver: Receiver | None = None
        self._bucket = 0

    def then(self, receiver: Receiver) -> None:
        """Hand them to `receiver` when all that the partitions have now is durable, or never will be."""
        self._receiver = receiver
        self._bucket = self._deadlines.add(self, self._timeout_ms)
        for index, partition in tuple(self._open.items()):
            partition.when_durable(partition.log.end_offset, partial(self._settle, index))

    def cancel(self) -> None:
        """Nobody waits any more: the connection is gone."""
        self._receiver = None

    def hurry(self) -> None:
        """The server is about to stop; the disk is waited for all the same."""

    def time_out(self) -> None:
        """The batches stay in the log and may yet become durable; nobody is promised that."""
        for index in self._open:
            self._refused[index] = not_on_disk(self._timeout_ms)
        self._open.clear()
        self._finish()

    def _settle(self, index: int, error: Refusal | None) -> None:
        if index not in self._open:
            return
        del self._open[index]
        if error is not None:
            self._refused[index] = error
        if not self._open:
            self._deadlines.remove(self, self._bucket)
            self._finish()

    def _finish(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver(self._make(self._refused) if self._refused else self._answers)

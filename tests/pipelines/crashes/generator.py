"""Produces records for as long as it is let, in a thread of its own, and keeps what the broker has acknowledged."""

from __future__ import annotations

import threading
from types import TracebackType

import ottla
from tests.pipelines.crashes.orders import Spot, record

LUMP_RECORDS = 5
LUMP_SECONDS = 0.2
"""Some twenty records a second: there is always something new, and little is to be done at the end."""
END_SECONDS_MAX = 60


class Generator:
    """The records of a topic, numbered from 0 on. Goes on while the block runs, unless it is ended before."""

    def __init__(self, address: str, topic: str) -> None:
        self.acknowledged: dict[int, Spot] = {}
        """Only added to by the thread, in the order of the numbers; whole when it has ended."""
        self._address = address
        self._topic = topic
        self._is_over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._go_on, name=f"generator of {topic}", daemon=True)

    @property
    def count(self) -> int:
        """How many records are acknowledged."""
        return len(self.acknowledged)

    def fill(self, count: int) -> None:
        """Write the first so many records at once; before the block begins."""
        with ottla.connect(self._address) as client, client.producer() as producer:
            self._send(producer, count)

    def __enter__(self) -> Generator:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(END_SECONDS_MAX)

    def end(self) -> None:
        """No more records: all that were sent are acknowledged."""
        self._is_over.set()
        self._thread.join(END_SECONDS_MAX)
        assert not self._thread.is_alive(), "the producer does not come to its end"
        if self._failure is not None:
            raise self._failure

    def _go_on(self) -> None:
        try:
            with ottla.connect(self._address) as client, client.producer() as producer:
                while not self._is_over.wait(LUMP_SECONDS):
                    self._send(producer, LUMP_RECORDS)
        except Exception as error:
            # Raised in the thread that asks for the end.
            self._failure = error

    def _send(self, producer: ottla.Producer, count: int) -> None:
        numbers = range(self.count, self.count + count)
        positions = producer.send_batch(self._topic, [record(number) for number in numbers])
        for number, position in zip(numbers, positions, strict=True):
            self.acknowledged[number] = Spot(position.partition, position.offset)

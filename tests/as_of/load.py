"""A producer that goes on while a test reads: what is read as of a moment must not depend on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.client.blocking.client import Client
from ottla.client.values import NewRecord

BATCH_RECORDS = 50


class Load:
    """Writes to a topic, in a thread of its own, until it is stopped."""

    def __init__(self, connect: Callable[[], Client], topic: str, *, partitions: int) -> None:
        self._connect = connect
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._wrote = threading.Condition()
        self._batches = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def _run(self) -> None:
        try:
            with self._connect() as client, client.producer() as producer:
                while not self._stop.is_set():
                    with self._wrote:
                        number = self._batches
                    partition = number % self._partitions
                    rows = [NewRecord(b"%d-%d" % (number, n), partition=partition) for n in range(BATCH_RECORDS)]
                    producer.send_batch(self._topic, rows)
                    with self._wrote:
                        self._batches += 1
                        self._wrote.notify_all()
        except BaseException as e:
            self._error = e
            with self._wrote:
                self._wrote.notify_all()

    def wait_for_more(self, batches: int) -> None:
        """Until so many further batches are written."""
        with self._wrote:
            wanted = self._batches + batches
            came = self._wrote.wait_for(lambda: self._batches >= wanted or self._error is not None, timeout=60)
        if self._error is not None:
            raise self._error
        assert came, "the load stands still"

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


@contextmanager
def under_load(connect: Callable[[], Client], topic: str, *, partitions: int) -> Iterator[Load]:
    """A producer beside the block, which has written something when the block begins."""
    load = Load(connect, topic, partitions=partitions)
    load.start()
    try:
        load.wait_for_more(partitions * 2)
        yield load
    finally:
        load.end()

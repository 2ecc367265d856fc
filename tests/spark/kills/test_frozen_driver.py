"""A driver that was taken for dead goes on when another has its place: it adds nothing, and takes nothing away."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from ottla.client.values import OpenTransaction
from ottla.clock import SystemClock
from ottla.spark import exactly_once, pool
from ottla.spark.exactly_once import BatchKey, Slot
from ottla.spark.options import WriteOptions, write_options
from ottla.spark.pool import Link
from tests.spark.brokers import Broker

QUERY = "query"
INSIST_MS = 10_000


class Run:
    """One run of a query with one task: the driver and its worker share connections here."""

    def __init__(self, link: Link, options: WriteOptions, topic: str) -> None:
        self.link = link
        self._options = options
        self._topic = topic

    def write(self, batch_id: int, value: bytes) -> OpenTransaction:
        slot = Slot(
            self.link,
            BatchKey(QUERY + self._topic, batch_id),
            number=0,
            attempt=0,
            options=self._options,
            clock=SystemClock(),
            chance=Random(1),
        )
        slot.begin()
        slot.producer.send(self._topic, value)
        left_open = slot.detach()
        assert left_open is not None
        return left_open

    def commit(self, batch_id: int, left_open: OpenTransaction) -> None:
        key = BatchKey(QUERY + self._topic, batch_id)
        exactly_once.commit(self.link, key, [left_open], insist_ms=INSIST_MS)
        exactly_once.sweep(self.link, key)


@pytest.fixture
def topic(ottla_broker_process: Broker) -> str:
    return ottla_broker_process.topic()


@pytest.fixture
def runs(ottla_broker_process: Broker, topic: str) -> Iterator[tuple[Run, Run]]:
    """Two runs of the same query."""
    options = write_options(ottla_broker_process.options(topic=topic), streaming=True)
    with pool.borrowed(options.connection) as one, pool.borrowed(options.connection) as other:
        yield Run(one, options, topic), Run(other, options, topic)


@pytest.mark.slow
def test_a_commit_that_comes_after_that_of_a_later_run_adds_nothing_and_ends_nothing_of_it(
    runs: tuple[Run, Run], ottla_broker_process: Broker, topic: str
) -> None:
    frozen, later = runs
    before = frozen.write(0, b"first, of a driver that is frozen now")
    later.commit(0, later.write(0, b"first"))
    at_work = later.write(1, b"second")

    frozen.commit(0, before)
    later.commit(1, at_work)

    assert ottla_broker_process.values(topic) == [b"first", b"second"]


@pytest.mark.slow
def test_what_a_later_run_has_written_of_a_batch_that_the_frozen_one_commits_is_dropped(
    runs: tuple[Run, Run], ottla_broker_process: Broker, topic: str
) -> None:
    frozen, later = runs
    # As with more tasks than one: the later run's was slow to take its slot, and the batch is committed meanwhile.
    frozen.commit(0, frozen.write(0, b"first"))
    again = later.write(0, b"first once more")

    later.commit(0, again)

    assert ottla_broker_process.values(topic) == [b"first"]
    assert ottla_broker_process.ends(topic) == {0: 4}, "the two records, and the marker of each"

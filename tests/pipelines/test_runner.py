"""Pipelines that really run: on a real Spark, against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.clock import SystemClock
from ottla.pipelines.progress import QueryProgress
from ottla.pipelines.progress_topics import standing
from ottla.pipelines.reading import load
from ottla.pipelines.run_loop import Outcome, Runner
from ottla.pipelines.runner import AlreadyRunning, opened, run
from ottla.pipelines.spec import Pipeline
from ottla.pipelines.stopping import stopped
from tests.spark.brokers import Broker
from tests.spark.conftest import SOURCES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 300.0
"""Bounds what never takes so long, unless it never ends."""

TEXT = """
pipeline: {name}
sources:
  orders:
    topic: {orders}
    format: json
    schema: id BIGINT, amount DOUBLE
    bad: {bad}
    options: {{maxOffsetsPerTrigger: 40}}
steps:
  big: {{sql: SELECT * FROM orders WHERE amount > 10, expect: {{sane: amount < 1000}}}}
sinks:
  copy: {{from: big, topic: {copies}}}
"""

QUERY = "copy+orders.side"
"""Both outputs come from the same topic, row by row."""


class Shop:
    """Topics and a pipeline of their own."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.orders = broker.topic(2, stem="orders")
        self.bad = broker.topic(stem="bad")
        self.copies = broker.topic(2, stem="copies")
        self.directory = directory
        self.file = directory / "shop.yaml"
        names = {"orders": self.orders, "bad": self.bad, "copies": self.copies, "name": f"shop-{self.orders}"}
        self.file.write_text(TEXT.format(**names))
        self.pipeline: Pipeline = load(self.file)

    def order(self, first: int, last: int, *, amount: float = 20.0) -> None:
        texts = [json.dumps({"id": number, "amount": amount}) for number in range(first, last + 1)]
        self.broker.produce(self.orders, texts)

    def copied(self) -> list[int]:
        return sorted(json.loads(value or b"")["id"] for value in self.broker.values(self.copies))

    def last_batches(self, query: str) -> tuple[int, int]:
        """The last batch that a query planned, and the last that it finished."""
        checkpoint = Path(self.pipeline.checkpoints)
        home = checkpoint if checkpoint.is_absolute() else self.directory / checkpoint
        planned, done = (
            [int(file.name) for file in (home / query / kind).iterdir() if file.name.isdigit()]
            for kind in ("offsets", "commits")
        )
        return max(planned), max(done)


@pytest.fixture
def shop(ottla_broker_process: Broker, tmp_path: Path) -> Shop:
    return Shop(ottla_broker_process, tmp_path)


@contextmanager
def running(shop: Shop, spark: SparkSession) -> Iterator[tuple[Runner, Callable[[], Outcome]]]:
    """A run in a thread, and the way to wait for its outcome."""
    outcomes: list[Outcome] = []
    with opened(shop.pipeline, spark=spark, bootstrap=shop.broker.bootstrap) as runner:
        thread = threading.Thread(target=lambda: outcomes.append(runner.run()))
        thread.start()

        def outcome() -> Outcome:
            thread.join(WAIT_S)
            return outcomes[0]

        try:
            yield runner, outcome
        finally:
            runner.stop(at_once=True)
            thread.join(WAIT_S)


def wait_until(holds: Callable[[], bool]) -> None:
    clock, pause = SystemClock(), threading.Event()
    until_ms = clock.now_ms() + round(WAIT_S * 1_000)
    while not holds():
        assert clock.now_ms() < until_ms, "it did not come to pass"
        pause.wait(0.1)


def test_a_run_over_what_is_there_does_all_of_it_once_and_tells_of_it(spark: SparkSession, shop: Shop) -> None:
    shop.order(1, 100)
    shop.broker.produce(shop.orders, ["nonsense"])
    told: list[QueryProgress] = []
    outcome = run(shop.pipeline, spark=spark, bootstrap=shop.broker.bootstrap, once=True, on_progress=told.append)
    found = standing(shop.broker.client, shop.pipeline.name)

    assert (outcome.state, outcome.error) == ("stopped", None)
    assert shop.copied() == list(range(1, 101))
    assert shop.broker.values(shop.bad) == [b"nonsense"]
    assert {name: totals.rows_in for name, totals in outcome.totals.items()} == {QUERY: 101}
    assert found.run is not None
    assert found.run.state == "stopped"
    assert {name: (one.state, one.rows_in_total, one.lag) for name, one in found.queries.items()} == {
        QUERY: ("stopped", 101, 0),
    }
    assert {one.batch_id for one in told if one.query == QUERY and one.rows_in} == {0, 1, 2}


def test_a_run_goes_on_until_it_is_stopped_and_stops_where_batches_end(spark: SparkSession, shop: Shop) -> None:
    shop.order(1, 50)
    with running(shop, spark) as (runner, outcome):
        wait_until(runner.drained)
        shop.order(51, 500)
        wait_until(lambda: len(shop.copied()) > 100)
        # In the middle of ten batches, by the way that a command goes.
        last = stopped(shop.broker.client, shop.pipeline.name, clock=SystemClock(), timeout_ms=round(WAIT_S * 1_000))
        ended = outcome()
    copied = shop.copied()

    assert (last.state, ended.state, ended.unfinished) == ("stopped", "stopped", ())
    planned, done = shop.last_batches(QUERY)
    assert planned == done
    assert len(copied) == len(set(copied)) == ended.totals[QUERY].rows_in
    run(shop.pipeline, spark=spark, bootstrap=shop.broker.bootstrap, once=True)
    assert shop.copied() == list(range(1, 501))


def test_a_query_that_fails_too_often_ends_the_run_with_the_line_that_matters(spark: SparkSession, shop: Shop) -> None:
    shop.order(1, 5, amount=5_000.0)
    outcome = run(shop.pipeline, spark=spark, bootstrap=shop.broker.bootstrap, restarts_max=1)

    assert outcome.state == "failed"
    assert outcome.totals[QUERY].restarts == 1
    assert outcome.error is not None
    assert outcome.error.startswith(f"{QUERY}: ")
    assert "sane" in outcome.error
    assert shop.copied() == []


def test_a_second_run_of_a_pipeline_is_refused_and_the_first_goes_on_until_it_is_told_to_stop(
    spark: SparkSession, shop: Shop
) -> None:
    stop, outcomes, address = threading.Event(), list[Outcome](), shop.broker.bootstrap
    first = threading.Thread(
        target=lambda: outcomes.append(run(shop.pipeline, spark=spark, bootstrap=address, stop=stop))
    )
    first.start()
    wait_until(lambda: standing(shop.broker.client, shop.pipeline.name).queries.keys() == {QUERY})
    with pytest.raises(AlreadyRunning):
        run(shop.pipeline, spark=spark, bootstrap=address, once=True)
    shop.order(1, 3)
    wait_until(lambda: shop.copied() == [1, 2, 3])
    stop.set()
    first.join(WAIT_S)

    assert [outcome.state for outcome in outcomes] == ["stopped"]


def test_an_interrupt_stops_a_command_where_batches_end(shop: Shop, spark_java: Path) -> None:
    shop.order(1, 60)
    words = [sys.executable, "-m", "ottla", "pipeline", "run", str(shop.file), "--master", "local[2]"]
    environment = {
        **os.environ,
        "OTTLA_BOOTSTRAP": shop.broker.bootstrap,
        "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]),
    }
    with (shop.directory / "said").open("w") as said:
        command = subprocess.Popen(
            words, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_until(lambda: len(shop.copied()) >= 60 or command.poll() is not None)
            # To all that it has started too, as a terminal does it.
            os.killpg(command.pid, signal.SIGINT)
            code = command.wait(WAIT_S)
        finally:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
                command.wait()
    text = (shop.directory / "said").read_text()

    assert code == 0, text
    assert "stopping where the batches end" in text
    assert f"{QUERY}: 60 rows in, 60 rows out" in text
    planned, done = shop.last_batches(QUERY)
    assert planned == done

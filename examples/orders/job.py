"""One run of the main job, from the broker's start to the check of the totals."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.live import Live

import ottla
from examples.orders import checkpoints, totals
from examples.orders.broker import Broker, BrokerFailed
from examples.orders.display import View
from examples.orders.events import Orders, Tally
from examples.orders.generator import PRODUCTS_TOPIC, TOPIC, publish_products
from examples.orders.orders_table import OrdersTable
from examples.orders.pace import Moment, second_half
from examples.orders.running import PipelineFailed, PipelineRun
from examples.orders.sending import GeneratorFailed, GeneratorProcess
from examples.orders.watching import Watch

PIPELINE_FILE = Path(__file__).with_name("pipeline.yaml")
TICK_SECONDS = 0.25
LINE_SECONDS = 5.0
DRAIN_SECONDS_MAX = 600
"""What was sent is waited for so long; then the check says what is missing."""
AFTER_KILL_SECONDS = 5.0
"""Orders come for so long after the broker is back, at least: else its return would prove nothing."""
MOMENTS_MAX = 100_000
"""The last hours of a long run."""
RATE_SECONDS = 10.0
"""The rate that is shown is taken over so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked for."""

    rate: int
    speed: float
    partitions: int
    seconds: float | None
    """None: until Ctrl-C."""
    kill_broker: bool
    listen: str
    """Where the broker listens; port 0: wherever there is room."""


class Job:
    """Everything that runs, in one directory."""

    def __init__(self, settings: Settings, directory: Path, console: Console | None = None) -> None:
        self._settings = settings
        self._directory = directory
        self._console = console or Console(highlight=False)
        self._broker = Broker(directory, listen=settings.listen)
        self._interrupted = threading.Event()
        self._generated: Tally | None = None
        """What was sent in all, once nothing more is sent."""
        self._killed_at: float | None = None
        self._rows: deque[tuple[float, int]] = deque()
        self._lag: int | None = None
        self._moments: deque[Moment] = deque(maxlen=MOMENTS_MAX)
        """One for each tick while orders are sent."""
        self._began = monotonic()
        self._running_since: float | None = None
        """When every query had begun: what was asked for is counted from there, not from Spark's start."""

    def interrupted(self) -> None:
        """Stop sending, deal with what was sent, and check. A second time: stop at once."""
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        self._interrupted.set()

    def run(self) -> int:
        """The whole job; 0 if the totals add up."""
        try:
            self._broker.start()
            self._say(f"A broker is ready on {self._broker.address}.")
            with ottla.connect(self._broker.address) as client:
                self._make_topics(client)
            self._say("Spark starts; that takes a while.")
            return self._run_pipeline()
        except (BrokerFailed, GeneratorFailed, PipelineFailed, ottla.OttlaError) as error:
            self._say(f"FAILED: {error}")
            return 1
        except KeyboardInterrupt:
            self._say("Stopped at once; nothing was checked.")
            return 130
        finally:
            self._broker.stop()

    def _make_topics(self, client: ottla.Client) -> None:
        admin = client.admin()
        admin.create_topic(TOPIC, partitions=self._settings.partitions)
        admin.create_topic(PRODUCTS_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
        for topic in (totals.BAD_TOPIC, totals.LATE_TOPIC, totals.REVENUE_TOPIC):
            admin.create_topic(topic, partitions=1)
        publish_products(client, Orders(seed=1))

    # --- while it runs -------------------------------------------------------------------------------

    def _run_pipeline(self) -> int:
        file = Path(shutil.copy(PIPELINE_FILE, self._directory))
        pipeline = PipelineRun(file, bootstrap=self._broker.address)
        table = OrdersTable(self._directory / "tables" / "orders")
        watch = Watch(self._broker.address)
        try:
            watch.start()
            self._began = monotonic()
            pipeline.start()
            self._await_spark(pipeline)
            generator = GeneratorProcess(
                self._broker.address,
                rate=self._settings.rate,
                speed=self._settings.speed,
                log=self._directory / "generator.log",
            )
            self._say(
                f"{self._seconds()} s  Spark is up, and {self._settings.rate:,} orders per second are on their way."
            )
            try:
                self._direct(generator, pipeline, table, watch)
            finally:
                generator.kill()
            pipeline.stop()
        finally:
            watch.stop()
            pipeline.kill()
        assert self._generated is not None
        return self._summary(self._generated, table)

    def _await_spark(self, pipeline: PipelineRun) -> None:
        """Orders that came before would all be in the first batch, and nothing would be seen for long."""
        while not pipeline.is_up:
            pipeline.check()
            if self._interrupted.wait(TICK_SECONDS):
                raise KeyboardInterrupt

    def _direct(self, generator: GeneratorProcess, pipeline: PipelineRun, table: OrdersTable, watch: Watch) -> None:
        """Until all that was sent is dealt with: stop the generator in time, kill the broker if asked to, show it."""
        stopped_at: float | None = None
        line_due = 0.0
        live = Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        with live or nullcontext():
            while stopped_at is None or (self._lag != 0 and monotonic() - stopped_at < DRAIN_SECONDS_MAX):
                pipeline.check()
                rows = table.rows()
                self._lag = self._waiting(generator, pipeline)
                if self._kill_is_due(rows):
                    self._kill_broker()
                if stopped_at is None and (self._enough() or not generator.is_running):
                    self._generated = generator.stop()
                    stopped_at = monotonic()
                    # What waited before is not what waits now: the last orders have been counted only now.
                    self._lag = None
                    continue
                view = self._view(generator, pipeline, watch, rows)
                if live is not None:
                    live.update(view.drawn(), refresh=True)
                elif monotonic() >= line_due:
                    self._say(view.line())
                    line_due = monotonic() + LINE_SECONDS
                (self._interrupted if stopped_at is None else pipeline.ended).wait(TICK_SECONDS)

    def _enough(self) -> bool:
        """Whether no more orders shall be sent."""
        if self._interrupted.is_set():
            return True
        wanted = self._settings.seconds
        if wanted is None or self._running_seconds() < wanted:
            return False
        if not self._settings.kill_broker:
            return True
        return self._killed_at is not None and monotonic() - self._killed_at >= AFTER_KILL_SECONDS

    def _kill_is_due(self, rows: int) -> bool:
        """Half-way, and not before something came out: else the crash would hit nothing."""
        if not self._settings.kill_broker or self._killed_at is not None or self._settings.seconds is None:
            return False
        return rows > 0 and self._running_seconds() >= self._settings.seconds / 2

    def _kill_broker(self) -> None:
        self._say(f"{self._seconds()} s  killing the broker (SIGKILL) ...")
        self._broker.kill()
        self._broker.start()
        self._killed_at = monotonic()
        self._say(f"{self._seconds()} s  the broker is back on {self._broker.address}")

    def _waiting(self, generator: GeneratorProcess, pipeline: PipelineRun) -> int | None:
        """Orders that the slowest query has not dealt with; None while not every query has begun."""
        sent = generator.report.orders
        done = checkpoints.committed(pipeline.checkpoints, TOPIC)
        if set(done) < set(pipeline.queries) or not pipeline.queries:
            return None
        if self._running_since is None:
            self._running_since = monotonic()
        least = min(sum(offsets.values()) for offsets in done.values())
        if self._generated is None:
            self._moments.append(Moment(monotonic() - self._began, max(sent, least), least))
        return max(0, sent - least)

    def _view(self, generator: GeneratorProcess, pipeline: PipelineRun, watch: Watch, rows: int) -> View:
        now = monotonic()
        self._rows.append((now, rows))
        while now - self._rows[0][0] > RATE_SECONDS:
            self._rows.popleft()
        (then, before), report = self._rows[0], generator.report
        return View(
            seconds=self._seconds(),
            stage=self._stage(),
            generated=report.orders,
            in_table=rows,
            bad=watch.bad,
            late=watch.late,
            lag=self._lag,
            events_per_second=(rows - before) / (now - then) if now > then else 0.0,
            shop_time=report.shop_time[:16].replace("T", " "),
            closed_before=pipeline.closed_before(),
            windows=watch.windows(),
            note=pipeline.trouble(),
        )

    def _stage(self) -> str:
        if self._generated is not None:
            return "no more orders; finishing"
        return "Spark is starting" if self._lag is None else "running"

    def _running_seconds(self) -> float:
        return 0.0 if self._running_since is None else monotonic() - self._running_since

    def _seconds(self) -> int:
        return int(monotonic() - self._began)

    # --- at the end ----------------------------------------------------------------------------------

    def _summary(self, generated: Tally, table: OrdersTable) -> int:
        """Read everything, say what it is, and whether it adds up."""
        with ottla.connect(self._broker.address) as client:
            found = totals.find(client, table=table.read())
        self._say(summary(generated, found))
        pace = second_half(list(self._moments))
        if pace is not None:
            self._say(str(pace))
        wrong = totals.differences(generated, found)
        for sentence in wrong:
            self._say(f"WRONG: {sentence}")
        if not wrong:
            self._say("Everything adds up, and nothing is there twice.")
        return 1 if wrong else 0

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def summary(generated: Tally, found: totals.Found) -> str:
    """The two sums, with their numbers."""
    rows, bad, late = len(found.table_ids), len(found.bad_ids), len(found.late_ids)
    return (
        f"generated {generated.orders:,} = in the table {rows:,} + bad {bad:,}\n"
        f"clean {generated.clean:,} = in {len(found.windows)} windows {found.in_windows:,} + late {late:,}\n"
        f"revenue {sum(window.revenue or 0.0 for window in found.windows):,.2f}"
    )

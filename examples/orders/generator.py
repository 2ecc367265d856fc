"""Sends orders at a set rate until it is told to stop. A process of its own, so that it shares no interpreter.

    python -m examples.orders.generator 127.0.0.1:9092 --rate 20000

Once a second, and at the end, it writes a line of JSON to standard output: what has been acknowledged so far. It ends
by SIGTERM or SIGINT, or when its standard input is closed, so that it never outlives whoever started it.

Time in the shop runs faster than on the clock (`--speed`), so that minutes go by within seconds. It is counted in
orders sent, not read from a clock: while the broker is away, the shop's time stands still, and the partitions never get
further apart than one round. The pipeline's watermark relies on that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

import msgspec

import ottla
from examples.orders.events import Orders, Tally
from ottla.clock import Clock, SystemClock
from ottla.records import kernel, packing

pack_records = packing.pack_records if kernel.compiled is None else kernel.compiled.pack_records

TOPIC = "orders"
PRODUCTS_TOPIC = "products"
ROUND_SECONDS = 0.05
REPORT_SECONDS = 1.0
BEHIND_SECONDS_MAX = 1.0
"""A hitch is made up for; a longer pause, as while the broker is away, is not."""
BATCH_BYTES_MAX = 900_000
DELIVERY_TIMEOUT_MS = 120_000
FIRST_TIME_BEFORE_MIDNIGHT = timedelta(minutes=20)
"""In the shop it is late in the evening at first, so that the table soon has two days."""


class Report(msgspec.Struct, frozen=True):
    """A line of the generator's output."""

    orders: int
    bad: int
    late: int
    quarters_on_time: int
    shop_time: str
    done: bool

    def tally(self) -> Tally:
        """What was acknowledged."""
        return Tally(self.orders, self.bad, self.late, self.quarters_on_time)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast orders come and how fast the shop's time runs."""

    rate: int
    """Orders per second."""
    speed: float
    """Seconds in the shop per second."""
    seconds: float | None = None
    """Ends by itself after so many seconds' worth of orders."""


class Generator:
    """Sends rounds of orders, each acknowledged before the next one begins."""

    def __init__(
        self,
        producer: ottla.Producer,
        *,
        partitions: int,
        pace: Pace,
        orders: Orders,
        clock: Clock,
        report: Callable[[Report], None],
    ) -> None:
        self._producer = producer
        self._partitions = partitions
        self._pace = pace
        self._orders = orders
        self._clock = clock
        self._report = report
        self._first_second = _first_second(clock)
        self.tally = Tally()

    def run(self, stop: threading.Event) -> None:
        """Send until told to stop, and report."""
        started = due = reported = monotonic()
        rounds = 0
        owed = 0.0
        rounds_max = None if self._pace.seconds is None else round(self._pace.seconds / ROUND_SECONDS)
        while not stop.is_set() and rounds != rounds_max:
            owed += self._pace.rate * ROUND_SECONDS
            count = int(owed)
            owed -= count
            self._round(count, second=self._shop_second(rounds))
            rounds += 1
            due += ROUND_SECONDS
            now = monotonic()
            if now - reported >= REPORT_SECONDS or rounds == 1:
                self._say(rounds, done=False)
                reported = now
            if now < due:
                stop.wait(due - now)
            elif now - due > BEHIND_SECONDS_MAX:
                due = now
        assert due >= started
        self._say(rounds, done=True)

    def _round(self, count: int, *, second: int) -> None:
        """The same number of orders, give or take one, into each partition; all or an error."""
        sent = Tally()
        first_id = self.tally.orders
        now_ms = self._clock.now_ms()
        for partition in range(self._partitions):
            end = count * (partition + 1) // self._partitions
            share = end - sent.orders
            if share == 0:
                continue
            records, tally = self._orders.make(
                share, first_id=first_id + sent.orders, sent_second=second, timestamp_ms=now_ms
            )
            # A batch that is packed here costs the producer next to nothing; `send_batch` is what to use below 20,000 a
            # second. Keys are never repeated, so that any partition will do.
            self._producer.submit_packed(TOPIC, partition, pack_records(records, BATCH_BYTES_MAX))
            sent.add(tally)
        self._producer.flush()
        self.tally.add(sent)

    def _shop_second(self, rounds: int) -> int:
        return self._first_second + int(rounds * ROUND_SECONDS * self._pace.speed)

    def _say(self, rounds: int, *, done: bool) -> None:
        time_of_day = datetime.fromtimestamp(self._shop_second(rounds), UTC).isoformat()
        self._report(Report(**asdict(self.tally), shop_time=time_of_day, done=done))


def _first_second(clock: Clock) -> int:
    today = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((today - FIRST_TIME_BEFORE_MIDNIGHT).timestamp())


def publish_products(client: ottla.Client, orders: Orders) -> None:
    """The goods, into a topic that keeps the last record of each."""
    with client.producer() as producer:
        records = [ottla.NewRecord(value, key=key) for key, value in (product.record() for product in orders.products)]
        producer.send_batch(PRODUCTS_TOPIC, records)


def main() -> int:
    """Send until a signal comes or nobody listens any more."""
    parser = argparse.ArgumentParser(description="Sends orders at a set rate.")
    parser.add_argument("bootstrap")
    parser.add_argument("--rate", type=int, default=20_000, help="orders per second")
    parser.add_argument("--speed", type=float, default=60, help="seconds in the shop per second")
    parser.add_argument("--seconds", type=float, help="end after so many seconds' worth of orders")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_watch_input, args=(stop,), daemon=True).start()
    orders = Orders(options.seed)
    with (
        ottla.connect(options.bootstrap) as client,
        client.producer(delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer,
    ):
        generator = Generator(
            producer,
            partitions=client.admin().partition_count(TOPIC) or 1,
            pace=Pace(options.rate, options.speed, options.seconds),
            orders=orders,
            clock=SystemClock(),
            report=_write,
        )
        generator.run(stop)
    return 0


def _write(report: Report) -> None:
    # Whoever read this may be gone; then the end of the standard input stops us soon.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        sys.stdout.flush()


def _watch_input(stop: threading.Event) -> None:
    # Not by way of sys.stdin, whose lock would be held when the interpreter ends.
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main())

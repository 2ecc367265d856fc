"""How a run tells of itself and hears what is asked of it, without ever waiting for a broker or failing with it.

One thread of its own does both. What is told waits in a queue of bounded length; a broker that is away loses the oldest
of it, and nothing else. Where nobody tells anything, as while Spark is being started, the thread says that the run is
there. Knows neither Spark nor what a pipeline is.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from ottla.client.blocking.client import Client
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.clock import Clock, SystemClock
from ottla.errors import OttlaError
from ottla.pipelines.claims import BEAT_MS
from ottla.pipelines.progress import (
    CONTROL_TOPIC,
    ENDED,
    PROGRESS_TOPIC,
    QueryProgress,
    RunProgress,
    decoded_command,
    moment,
)
from ottla.pipelines.progress_topics import make_topics, record_of

QUIET_MS_MAX = BEAT_MS + 500
"""So long the run itself has to tell that it is there; whoever listens for it waits longer."""
WAITING_MAX = 1_000
POLL_MS = 250
OUTAGE_PAUSE_S = 1.0
SENT_TOGETHER_MAX = 200
CLIENT_SETTINGS = {"request_timeout_ms": 5_000, "connect_timeout_ms": 3_000}
PRODUCER_SETTINGS = {"linger_ms": 0, "delivery_timeout_ms": 5_000, "block_ms": 5_000}

_logger = logging.getLogger(__name__)


class ProgressLink:
    """The way from one run to the broker and back. `close` it."""

    def __init__(
        self,
        connect: Callable[[], Client],
        mine: RunProgress,
        *,
        control_start: int,
        clock: Clock | None = None,
    ) -> None:
        """`control_start`: where the control topic ended when the run began; what is older is not for us."""
        self._clock = clock or SystemClock()
        now_ms = self._clock.now_ms()
        self._run_told = replace(mine, at=moment(now_ms))
        """The last that was told of the run as a whole."""
        self._run_told_ms = now_ms
        self._connect = connect
        self._pipeline = mine.pipeline
        self._run = mine.run
        self._control_offset = control_start
        self._waiting: deque[QueryProgress | RunProgress] = deque(maxlen=WAITING_MAX)
        self._turn = threading.Lock()
        """For who touches what waits."""
        self._closing = threading.Event()
        self._asked_to_stop = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._go_on, name=f"ottla-progress-{mine.pipeline}", daemon=True)
        self._thread.start()

    def tell(self, told: QueryProgress | RunProgress) -> None:
        """Put something on its way; comes back at once."""
        with self._turn:
            self._waiting.append(told)
            if isinstance(told, RunProgress):
                self._run_told = told
                self._run_told_ms = self._clock.now_ms()

    @property
    def is_asked_to_stop(self) -> bool:
        return self._asked_to_stop.is_set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, for so long at most, and end."""
        self._closing.set()
        self._thread.join(timeout_s)

    # --- in the thread -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while True:
            try:
                with self._connect() as client:
                    self._serve(client)
                return
            except OttlaError as error:
                if not self._is_away:
                    self._is_away = True
                    _logger.warning("progress is not told for now: %s", error)
            if self._closing.wait(OUTAGE_PAUSE_S):
                return

    def _serve(self, client: Client) -> None:
        make_topics(client)
        with (
            client.producer(**PRODUCER_SETTINGS) as producer,
            client.consumer(start_offset=self._control_offset, out_of_range="latest") as consumer,
        ):
            consumer.assign([(CONTROL_TOPIC, 0)])
            while not self._closing.is_set():
                self._say_that_it_is_there()
                self._send(producer)
                self._listen(consumer)
            self._send(producer)

    def _say_that_it_is_there(self) -> None:
        """A run that is silent counts as killed, and another one would begin beside it."""
        now_ms = self._clock.now_ms()
        with self._turn:
            told = self._run_told
            if told.state in ENDED or now_ms - self._run_told_ms < QUIET_MS_MAX:
                return
            self._waiting.append(replace(told, at=moment(now_ms)))
            self._run_told_ms = now_ms

    def _send(self, producer: Producer) -> None:
        while some := self._next():
            producer.send_batch(PROGRESS_TOPIC, [record_of(told) for told in some])
            with self._turn:
                for told in some:
                    # What was pushed out meanwhile is not there any more.
                    if self._waiting and self._waiting[0] is told:
                        self._waiting.popleft()
            self._is_away = False

    def _next(self) -> list[QueryProgress | RunProgress]:
        """Stays in the queue until it is sent."""
        with self._turn:
            return list(islice(self._waiting, SENT_TOGETHER_MAX))

    def _listen(self, consumer: Consumer) -> None:
        for record in consumer.poll(POLL_MS):
            self._control_offset = record.offset + 1
            command = decoded_command(record.value)
            if command is not None and command.pipeline == self._pipeline and command.run in (None, self._run):
                self._asked_to_stop.set()

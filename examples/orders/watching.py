"""What comes out of the pipeline while it runs: a reader of its topics, in a thread of its own.

For the display only. The check at the end reads everything anew.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

import msgspec

import ottla
from examples.orders.totals import BAD_TOPIC, LATE_TOPIC, REVENUE_TOPIC, Window

POLL_MS = 500
RECONNECT_SECONDS = 1.0
_logger = logging.getLogger(__name__)


class Watch:
    """Counts records and keeps the last word on each minute."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._counts: Counter[str] = Counter()
        self._windows: dict[bytes, Window] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stop.set()
        self._thread.join()

    @property
    def bad(self) -> int:
        """Bad records so far."""
        return self._counts[BAD_TOPIC]

    @property
    def late(self) -> int:
        """Late records so far."""
        return self._counts[LATE_TOPIC]

    def windows(self) -> Sequence[Window]:
        """All minutes so far, the oldest first."""
        return sorted(self._windows.copy().values(), key=lambda window: window.minute)

    def _run(self) -> None:
        positions: dict[tuple[str, int], int] = {}
        while not self._stop.is_set():
            try:
                self._read(positions)
            except ottla.OttlaError as error:
                # The broker may be away for a moment, on purpose even.
                _logger.info("the watch lost its broker: %s", error)
                self._stop.wait(RECONNECT_SECONDS)

    def _read(self, positions: dict[tuple[str, int], int]) -> None:
        with (
            ottla.connect(self._bootstrap, client_id="watch") as client,
            client.consumer(isolation="read_committed", records_max=5_000) as consumer,
        ):
            admin = client.admin()
            partitions = [
                (topic, partition)
                for topic in (BAD_TOPIC, LATE_TOPIC, REVENUE_TOPIC)
                for partition in range(admin.partition_count(topic) or 0)
            ]
            consumer.assign(partitions)
            for (topic, partition), offset in positions.items():
                consumer.seek(topic, partition, offset=offset)
            while not self._stop.is_set():
                for record in consumer.poll(POLL_MS):
                    self._take(record)
                    positions[record.topic, record.partition] = record.offset + 1

    def _take(self, record: ottla.Record) -> None:
        self._counts[record.topic] += 1
        if record.topic == REVENUE_TOPIC:
            self._windows[record.key or b""] = msgspec.json.decode(record.value or b"", type=Window)

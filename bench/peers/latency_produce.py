"""A librdkafka producer at a fixed rate, as a client of `phases`: each record tells when it was due.

At the rate 0 every record is due when it is sent, as quickly as it goes: that tells how much there can be.
"""

from __future__ import annotations

import json
import sys
from struct import Struct
from time import perf_counter_ns, sleep

from confluent_kafka import Producer

from bench.peers.intended import Schedule
from bench.peers.phases import Done, serve
from bench.peers.rdkafka_produce import QUEUE_KB

DUE = Struct("<q")
FLUSH_S = 60.0
LOOK_AGAIN_S = 0.0005
REPORTED_COUNT = 256
"""After how many records the reports of earlier ones are taken, where none is due at a time."""
WAIT_S = 0.001


class Paced:
    """Kept between phases."""

    def __init__(self, bootstrap: str, topic: str, *, acks: str, rate: float, size: int) -> None:
        self._topic = topic
        self._rate = rate
        self._size = size
        self._rest = bytes(size - DUE.size)
        # With librdkafka's own linger: without it the most is measured with full batches and a share of it with tiny
        # ones, so that half of the load would be several times the requests.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "queue.buffering.max.kbytes": QUEUE_KB,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )

    def run(self, seconds: float) -> Done:
        """One phase."""
        start_ns = perf_counter_ns()
        sent = self._scheduled(start_ns, seconds) if self._rate else self._unbounded(start_ns, seconds)
        left = self._producer.flush(FLUSH_S)
        if left:
            raise TimeoutError(f"{left} records were not acknowledged within {FLUSH_S} s")
        wall_s = (perf_counter_ns() - start_ns) / 1e9
        return Done(records=sent, size_bytes=sent * self._size, wall_s=wall_s)

    def _scheduled(self, start_ns: int, seconds: float) -> int:
        """Everything that is due in the phase, however late it gets."""
        schedule, wanted, sent = Schedule(start_ns=start_ns, rate=self._rate), round(self._rate * seconds), 0
        while sent < wanted:
            due = min(schedule.due(perf_counter_ns()), wanted)
            if due <= sent:
                sleep(LOOK_AGAIN_S)
            for number in range(sent, due):
                self._hand_over(schedule.due_ns(number))
            sent = max(sent, due)
            # As librdkafka asks for: what waits here for its report fills the queue, and then all is reported at once,
            # while records wait that are due.
            self._producer.poll(0)
        return sent

    def _unbounded(self, start_ns: int, seconds: float) -> int:
        sent, until_ns = 0, start_ns + int(seconds * 1e9)
        while (now_ns := perf_counter_ns()) < until_ns:
            self._hand_over(now_ns)
            sent += 1
            if sent % REPORTED_COUNT == 0:
                self._producer.poll(0)
        return sent

    def _hand_over(self, due_ns: int) -> None:
        value = DUE.pack(due_ns) + self._rest
        while True:
            try:
                self._producer.produce(self._topic, value)
                return
            except BufferError:
                # The record is late from now on, and its wait goes on.
                self._producer.poll(WAIT_S)


if __name__ == "__main__":
    serve(Paced(**json.loads(sys.argv[1])).run)

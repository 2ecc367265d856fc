"""A librdkafka consumer at the tail, as a client of `phases`: how long each record took since it was due."""

from __future__ import annotations

import json
import sys
from array import array
from time import perf_counter_ns

from confluent_kafka import Consumer, TopicPartition

from bench.peers.intended import typical
from bench.peers.latency_produce import DUE
from bench.peers.phases import Done, serve
from bench.peers.rdkafka_reading import SETTINGS

POLL_S = 0.1
QUIET_NS = 1_000_000_000
"""A phase ends when nothing has come for so long after its time: the last records may be late."""
OVERTIME_NS = 60_000_000_000
ASK_S_MAX = 60.0


class Timed:
    """Kept between phases."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, pieces: int) -> None:
        self._pieces = pieces
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **SETTINGS})
        shares = [TopicPartition(topic, number) for number in range(partitions)]
        for share in shares:
            share.offset = self._consumer.get_watermark_offsets(share, timeout=ASK_S_MAX)[1]
        self._consumer.assign(shares)

    def run(self, seconds: float) -> Done:
        """One phase. Records are taken one by one: a call for several would wait for the last of them."""
        begun_ns = heard_ns = perf_counter_ns()
        over_ns = begun_ns + int(seconds * 1e9)
        piece_ns = (over_ns - begun_ns) // self._pieces
        waits, size_bytes, poll, unpack = array("q"), 0, self._consumer.poll, DUE.unpack_from
        pieces, cut_ns = [waits], begun_ns + piece_ns
        while True:
            message = poll(POLL_S)
            now_ns = perf_counter_ns()
            if message is not None:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                if now_ns >= cut_ns and len(pieces) < self._pieces:
                    waits, cut_ns = array("q"), cut_ns + piece_ns
                    pieces.append(waits)
                value = message.value() or b""
                waits.append(now_ns - unpack(value)[0])
                size_bytes += len(value)
                heard_ns = now_ns
            elif now_ns > over_ns and now_ns - heard_ns > QUIET_NS:
                break
            if now_ns > over_ns + OVERTIME_NS:
                raise TimeoutError(f"records still come {OVERTIME_NS / 1e9:g} s after they were due")
        figures = {name: wait_ns / 1e6 for name, wait_ns in typical(pieces).items()}
        wall_s = (heard_ns - begun_ns) / 1e9
        return Done(records=sum(map(len, pieces)), size_bytes=size_bytes, wall_s=wall_s or seconds, figures=figures)


if __name__ == "__main__":
    serve(Timed(**json.loads(sys.argv[1])).run)

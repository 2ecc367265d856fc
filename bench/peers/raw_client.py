"""The least that a client can be: frames that were built before, several connections, a window of unanswered requests.

Run as a client of `phases`. One thread with epoll; answers are counted by their size, which is the same for all of
them, and whoever gives the orders looks afterwards whether the broker holds as many records.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from math import inf
from time import perf_counter

from bench.peers.phases import Done, serve
from ottla.clock import SystemClock
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import build_batch

RECEIVE_BYTES = 1 << 16
ANSWER_S_MAX = 60.0
PRODUCE_VERSION = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the client is to do."""

    host: str
    port: int
    topic: str
    partitions: int
    """Connections take them in turns."""
    connections: int
    window: int
    acks: int
    size: int
    """Bytes of a record's value."""
    records: int = 1
    """In a request."""
    requests_max: int = 0
    """After how many a phase ends early, about: no more are sent, and those on their way count; 0 is no limit."""


def frame(asked: Asked, partition: int) -> bytes:
    """A request with one batch, as bytes."""
    now_ms, value = SystemClock().now_ms(), bytes(range(256)) * (asked.size // 256 + 1)
    batch = bytes(build_batch([(None, value[: asked.size], now_ms, ())] * asked.records))
    data = TopicProduceData(name=asked.topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=asked.acks, timeout_ms=30_000, topic_data=[data])
    return b"".join(ClientConnection("bench").send(ApiKey.PRODUCE, PRODUCE_VERSION, request)[1])


class Line:
    """One connection."""

    def __init__(self, asked: Asked, frames: list[bytes]) -> None:
        self.socket = socket.create_connection((asked.host, asked.port), timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._window = asked.window
        self._frames = frames
        self._bursts = [frames[0] * count for count in range(asked.window + 1)] if len(frames) == 1 else None
        self._turn = cycle(frames)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._answer_bytes = 0
        self._odd_bytes = 0
        self.open = 0
        """Requests without an answer."""

    def send(self, count: int) -> None:
        if self._bursts is not None:
            self.socket.sendall(self._bursts[count])
        else:
            self.socket.sendall(b"".join(next(self._turn) for _ in range(count)))
        self.open += count

    def receive(self) -> int:
        """How many answers have come whole."""
        size = self.socket.recv_into(self._buffer)
        if not size:
            raise ConnectionError("the broker hung up")
        if not self._answer_bytes:
            self._answer_bytes = 4 + int.from_bytes(self._buffer[:4], "big")
        count, self._odd_bytes = divmod(self._odd_bytes + size, self._answer_bytes)
        self.open -= count
        return count

    def fill(self) -> None:
        self.send(self._window - self.open)


def run_one(line: Line, seconds: float, *, requests_max: float) -> int:
    """Keep one connection's window full, without asking the kernel which connection it is."""
    answered, until = 0, perf_counter() + seconds
    line.fill()
    while perf_counter() < until and answered + line.open < requests_max:
        count = line.receive()
        answered += count
        if count:
            line.send(count)
    while line.open:
        answered += line.receive()
    return answered


def run_several(lines: list[Line], seconds: float, *, requests_max: float) -> int:
    """Keep all windows full."""
    poll, by_number, answered = select.epoll(), {line.socket.fileno(): line for line in lines}, 0
    for number, line in by_number.items():
        poll.register(number, select.EPOLLIN)
        line.fill()
    until = perf_counter() + seconds
    is_over = False
    while not is_over or any(line.open for line in lines):
        is_over = is_over or perf_counter() >= until or answered >= requests_max
        ready = poll.poll(ANSWER_S_MAX)
        if not ready:
            raise TimeoutError(f"no answer within {ANSWER_S_MAX} s")
        for number, _ in ready:
            line = by_number[number]
            count = line.receive()
            answered += count
            if count and not is_over:
                line.send(count)
    poll.close()
    return answered


class RawClient:
    """All connections, kept between phases."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        frames = [frame(asked, partition) for partition in range(asked.partitions)]
        # A connection keeps to its share of the partitions; where there are fewer, several share one.
        shares = [
            frames[number :: asked.connections] or [frames[number % len(frames)]] for number in range(asked.connections)
        ]
        self._lines = [Line(asked, share) for share in shares]

    def run(self, seconds: float) -> Done:
        """One phase."""
        begun = perf_counter()
        requests_max = self._asked.requests_max or inf
        if len(self._lines) == 1:
            answered = run_one(self._lines[0], seconds, requests_max=requests_max)
        else:
            answered = run_several(self._lines, seconds, requests_max=requests_max)
        wall_s, records = perf_counter() - begun, answered * self._asked.records
        return Done(
            records=records, size_bytes=records * self._asked.size, wall_s=wall_s, figures={"requests": answered}
        )


def serve_either(text: str, appending: type[RawClient], reading: Callable[[Asked], Done]) -> None:
    """Append, or read all that is there, as the arguments say."""
    told = json.loads(text)
    is_reader = told.pop("is_reader", False)
    asked = Asked(**told)
    if is_reader:
        serve(lambda seconds: reading(asked))
    else:
        serve(appending(asked).run)


if __name__ == "__main__":
    serve(RawClient(Asked(**json.loads(sys.argv[1]))).run)

"""A broker moved by hand behind real sessions whose transport only remembers: what a client would have received.

It counts the Produce requests that reach the broker, so that a test knows how many were answered without being read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from ottla.broker.broker import Broker
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.schema import Message
from ottla.server.listener import Limits, Listener
from ottla.server.session import Session
from tests.broker.stage import Stage
from tests.server.repeats_stream import SET, TOPIC_RESOURCE

FRAMES_PER_PASS_MAX = 12
CUT_BYTES_MAX = 3_000
_PLACES = {"peername": ("10.0.0.7", 40_000), "sockname": ("10.0.0.1", 9_092)}


class Marks:
    """A socket that remembers how much its owner has asked it to wait for."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.told.append(value)

    def fileno(self) -> int:
        """Nothing can be sent past the transport."""
        return -1


class RememberingTransport(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        self.marks = Marks()
        super().__init__({**_PLACES, "socket": self.marks})
        self.data = b""
        self.is_closed = False

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        assert not self.is_closed, "nothing is written behind the end"
        self.data += b"".join(list_of_data)

    def write(self, data: Any) -> None:
        self.writelines([data])

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It is never full."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """The test sends what it likes."""

    def resume_reading(self) -> None:
        """It never stopped."""

    def close(self) -> None:
        self.is_closed = True


class CountingBroker:
    """Passes requests on, and counts those that produce."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.services = broker.services
        self.produced = 0

    def submit(self, header: RequestHeader, request: Message, caller: Caller) -> Message | Pending | None:
        if header.api_key is ApiKey.PRODUCE:
            self.produced += 1
        return self._broker.submit(header, request, caller)

    def refuse_version(self) -> ApiVersionsResponse:
        return self._broker.refuse_version()


@dataclass(frozen=True)
class Answered:
    """What came back for one request that was sent alone."""

    at_once: bytes
    in_the_end: bytes
    is_closed: bool


class Line:
    """One connection."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.transport = RememberingTransport()
        self.session = Session(door.listener)
        self.session.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Let these bytes arrive, as many at once as there is room for; then let others use the buffer."""
        shared = self._door.listener.receive_buffer
        while data:
            buffer = self.session.get_buffer(-1)
            piece, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(piece)] = piece
            self.session.buffer_updated(len(piece))
            used = min(len(piece), len(shared))
            shared[:used] = b"\xa5" * used

    def take(self) -> bytes:
        """What has been answered since the last time."""
        data, self.transport.data = self.transport.data, b""
        return data

    def end(self) -> None:
        self.transport.is_closed = True
        self.session.connection_lost(None)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time goes on when it is told to."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


class Door:
    """A broker, and connections to it."""

    def __init__(self, *, request_bytes_max: int | None = None, held: bool = False) -> None:
        """With `held`, the disk does nothing unless it is told to."""
        self.stage = Stage(held=held)
        self._request_bytes_max = request_bytes_max
        self.broker = CountingBroker(self.stage.broker)
        self._loop = _Loop()
        self.listener = self._loop.run_until_complete(self._listen())
        self._line: Line | None = None

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic, which counts once the disk has it."""
        change = AlterConfigsResource(TOPIC_RESOURCE, topic, [AlterableConfig(name, SET, value)])
        self.stage.send(IncrementalAlterConfigsRequest([change]))
        self.settle()

    async def _listen(self) -> Listener:
        limits = Limits.of(self.stage.broker.services.catalog.broker_configs())
        if self._request_bytes_max is not None:
            limits = replace(limits, request_bytes_max=self._request_bytes_max)
        return Listener(cast(Broker, self.broker), self.stage.syncs, advertised=None, limits=limits)

    def settle(self) -> None:
        """Let everything happen that is ready, and be sent."""
        self.stage.scheduler.run()
        self._loop.run_until_complete(_pass())

    def pass_time(self, seconds: float) -> None:
        """Let the connections' time go on; the broker's is the stage's."""
        self._loop.now_s += seconds

    def close(self) -> None:
        if self._line is not None:
            self._line.end()
        self._loop.close()

    def send_each(self, frames: Sequence[bytes]) -> list[Answered]:
        """Each request on a connection of its own, so that none has been seen before."""
        lines = []
        at_once = []
        for frame in frames:
            line = Line(self)
            line.send(frame)
            lines.append(line)
            at_once.append((line.transport.data, line.transport.is_closed))
        self.settle()
        answers = [Answered(now, line.take(), is_closed) for line, (now, is_closed) in zip(lines, at_once, strict=True)]
        for line in lines:
            line.end()
        return answers

    def send_all(self, frames: Sequence[bytes], answers: Sequence[Answered], chance: Random) -> list[tuple[int, bytes]]:
        """All requests on one connection, in any pieces, and a new one where one of them closes it.

        Returns, for each connection, how many of the requests were sent over it and what came back. Behind a request
        that closes the connection more of the same is sent, as a client does that has not heard of it.
        """
        heard = []
        lines = []
        start = 0
        while start < len(frames):
            end = next((place + 1 for place in range(start, len(frames)) if answers[place].is_closed), len(frames))
            line = self._line or Line(self)
            pieces = list(frames[start:end])
            is_last = not answers[end - 1].is_closed
            if not is_last:
                pieces += frames[start : start + 3]
            for piece in _cut(pieces, chance):
                line.send(piece)
            assert line.transport.is_closed is not is_last, "the connection ends as that of a single request does"
            lines.append((end - start, line))
            self._line = line if is_last else None
            start = end
        self.settle()
        for count, line in lines:
            heard.append((count, line.take()))
            if line is not self._line:
                line.end()
        return heard


def _cut(frames: Sequence[bytes], chance: Random) -> list[bytes]:
    """The frames in passes: mostly some whole ones, now and then cut anywhere."""
    passes = []
    rest = list(frames)
    while rest:
        count = min(chance.randint(1, FRAMES_PER_PASS_MAX), len(rest))
        data = b"".join(rest[:count])
        del rest[:count]
        while data and chance.random() < 0.1:
            size = chance.randint(1, min(CUT_BYTES_MAX, len(data)))
            passes.append(data[:size])
            data = data[size:]
        if data and rest and chance.random() < 0.03:
            # The next pass begins in the middle of a frame.
            size = chance.randint(0, len(data) - 1)
            rest[0] = data[size:] + rest[0]
            data = data[:size]
        if data:
            passes.append(data)
    return passes


async def _pass() -> None:
    """One turn of the loop: what was to be done soon has been done before it."""


def expected(answers: Sequence[Answered]) -> bytes:
    """What one connection hears for these requests, of which only the last may close it.

    If it does, what was not answered by then is not answered any more, nor what is behind it.
    """
    if not answers[-1].is_closed:
        return b"".join(answer.in_the_end for answer in answers)
    heard = b""
    for answer in answers:
        heard += answer.at_once
        if answer.in_the_end != answer.at_once:
            break
    return heard

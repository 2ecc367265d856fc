"""Waiting for a busy producer's next requests: what the system is asked for, and that nobody waits for long."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

import ottla
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.server.gathering import (
    MOMENT_S,
    NO_MARK,
    PACE_MIN,
    PACE_S,
    REQUEST_BYTES_MAX,
    REQUEST_BYTES_MIN,
    Gathering,
)
from tests.clients.server_process import ServerProcess
from tests.server.wire import PRODUCE_VERSION, Wire
from tests.storage.workbench import batch

TOPIC = "gathered"
PARTITIONS = 4
BURSTS = 50


class Moments:
    """An event loop's time and timers, which go on when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.now_s = 1_000.0

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        assert delay_s == MOMENT_S
        self.due.append(callback)

    def pass_one(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


class WithoutMarks:
    """A socket of a system that does not know of them."""

    def __init__(self) -> None:
        self.tries = 0

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        self.tries += 1
        raise OSError("no such option")


@pytest.fixture
def handle() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


@pytest.fixture
def moments() -> Moments:
    return Moments()


@pytest.fixture
def gathering(handle: socket.socket, moments: Moments) -> Gathering:
    return Gathering(handle, cast(asyncio.AbstractEventLoop, moments))


class Stream:
    """What comes on a connection, at a pace."""

    def __init__(self, gathering: Gathering, moments: Moments, *, pace: int = 2 * PACE_MIN) -> None:
        self._gathering = gathering
        self._moments = moments
        self._received = 0
        self.go_on(pace)

    def go_on(self, pace: int) -> None:
        """Let so many bytes a second come for as long as the pace is taken over, one small request after the other."""
        for seconds, size in ((0.0, 0), (2 * PACE_S, round(2 * PACE_S * pace))):
            self._moments.now_s += seconds
            self._received += size
            self._gathering.note(REQUEST_BYTES_MIN - 1, count=1, received=self._received)

    def note(self, request_bytes: int, *, count: int) -> None:
        self._received += request_bytes * count
        self._gathering.note(request_bytes, count=count, received=self._received)


def _mark(handle: socket.socket) -> int:
    return handle.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_nothing_is_waited_for_at_first(gathering: Gathering, handle: socket.socket) -> None:
    assert _mark(handle) == NO_MARK


def test_a_wish_counts_at_once_and_for_as_long_as_it_comes_again(
    gathering: Gathering, handle: socket.socket, moments: Moments
) -> None:
    for _ in range(3):
        gathering.wish(200_000)
        assert _mark(handle) == 200_000
        moments.pass_one()

    assert _mark(handle) == 200_000


def test_after_a_moment_without_one_nothing_is_waited_for(
    gathering: Gathering, handle: socket.socket, moments: Moments
) -> None:
    gathering.wish(200_000)
    moments.pass_one()
    moments.pass_one()

    assert _mark(handle) == NO_MARK
    assert moments.due == []


def test_it_can_begin_anew(gathering: Gathering, handle: socket.socket, moments: Moments) -> None:
    gathering.wish(200_000)
    moments.pass_one()
    moments.pass_one()
    gathering.wish(100_000)

    assert _mark(handle) == 100_000
    assert len(moments.due) == 1


def test_the_mark_follows_wishes_that_differ_by_much(
    gathering: Gathering, handle: socket.socket, moments: Moments
) -> None:
    marks = []
    for wanted in (200_000, 240_000, 300_000, 90_000):
        gathering.wish(wanted)
        moments.pass_one()
        marks.append(_mark(handle))

    assert marks == [200_000, 200_000, 300_000, 90_000]


def test_the_socket_of_a_connection_that_ends_is_not_touched(
    gathering: Gathering, handle: socket.socket, moments: Moments
) -> None:
    gathering.wish(200_000)
    gathering.end()
    moments.pass_one()
    gathering.wish(100_000)

    assert _mark(handle) == 200_000
    assert moments.due == []


def test_a_system_without_marks_is_asked_once(moments: Moments) -> None:
    handle = WithoutMarks()
    gathering = Gathering(cast(socket.socket, handle), cast(asyncio.AbstractEventLoop, moments))
    gathering.wish(200_000)
    gathering.wish(200_000)
    moments.pass_one()
    moments.pass_one()
    gathering.wish(200_000)

    assert handle.tries == 1


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's end of a connection, and ours."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as ours,
    ):
        yield client, ours


def test_what_has_come_before_the_answer_shows_that_more_is_under_way(
    ends: tuple[socket.socket, socket.socket], moments: Moments
) -> None:
    client, ours = ends
    stream = Stream(Gathering(ours, cast(asyncio.AbstractEventLoop, moments)), moments)
    stream.note(50_000, count=1)
    assert _mark(ours) == NO_MARK

    client.sendall(b"the next request")
    select.select([ours], [], [], 10)
    stream.note(50_000, count=1)
    assert _mark(ours) == 100_000


def test_a_request_alone_does_not_prolong_the_waiting(
    ends: tuple[socket.socket, socket.socket], moments: Moments
) -> None:
    client, ours = ends
    client.sendall(b"the next request")
    select.select([ours], [], [], 10)
    stream = Stream(Gathering(ours, cast(asyncio.AbstractEventLoop, moments)), moments)
    stream.note(50_000, count=2)
    assert _mark(ours) == 100_000
    moments.pass_one()
    stream.note(50_000, count=1)
    moments.pass_one()

    assert _mark(ours) == NO_MARK


def test_a_producer_at_its_leisure_is_not_waited_for(
    gathering: Gathering, handle: socket.socket, moments: Moments
) -> None:
    stream = Stream(gathering, moments, pace=PACE_MIN // 2)
    stream.note(20_000, count=3)
    assert _mark(handle) == NO_MARK

    stream.go_on(PACE_MIN)
    stream.note(20_000, count=3)
    assert _mark(handle) == 60_000


@pytest.mark.parametrize(
    ("pace", "expected"), [(1_000_000_000, 5 * 50_000), (100_000_000, 5 * 50_000), (55_000_000, 3 * 50_000)]
)
def test_no_more_is_waited_for_than_comes_soon(
    gathering: Gathering, handle: socket.socket, moments: Moments, pace: int, expected: int
) -> None:
    Stream(gathering, moments, pace=pace).note(50_000, count=7)

    assert _mark(handle) == expected


@pytest.mark.parametrize("request_bytes", [REQUEST_BYTES_MIN - 1, REQUEST_BYTES_MAX + 1])
def test_requests_that_are_not_worth_it_are_not_waited_for(
    gathering: Gathering, handle: socket.socket, moments: Moments, request_bytes: int
) -> None:
    Stream(gathering, moments, pace=1_000_000_000).note(request_bytes, count=3)

    assert _mark(handle) == NO_MARK


def test_a_socket_that_was_closed_has_nothing(moments: Moments) -> None:
    with socket.socket() as closed:
        pass
    Stream(Gathering(closed, cast(asyncio.AbstractEventLoop, moments)), moments).note(50_000, count=1)

    assert moments.due == []


def test_a_request_that_comes_alone_after_several_is_answered(ottla_server: ServerProcess) -> None:
    """As long as the mark stood, nothing would come of it: it is smaller than what the server waits for."""
    with ottla.connect(ottla_server.address) as client:
        client.admin().create_topic(TOPIC, partitions=PARTITIONS)
    with Wire(ottla_server) as wire:
        known = [PartitionProduceData(index, batch(b"x" * 30_000)) for index in range(PARTITIONS)]
        alone = [PartitionProduceData(index, batch(b"y")) for index in range(PARTITIONS)]
        wire.socket.sendall(_encoded(wire, known))
        _answered(wire)
        for _ in range(BURSTS):
            wire.socket.sendall(b"".join(_encoded(wire, known) for _ in range(3)))
            wire.socket.sendall(_encoded(wire, alone))
            for _ in range(4):
                _answered(wire)


def _encoded(wire: Wire, entries: list[PartitionProduceData]) -> bytes:
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(TOPIC, partition_data=entries)])
    return wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, request)


def _answered(wire: Wire) -> None:
    response = wire.receive().message
    assert isinstance(response, ProduceResponse)
    assert {each.error_code for each in response.responses[0].partition_responses} == {0}

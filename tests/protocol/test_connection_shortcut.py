"""Requests that are offered to a shortcut before they are read: none is lost, none is served twice, all in order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection, Held, Request, ServerConnection
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.wire import COPIED_BYTES_MAX

TAKES, LEAVES = "taken", "left"
BAD_FRAME = struct.pack(">i", -1)
SIZE_BYTES = 4
NUMBER_AT, NUMBER_END = 4, 8
"""Of a request's number, behind its API and version."""


class Taker:
    """Takes the requests of one group, and answers them with their numbers; or does not answer, as often as told."""

    def __init__(self, *, refusals: int = 0) -> None:
        self.position = self.taken = 0
        self.is_through = False
        self.offered: list[int] = []
        self.is_copied = True
        self._refusals = refusals

    def answer(self, data: bytes | memoryview, start: int) -> Sequence[int] | None:
        numbers: list[int] = []
        self.is_copied = not isinstance(data, memoryview)
        stream = bytes(data)
        while True:
            body_at = start + SIZE_BYTES
            size = int.from_bytes(stream[start:body_at], signed=True)
            self.is_through = body_at > len(stream) or body_at + size > len(stream)
            if self.is_through or size < NUMBER_END:
                break
            body = stream[body_at : body_at + size]
            (number,) = struct.unpack_from(">i", body, NUMBER_AT)
            self.offered.append(number)
            if TAKES.encode() not in body:
                break
            numbers.append(number)
            start = body_at + size
        self.position, self.taken = start, len(numbers)
        if numbers and self._refusals:
            self._refusals -= 1
            return None
        return bytes(number % 256 for number in numbers)


class Promiser(Taker):
    """As the other, but it answers later."""

    def answer(self, data: bytes | memoryview, start: int) -> list[int] | bytes:
        taken = super().answer(data, start)
        return list(taken) if taken else b""


def _frames(groups: Sequence[str]) -> list[bytes]:
    client = ClientConnection("tester")
    sent = (client.send(ApiKey.HEARTBEAT, 1, HeartbeatRequest(group, 3, "m"))[1] for group in groups)
    return [b"".join(buffers) for buffers in sent]


def _serve(server: ServerConnection, data: bytes, shortcut: Taker) -> list[bytes | int]:
    """What comes out: answers, and the numbers of the requests, each of which is answered at once."""
    out: list[bytes | int] = []
    for item in server.receive(data, shortcut):
        if isinstance(item, Request):
            server.respond(item, HeartbeatResponse())
            out.append(item.header.correlation_id)
        else:
            assert isinstance(item, bytes)
            out.append(item)
    return out


def test_what_is_taken_together_is_answered_together() -> None:
    data = b"".join(_frames([TAKES, TAKES, TAKES]))
    assert _serve(ServerConnection(), data, Taker()) == [b"\0\1\2"]


def test_requests_that_are_not_taken_come_out_in_their_places() -> None:
    data = b"".join(_frames([TAKES, LEAVES, TAKES, TAKES, LEAVES, LEAVES, TAKES]))
    assert _serve(ServerConnection(), data, Taker()) == [b"\0", 1, b"\2\3", 4, 5, b"\6"]


def test_what_cannot_be_answered_is_read_one_by_one_and_not_offered_again() -> None:
    shortcut = Taker(refusals=1)
    data = b"".join(_frames([TAKES, TAKES, LEAVES, TAKES]))
    assert _serve(ServerConnection(), data, shortcut) == [0, 1, 2, b"\3"]
    assert shortcut.offered == [0, 1, 2, 2, 3]


def test_a_bad_frame_behind_taken_ones_is_told_of_when_those_are_answered() -> None:
    server = ServerConnection()
    received = server.receive(b"".join(_frames([TAKES, TAKES])) + BAD_FRAME, Taker())
    assert next(received) == b"\0\1"
    with pytest.raises(ProtocolError, match="frame of -1 bytes"):
        next(received)


def test_a_bad_frame_behind_what_could_not_be_answered_is_told_of_when_that_is_read() -> None:
    server = ServerConnection()
    received = server.receive(b"".join(_frames([TAKES, TAKES])) + BAD_FRAME, Taker(refusals=2))
    for number in range(2):
        request = next(received)
        assert isinstance(request, Request)
        assert request.header.correlation_id == number
        server.respond(request, HeartbeatResponse())
    with pytest.raises(ProtocolError, match="frame of -1 bytes"):
        next(received)


def test_a_frame_that_is_no_request_closes_nothing_before_those_ahead_are_answered() -> None:
    received = ServerConnection().receive(_frames([TAKES])[0] + struct.pack(">i3s", 3, b"abc"), Taker())
    assert next(received) == b"\0"
    with pytest.raises(ProtocolError):
        next(received)


@pytest.mark.parametrize("refusals", [0, 1, 2])
@pytest.mark.parametrize("stops", [1, 2, 3])
def test_nothing_is_lost_or_served_twice_when_the_reader_stops_early(stops: int, refusals: int) -> None:
    groups = [TAKES, TAKES, LEAVES, TAKES, LEAVES, TAKES, TAKES]
    server, shortcut = ServerConnection(), Taker(refusals=refusals)
    data, served = b"".join(_frames(groups)), []
    while True:
        count = 0
        for item in server.receive(data, shortcut):
            if isinstance(item, Request):
                server.respond(item, HeartbeatResponse())
                served.append(item.header.correlation_id)
            else:
                assert isinstance(item, bytes)
                served += item
            count += 1
            if count == stops:
                break
        data = b""
        if not count:
            break
    assert served == list(range(len(groups)))
    assert (server.in_flight, server.bytes_kept) == (0, 0)


def test_answers_behind_an_unanswered_request_wait_for_it() -> None:
    server, shortcut = ServerConnection(), Taker()
    left, *taken = _frames([LEAVES, TAKES, TAKES, TAKES])
    (waiting,) = server.receive(left, shortcut)
    assert list(server.receive(taken[0] + taken[1], shortcut)) == []
    assert server.in_flight == 2
    assert isinstance(waiting, Request)
    assert server.respond(waiting, HeartbeatResponse())[1:] == [b"\1\2"]
    assert server.in_flight == 0
    assert _serve(server, taken[2], shortcut) == [b"\3"]


def test_a_request_left_unanswered_by_the_reader_keeps_back_what_is_taken_behind_it() -> None:
    server, shortcut = ServerConnection(), Taker()
    first, left = server.receive(b"".join(_frames([TAKES, LEAVES, TAKES])), shortcut)
    assert first == b"\0"
    assert isinstance(left, Request)
    assert server.respond(left, HeartbeatResponse())[1:] == [b"\2"]


def test_answers_that_come_later_keep_their_place() -> None:
    server, shortcut = ServerConnection(), Promiser()
    frames = _frames([TAKES, LEAVES, TAKES, TAKES])
    first, left, last = server.receive(b"".join(frames), shortcut)
    assert isinstance(first, Held)
    assert isinstance(left, Request)
    assert isinstance(last, Held)
    assert (first.promise, last.promise) == ([0], [2, 3])
    assert server.respond_held(last.sequence, b"last") == []
    answer = server.respond(left, HeartbeatResponse())
    assert answer == []
    assert server.respond_held(first.sequence, b"first")[::2] == [b"first", b"last"]
    assert server.in_flight == 0


def test_any_two_cuts_give_the_same_requests_in_order() -> None:
    frames = _frames([TAKES, LEAVES, TAKES, TAKES])
    data = b"".join(frames)
    for first in range(len(data)):
        for second in (first, (first + len(data)) // 2):
            server, shortcut, served = ServerConnection(), Taker(), list[int]()
            for start, end in pairwise((0, first, second, len(data))):
                for item in _serve(server, data[start:end], shortcut):
                    served += item if isinstance(item, bytes) else [item]
            assert served == [0, 1, 2, 3]


def test_many_bytes_at_once_are_not_copied_to_be_offered() -> None:
    shortcut = Taker()
    count = COPIED_BYTES_MAX // 30
    data = b"".join(_frames([TAKES] * count))
    assert len(data) > COPIED_BYTES_MAX
    _serve(ServerConnection(), data, shortcut)
    assert len(shortcut.offered) == count
    assert not shortcut.is_copied

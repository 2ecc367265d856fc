"""Frames that come in parts, with and without room that is lent for them."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.frames import NO_ROOMS, FrameReader, Rooms

SIZES = (0, 1, 5, 40_000, 3, 90, 70_000, 20_000, 2, 33_000, 0, 120_000, 7)
FRAMES = [bytes((number,)) * size for number, size in enumerate(SIZES)]
STREAM = b"".join(len(each).to_bytes(4, "big") + each for each in FRAMES)
SHARED_BYTES = 50_000


class CountedRooms(Rooms):
    """Lends so many of that size, which begin with what somebody else left there."""

    def __init__(self, room_bytes: int, count: int = 1) -> None:
        self.room_bytes = room_bytes
        self.left = count
        self.times_lent = 0

    def take(self) -> memoryview | None:
        if not self.left:
            return None
        self.left -= 1
        self.times_lent += 1
        return memoryview(bytearray(b"\xff" * self.room_bytes))

    def give_back(self, room: memoryview) -> None:
        assert len(room) == self.room_bytes
        room[:] = b"\xee" * self.room_bytes
        self.left += 1


def taken(reader: FrameReader, *, frames_max: int = 1_000) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < frames_max and (each := reader.next_frame()) is not None:
        found.append(bytes(each))
    reader.release()
    return found


def receive(reader: FrameReader, stream: memoryview, shared: bytearray, count: int) -> int:
    """Take up to so many bytes off a stream as a server does; says how many."""
    room = reader.room()
    into = memoryview(shared) if room is None else room
    assert len(into) > 0, "to receive nothing looks like the end of a stream"
    count = min(count, len(into), len(stream))
    into[:count] = stream[:count]
    if room is None:
        reader.feed(into[:count])
    else:
        reader.received(count)
        reader.feed(b"")
    return count


def receive_in_room(reader: FrameReader, data: bytes) -> None:
    """All of it, where nothing else may be received into."""
    assert receive(reader, memoryview(data), bytearray(), len(data)) == len(data)


@pytest.mark.parametrize("room_bytes", [0, 8, 60_000, 130_000, 1 << 20])
@pytest.mark.parametrize("seed", range(20))
def test_however_a_stream_comes_its_frames_are_the_same(room_bytes: int, seed: int) -> None:
    choice = random.Random(seed)
    largest = choice.choice([3, 500, 20_000, 1 << 20])
    if largest == 3:
        stream, expected = STREAM[:40_200], FRAMES[:4]
    else:
        stream, expected = STREAM, FRAMES
    rooms = CountedRooms(room_bytes) if room_bytes else NO_ROOMS
    reader, shared, left = FrameReader(rooms=rooms), bytearray(SHARED_BYTES), memoryview(stream)
    found: list[bytes] = []
    while left:
        left = left[receive(reader, left, shared, choice.randint(1, largest)) :]
        # Sometimes the server stops in between, and goes on with what came already.
        found += taken(reader, frames_max=choice.choice([1, 1_000]))
        reader.feed(b"")
        found += taken(reader)
        shared[:] = bytes(len(shared))

    assert found[: len(expected)] == expected
    if stream is STREAM:
        assert (len(found), reader.bytes_kept) == (len(FRAMES), 0)
        assert not isinstance(rooms, CountedRooms) or rooms.left == 1


def test_the_rest_of_a_frame_is_received_where_its_beginning_is() -> None:
    rooms = CountedRooms(1 << 20)
    reader = FrameReader(rooms=rooms)
    reader.feed(b"\0\0\0\x08abc")
    assert taken(reader) == []
    receive_in_room(reader, b"defgh\0\0")
    assert taken(reader) == [b"abcdefgh"]
    assert (reader.bytes_kept, rooms.left) == (2, 0)
    reader.feed(b"")
    assert taken(reader) == []
    reader.forget()
    assert (reader.bytes_kept, rooms.left, rooms.times_lent) == (0, 1, 1)


def test_a_frame_that_is_too_large_for_a_room_gives_it_back_as_soon_as_that_is_known() -> None:
    rooms = CountedRooms(100)
    reader = FrameReader(rooms=rooms)
    reader.feed(b"\0\0")
    assert taken(reader) == []
    assert rooms.left == 0
    receive_in_room(reader, b"\0\x61x")
    assert taken(reader) == []
    assert (rooms.left, reader.room(), reader.bytes_kept) == (1, None, 5)
    reader.feed(b"y" * 96)
    assert taken(reader) == [b"x" + b"y" * 96]


def test_where_no_room_is_left_a_frame_is_kept_all_the_same() -> None:
    rooms = CountedRooms(100)
    first, second = FrameReader(rooms=rooms), FrameReader(rooms=rooms)
    for reader in (first, second):
        reader.feed(b"\0\0\0\x03a")
        assert taken(reader) == []
    assert (first.room() is None, second.room()) == (False, None)
    second.feed(b"bc")
    assert taken(second) == [b"abc"]


def test_bytes_that_came_elsewhere_follow_those_in_the_room() -> None:
    rooms = CountedRooms(100)
    reader = FrameReader(rooms=rooms)
    reader.feed(b"\0\0\0\x03a")
    assert taken(reader) == []
    reader.feed(b"bc\0\0")
    assert taken(reader) == [b"abc"]
    assert reader.bytes_kept == 2


def test_a_size_that_is_none_is_told_wherever_it_came() -> None:
    reader = FrameReader(rooms=CountedRooms(100))
    reader.feed(b"\xff")
    assert taken(reader) == []
    receive_in_room(reader, b"\xff\xff\xff")
    with pytest.raises(ProtocolError, match="a frame of -1 bytes"):
        reader.next_frame()
    reader.release()
    reader.forget()

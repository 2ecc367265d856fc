"""Rooms that are lent to connections."""

from __future__ import annotations

from ottla.server.rooms import LENT_MAX, ROOM_BYTES, LentRooms


def test_there_are_so_many_and_whoever_gives_one_back_makes_room_for_another() -> None:
    rooms = LentRooms()
    lent = [rooms.take() for _ in range(LENT_MAX)]
    assert {len(room) for room in lent if room is not None} == {ROOM_BYTES}
    assert None not in lent
    assert rooms.take() is None
    given_back = lent.pop()
    assert given_back is not None
    rooms.give_back(given_back)
    assert rooms.take() is given_back
    assert rooms.take() is None

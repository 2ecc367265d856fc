"""The primitives: varints, strings and tagged fields at their edges."""

from __future__ import annotations

import pytest

from ottla.errors import ProtocolError
from ottla.protocol import wire

VARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**21 - 1, "ffff7f"),
    (2**28, "8080808001"),
    (2**31 - 1, "ffffffff07"),
]


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_a_varint_is_written_in_as_few_bytes_as_it_needs(value: int, encoded: str) -> None:
    assert wire.varint(value).hex() == encoded


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_a_varint_is_read_to_its_last_byte(value: int, encoded: str) -> None:
    data = bytes.fromhex("ee" + encoded + "ee")
    assert wire.read_varint(data, 1) == (value, len(data) - 1)


@pytest.mark.parametrize("encoded", ["ffffffff0f", "8080808008", "808080808001", "ffffffffffffffff7f"])
def test_a_varint_beyond_a_java_int_is_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError):
        wire.read_varint(bytes.fromhex(encoded), 0)


def test_a_value_beyond_a_java_int_is_not_written() -> None:
    with pytest.raises(ProtocolError):
        wire.varint(2**31)


def test_unknown_tags_are_kept_in_their_order() -> None:
    data = bytes.fromhex("02 05 02 6162 8001 00")
    assert wire.read_unknown_tags(data, 1, data[0]) == (((5, b"ab"), (128, b"")), len(data))


@pytest.mark.parametrize("data", ["02 0500 05", "01 05 03 6162", "ff ffffff07"])
def test_tags_that_do_not_fit_into_what_is_left_are_refused(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises((ProtocolError, IndexError)):
        wire.read_unknown_tags(raw, 1, raw[0])


def test_known_and_unknown_tags_are_written_in_the_order_of_their_numbers() -> None:
    assert wire.tag_section({1: b"x", 9: b""}, ((3, b"yz"),)).hex(" ") == "03 01 01 78 03 02 79 7a 09 00"


def test_an_unknown_tag_cannot_take_the_place_of_a_known_one() -> None:
    with pytest.raises(ProtocolError, match="twice"):
        wire.tag_section({1: b"x"}, ((1, b"y"),))


def test_layouts_are_kept_for_short_lengths_and_never_more_than_the_bound() -> None:
    layouts = wire.ArrayLayouts(("", "i", ""), method="pack")
    assert layouts[3](1, 2, 3) == bytes.fromhex("00000001 00000002 00000003")
    assert len(layouts[200](*range(200))) == 800
    assert set(layouts) == {3}

"""The primitives of Kafka's wire format, as the compiled readers and writers call them.

What is short and common (a one-byte varint, a short string, a run of integers) stands inline in the
compiled code; here is the rest: long varints, long strings, tagged fields, and the tables of
`struct` layouts. Knows no messages and no versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Any, cast

from ottla.errors import ProtocolError

Buffer = bytes | bytearray | memoryview
COPIED_BYTES_MAX = 16 << 10
"""Up to here a copy is cheaper than a view: to make, to slice and to read a view costs several times as much."""

VARINT_MAX = 2**31 - 1
"""Lengths, counts and tags are Java ints; what is larger reads there as a negative number."""
TEXT_BYTES_MAX = 2**15 - 1
"""Also compact strings keep the limit of the older two-byte length."""
TAGS_MAX = 256
"""Tagged fields that one struct may have: far more than any version of the protocol knows."""
SHORT_MAX = 127
"""Lengths and counts up to here take one byte as a varint and have a layout of their own."""
LAYOUTS_MAX = 4096
"""Layouts that one place in one message may keep."""

_ONE_BYTE = [bytes((value,)) for value in range(128)]


class TextLayouts(dict[int, Callable[..., Any]]):
    """For each short length: one `struct` over a string and the fixed-width fields around it.

    Keyed by the length as it stands on the wire, so that the compiled code need not calculate.
    """

    __slots__ = ("_after", "_before", "_method", "_null")

    def __init__(self, before: str, after: str, *, null: int, method: str) -> None:
        super().__init__()
        self._before = before
        self._after = after
        self._null = null
        self._method = method

    def __missing__(self, length: int) -> Callable[..., Any]:
        # A null string and an empty one both have no bytes; `null` is what stands for the first.
        size = max(length - self._null - 1, 0)
        made = cast(Callable[..., Any], getattr(Struct(f">{self._before}{size}s{self._after}"), self._method))
        if len(self) < LAYOUTS_MAX:
            self[length] = made
        return made


class ArrayLayouts(dict[Any, Callable[..., Any]]):
    """For each combination of counts: one `struct` over arrays of fixed-width values and what is between.

    `pieces` alternates between fixed-width fields and an array's element, and begins and ends with fields.
    One array is keyed by its count, several by the tuple of their counts.
    """

    __slots__ = ("_method", "_pieces")

    def __init__(self, pieces: Sequence[str], *, method: str) -> None:
        super().__init__()
        self._pieces = pieces
        self._method = method

    def __missing__(self, counts: int | tuple[int, ...]) -> Callable[..., Any]:
        each = counts if isinstance(counts, tuple) else (counts,)
        codes = [self._pieces[0]]
        for count, element, after in zip(each, self._pieces[1::2], self._pieces[2::2], strict=True):
            codes.append(f"{count}{element}" if len(element) == 1 else element * count)
            codes.append(after)
        made = cast(Callable[..., Any], getattr(Struct(">" + "".join(codes)), self._method))
        if max(each) <= SHORT_MAX and len(self) < LAYOUTS_MAX:
            self[counts] = made
        return made


@cache
def layout(codes: str, *, method: str) -> Callable[..., Any]:
    """`pack` or `unpack_from` of a run of fixed-width fields; one for all messages that have such a run."""
    return cast(Callable[..., Any], getattr(Struct(">" + codes), method))


@cache
def text_layouts(before: str, after: str, *, null: int, method: str) -> TextLayouts:
    """One table for all messages that have such fields around a string."""
    return TextLayouts(before, after, null=null, method=method)


@cache
def array_layouts(pieces: tuple[str, ...], *, method: str) -> ArrayLayouts:
    """One table for all messages that have such arrays next to each other."""
    return ArrayLayouts(pieces, method=method)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint and the position behind it. Running off the end raises IndexError."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return read_long_varint(buffer, position + 1, first)


def read_long_varint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, 128 or more, has been read."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > VARINT_MAX:
                break
            return value, position
    raise ProtocolError("a varint is longer than five bytes or above 2^31 - 1")


def read_long_text(buffer: Buffer, position: int, length: int) -> tuple[str, int]:
    """A classic string of 128 bytes or more whose length has been read; a negative length is refused."""
    if length < 0:
        raise ProtocolError(f"a string may not be null or have length {length} here")
    end = position + length
    if end > len(buffer):
        raise ProtocolError(f"a string of {length} bytes does not fit into what is left")
    return str(buffer[position:end], "utf-8"), end


def read_long_compact_text(buffer: Buffer, position: int, first: int) -> tuple[str, int]:
    """A compact string whose length does not fit into one byte; `first` is that byte."""
    if first == 0:
        raise ProtocolError("a string may not be null here")
    length, position = read_long_varint(buffer, position, first)
    if length - 1 > TEXT_BYTES_MAX:
        raise ProtocolError(f"a string of {length - 1} bytes is longer than {TEXT_BYTES_MAX}")
    return read_long_text(buffer, position, length - 1)


def read_tag_count(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """How many tagged fields follow, checked against the bytes that remain: each takes at least two."""
    count = first
    if first > SHORT_MAX:
        count, position = read_long_varint(buffer, position, first)
    if count * 2 > len(buffer) - position:
        raise ProtocolError(f"{count} tagged fields do not fit into {len(buffer) - position} bytes")
    if count > TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields in one struct, at most {TAGS_MAX} are taken")
    return count, position


def read_tag(buffer: Buffer, position: int) -> tuple[int, int, int]:
    """A tagged field's number, where its value starts, and where it ends."""
    tag, position = read_varint(buffer, position)
    size, position = read_varint(buffer, position)
    if size > len(buffer) - position:
        raise ProtocolError(f"tagged field {tag} of {size} bytes does not fit into {len(buffer) - position}")
    return tag, position, position + size


def read_unknown_tags(buffer: Buffer, position: int, first: int) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """The tagged fields of a struct that knows none; `first` is the first byte of their count."""
    count, position = read_tag_count(buffer, position, first)
    unknown = []
    for _ in range(count):
        tag, position, end = read_tag(buffer, position)
        unknown.append((tag, bytes(buffer[position:end])))
        position = end
    return tuple(unknown), position


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 128:
        return _ONE_BYTE[value]
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    if value > VARINT_MAX:
        raise ProtocolError(f"{value} is too large for a length, a count or a tag")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def text_length(length: int) -> bytes:
    """The length of a compact, non-null string as it stands on the wire (`length` is one more than the bytes)."""
    if length - 1 > TEXT_BYTES_MAX:
        raise ProtocolError(f"a string of {length - 1} bytes is longer than {TEXT_BYTES_MAX}")
    return varint(length)


def tag_section(known: dict[int, bytes], unknown: Sequence[tuple[int, bytes]]) -> bytes:
    """A struct's tagged fields, known and unknown, in the order of their tags, with the count before them."""
    fields = dict(known)
    for tag, value in unknown:
        if tag in fields:
            raise ProtocolError(f"tagged field {tag} is there twice")
        fields[tag] = value
    parts = [varint(len(fields))]
    for tag in sorted(fields):
        parts += (varint(tag), varint(len(fields[tag])), fields[tag])
    return b"".join(parts)

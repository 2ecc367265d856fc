"""The variable-length integers inside a record: zigzag, seven bits to a byte, least significant first.

Pure arithmetic on bytes. A number that does not fit its width, or that the bytes end in, is InvalidBatch.
"""

from __future__ import annotations

from ottla.errors import InvalidBatch

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
_SPAN_64 = 2**64
_MASK_64 = _SPAN_64 - 1


def wrap_int64(value: int) -> int:
    """`value` modulo 2^64, as Java adds: a sum of two timestamps then always has an inverse."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return ((value - INT64_MIN) & _MASK_64) + INT64_MIN


def encode(value: int) -> bytes:
    """The bytes of a number; 32- and 64-bit numbers share one encoding."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def read_int32(data: bytes, position: int) -> tuple[int, int]:
    """A 32-bit number and the position after it."""
    # Most numbers in a record take one byte.
    if position < len(data) and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(data, position, 32)


def read_int64(data: bytes, position: int) -> tuple[int, int]:
    """A 64-bit number and the position after it."""
    if position < len(data) and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(data, position, 64)


def _read(data: bytes, position: int, bits: int) -> tuple[int, int]:
    zigzag = shift = 0
    end = len(data)
    while position < end and shift < bits:
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> bits:
                break
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
    raise InvalidBatch(f"no {bits}-bit number at byte {position} of the records")


_ONE_BYTE = [bytes((byte,)) for byte in range(0x80)]

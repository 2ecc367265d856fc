"""Produce requests that are alike but for their numbers and records.

Cuts them out of what has come, and answers them alike, by the compiled kernel or here. What the bytes before the
records mean is not asked: whoever knows one of the requests knows it of all.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.records import kernel
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP
from ottla.records.plain import PlainRun, Run

VERSION_AT, ID_AT, ID_END = 3, 4, 8
"""Where a request's version stands, and its number: behind its API."""
FLEXIBLE_VERSION_MIN = 9
SIZE_BYTES = 4
LENGTH_BYTES = 4
TAGS_BYTES = 3
"""No tagged fields for the partition, the topic and the request: three zeros."""

_SIZE = Struct(">i")
pack_size, read_size = _SIZE.pack, _SIZE.unpack_from
_NO_TAGS = bytes(TAGS_BYTES)
_OFFSETS = Struct(">qqq")
OFFSETS_BYTES = _OFFSETS.size
pack_offsets = _OFFSETS.pack
"""What an answer says of a batch: its offset, when it was stamped, and where the log starts."""


class Cut(NamedTuple):
    """Requests that stand behind each other."""

    run: Run
    """Their batches."""
    numbers: list[bytes]
    position: int
    """Behind the last of them."""
    is_through: bool
    """Whether no other whole request follows."""


def cut_alike(data: bytes | memoryview, start: int, opening: bytes, head: bytes, *, size_max: int) -> Cut:
    """The requests from `start` on, up to the first that differs.

    `opening` is a request's API and version, `head` what stands between its number and its records.
    """
    if kernel.compiled is None:
        return cut_alike_plain(data, start, opening, head, size_max=size_max)
    return Cut(*kernel.compiled.cut_alike(data, start, opening, head, size_max))


def cut_alike_plain(data: bytes | memoryview, start: int, opening: bytes, head: bytes, *, size_max: int) -> Cut:
    """What `cut_alike` does without the kernel."""
    run = PlainRun(data)
    numbers: list[bytes] = []
    is_through, is_flexible = False, opening[VERSION_AT] >= FLEXIBLE_VERSION_MIN
    end, head_end = len(data), ID_END + len(head)
    while True:
        at = start + SIZE_BYTES
        if at > end:
            is_through = True
            break
        (size,) = read_size(data, start)
        following = at + size
        if not head_end + HEADER_SIZE <= size <= size_max:
            break
        if following > end:
            is_through = True
            break
        first = bytes(data[at : at + head_end])
        if not first.startswith(head, ID_END) or not first.startswith(opening):
            break
        if is_flexible:
            length, at = short_length(data, at + head_end)
            records_end = following - TAGS_BYTES
            if data[records_end:following] != _NO_TAGS:
                break
        else:
            (length,) = read_size(data, at + head_end)
            at += head_end + LENGTH_BYTES
            records_end = following
        if length != records_end - at:
            break
        run.add(at, size=length)
        numbers.append(first[ID_AT:ID_END])
        start = following
    return Cut(run, numbers, start, is_through)


def short_length(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """What up to three bytes of seven bits say, less one, and where they end; -1 if there are more of them."""
    length = data[at]
    at += 1
    if length >= 0x80:
        length = length & 0x7F | data[at] << 7
        at += 1
        if length >= 0x4000:
            if data[at] >= 0x80:
                return -1, at
            length = length & 0x3FFF | data[at] << 14
            at += 1
    return length - 1, at


def answer_alike(size: bytes, numbers: list[bytes], before: bytes, run: Run, after: bytes) -> bytes:
    """The answers to the requests with these numbers, whose batches have been appended.

    `size`, `before` and `after` are the same in all of them.
    """
    if kernel.compiled is None:
        return answer_alike_plain(size, numbers, before, run, after)
    answers: bytes = kernel.compiled.answer_alike(size, numbers, before, run, after)
    return answers


def answer_alike_plain(size: bytes, numbers: list[bytes], before: bytes, run: PlainRun, after: bytes) -> bytes:
    """What `answer_alike` does without the kernel."""
    parts: list[bytes] = []
    for number, offset in zip(numbers, run.offsets, strict=True):
        parts += (size, number, before, pack_offsets(offset, NO_TIMESTAMP, run.log_start_offset), after)
    return b"".join(parts)

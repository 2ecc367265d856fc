"""Produce requests with batches for several partitions of one topic, which are alike but for those.

Cuts them out of what has come, and puts their answers together, by the compiled kernel or here. As with `alike`, what
the bytes before the partitions mean is not asked.
"""

from __future__ import annotations

from struct import Struct

from ottla.protocol.wire import varint
from ottla.records import kernel
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP
from ottla.records.plain import PlainRun, Run
from ottla.server.alike import ID_AT, ID_END, SIZE_BYTES, pack_size, read_size, short_length

INDEX_BYTES = 4
_ENTRY_BYTES_MIN = INDEX_BYTES + 1 + HEADER_SIZE + 1
"""A partition's number, a length of one byte, the smallest batch, and no tagged fields."""
_ENDING_BYTES = 2
"""No tagged fields of the topic and of the request: two zeros."""
_TOLD = Struct(">ihqqq")
pack_told = _TOLD.pack
"""A partition's number, no error, where its batch stands, when that was stamped, and where its log starts."""

Order = list[tuple[int, int]]
"""For each batch of a request the partition's number, and how many batches came for that before."""
Spreading = tuple[bytes, Order]
"""A request's own number, and what it brings."""


class PlainSpreadRequests:
    """Requests that were cut out of what had come, and what they bring for each partition."""

    __slots__ = ("batch_count", "position", "requests", "runs")

    def __init__(self) -> None:
        self.requests: list[Spreading] = []
        self.runs: dict[int, Run] = {}
        self.batch_count = 0
        self.position = 0
        """Behind the last of the requests."""

    def __len__(self) -> int:
        return len(self.requests)

    def answer(self, before: bytes, behind: bytes, ending: bytes) -> bytes:
        """The answers, once every run has been appended.

        `before` stands before the count of the partitions, `behind` behind what each is told, `ending` at the end.
        """
        answers: list[bytes] = []
        for number, order in self.requests:
            body = number + before + varint(len(order) + 1)
            for index, ordinal in order:
                run = self.runs[index]
                body += pack_told(index, 0, run.offsets[ordinal], NO_TIMESTAMP, run.log_start_offset) + behind
            body += ending
            answers += (pack_size(len(body)), body)
        return b"".join(answers)


SpreadRequests = PlainSpreadRequests
if kernel.compiled is not None:
    SpreadRequests = kernel.compiled.SpreadRequests  # type: ignore[misc]


def cut_spread(
    data: bytes | memoryview, start: int, opening: bytes, head: bytes, *, size_max: int, count_max: int
) -> SpreadRequests:
    """The requests from `start` on, up to the first that differs.

    `opening` is a request's API and version, `head` what stands between its number and the count of its partitions.
    There are no tagged fields in those that are taken, and every batch is at least as long as a header.
    """
    if kernel.compiled is None:
        return cut_spread_plain(data, start, opening, head, size_max=size_max, count_max=count_max)
    cut: SpreadRequests = kernel.compiled.cut_spread(data, start, opening, head, size_max, count_max)
    return cut


def cut_spread_plain(
    data: bytes | memoryview, start: int, opening: bytes, head: bytes, *, size_max: int, count_max: int
) -> PlainSpreadRequests:
    """What `cut_spread` does without the kernel."""
    cut = PlainSpreadRequests()
    head_end = ID_END + len(head)
    while len(cut) < count_max and start + SIZE_BYTES <= len(data):
        at = start + SIZE_BYTES
        (size,) = read_size(data, start)
        end = at + size
        if not head_end <= size <= size_max or end > len(data):
            break
        first = bytes(data[at : at + head_end])
        if not first.startswith(head, ID_END) or not first.startswith(opening):
            break
        entries = _entries(data, at=at + head_end, end=end)
        if not entries:
            break
        order = []
        for index, records_at, length in entries:
            if index not in cut.runs:
                cut.runs[index] = PlainRun(data)
            run = cut.runs[index]
            order.append((index, len(run)))
            run.add(records_at, size=length)
        cut.requests.append((first[ID_AT:ID_END], order))
        cut.batch_count += len(order)
        start = end
    cut.position = start
    return cut


def _entries(data: bytes | memoryview, *, at: int, end: int) -> list[tuple[int, int, int]]:
    """What a request that ends there has, from the count of its partitions on: a partition's number, where its batch
    stands, and its size. None of them unless it is plainly that."""
    if at + 1 + _ENTRY_BYTES_MIN + _ENDING_BYTES > end:
        return []
    count, at = short_length(data, at)
    entries: list[tuple[int, int, int]] = []
    for _ in range(count):
        if at + _ENTRY_BYTES_MIN > end:
            return []
        (index,) = read_size(data, at)
        length, at = short_length(data, at + INDEX_BYTES)
        records_end = at + length
        if length < HEADER_SIZE or records_end >= end or data[records_end]:
            return []
        entries.append((index, at, length))
        at = records_end + 1
    return entries if at + _ENDING_BYTES == end and not data[at] and not data[at + 1] else []

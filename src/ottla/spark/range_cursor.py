"""How far a range of offsets has been read, and what a fetched run of batches does to that.

Pure: bytes in, positions out. Looks at the headers of batches only, so that the next fetch can be on its way before
anything is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.client.values import TopicPartition
from ottla.protocol.schema import NO_UUID
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, MAGIC, peek
from ottla.spark.planning import OffsetRange

_HEADER = Struct(">qiibIhi")
"""A batch's header up to its last offset delta: all that it takes to get to the next one."""
_START = Struct(">qi")
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
PORTION_BYTES = 2 * 1024 * 1024
"""Bytes of batches that are decoded at a time; a single batch may be larger."""
COMPRESSED_PORTION_BYTES = 512 * 1024
"""The same for a portion that a compressed batch may join, since those grow."""
COMPRESSED_PORTION_BATCHES = 64
"""Nor more compressed batches than this: how much one grows cannot be seen, but a producer makes few above 1 MiB."""


class Piece(NamedTuple):
    """Whole batches of one partition, with what says which of their records are wanted."""

    topic: str
    partition: int
    start: int
    """Records before this offset are not wanted: the first batch may begin earlier."""
    end: int
    """Nor are records from this offset on."""
    batches: memoryview
    cuts: Sequence[int]
    """Where runs of batches end that may be decoded at a time; the last is the end of all."""
    aborted: Sequence[tuple[int, int]]
    """Producer id and first offset of transactions whose records are not wanted either."""


class Run(NamedTuple):
    """What the headers of a fetched run of batches say."""

    cuts: Sequence[int]
    """Where portions end that are not too large to be decoded at a time: all batches that begin before the end."""
    first_offset: int
    next_offset: int
    """Where to read on: after the last of those batches, or the end of the range if a batch begins there or later."""

    @property
    def size(self) -> int:
        """Bytes of the batches that hold something of the range."""
        return self.cuts[-1] if self.cuts else 0


def hop(view: memoryview, *, end_offset: int) -> Run | None:
    """Hop from header to header; None where there is not one whole batch. Raises a BatchError for what is none."""
    position, size, first_offset, next_offset = 0, len(view), -1, -1
    cuts: list[int] = []
    start = compressed = 0
    while size - position >= HEADER_SIZE:
        base_offset, length, _, magic, _, attributes, last_offset_delta = _HEADER.unpack_from(view, position)
        if magic != MAGIC or length < _LENGTH_MIN or last_offset_delta < 0:
            # Not one that we know. Those before it are good, and the next fetch begins with it; `peek` says why.
            if position:
                break
            peek(view, position)
        following = position + length + LOG_OVERHEAD
        if following > size:
            break
        if first_offset < 0:
            first_offset = base_offset
        if base_offset >= end_offset:
            next_offset = end_offset
            break
        is_compressed = bool(attributes & CODEC_MASK)
        bytes_max = COMPRESSED_PORTION_BYTES if is_compressed else PORTION_BYTES
        if position > start and (following - start > bytes_max or compressed >= COMPRESSED_PORTION_BATCHES):
            cuts.append(position)
            start, compressed = position, 0
        compressed += is_compressed
        next_offset = base_offset + last_offset_delta + 1
        position = following
    if first_offset < 0:
        return None
    if position:
        cuts.append(position)
    return Run(cuts, first_offset, next_offset)


def announced_bytes(view: memoryview) -> int:
    """How large a batch of which only the beginning came is said to be; 0 where not even that came."""
    if len(view) < _START.size:
        return 0
    length: int = _START.unpack_from(view)[1]
    return max(0, length) + LOG_OVERHEAD


class Cursor:
    """One range, and how far it has been read."""

    __slots__ = (
        "alone",
        "asked",
        "asked_id",
        "attempts",
        "blocked_until_ms",
        "empty_answers",
        "empty_since_ms",
        "end",
        "key",
        "missing_since_ms",
        "position",
        "room_bytes",
        "short_since_ms",
        "topic_id",
        "warned",
    )

    def __init__(self, wanted: OffsetRange) -> None:
        self.key = TopicPartition(wanted.topic, wanted.partition)
        self.position = wanted.start
        """The offset that is fetched next: everything before it has been given out."""
        self.end = wanted.end
        self.topic_id = NO_UUID
        """Of the topic that has answered: another topic of the same name has other records."""
        self.asked_id = NO_UUID
        """Of the topic that was asked for last, which may be known to this process from long ago."""
        self.asked = False
        """Whether a request for it is under way. A second one, to a new leader, would bring the same again."""
        self.alone = False
        """Whether the next request asks for nothing else, so that an empty answer can mean one thing only."""
        self.room_bytes = 0
        """What the next batch is known to need."""
        self.attempts = 0
        self.blocked_until_ms = 0
        self.missing_since_ms: int | None = None
        """Since when the cluster has said that there is no such partition."""
        self.short_since_ms: int | None = None
        """Since when the log has ended before the range does."""
        self.empty_since_ms: int | None = None
        """Since when the broker has given nothing, although the log goes on."""
        self.empty_answers = 0
        self.warned = False

    @property
    def left(self) -> int:
        """Offsets that are still to be read."""
        return self.end - self.position

    @property
    def name(self) -> str:
        return f"{self.key.topic}-{self.key.partition}"

    def advance(self, position: int) -> None:
        """Everything before this offset is dealt with."""
        self.position = position
        self.alone = False
        self.room_bytes = 0
        self.attempts = 0
        self.missing_since_ms = None
        self.short_since_ms = None
        self.empty_since_ms = None
        self.empty_answers = 0

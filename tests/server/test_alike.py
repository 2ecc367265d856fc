"""Requests that are alike are cut out of what came, and answered; the kernel and the plain way do the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import ModuleType

import pytest

from ottla.protocol.wire import varint
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP
from ottla.server import alike
from ottla.server.alike import (
    Cut,
    answer_alike_plain,
    cut_alike_plain,
    pack_offsets,
    pack_size,
)
from tests.records.samples import place, run_of
from tests.storage.workbench import batch

FLEXIBLE, OLD = b"\0\0\0\x09", b"\0\0\0\x07"
HEAD = b"\0\5bench\0" + bytes(range(20))
SIZE_MAX = 3 << 20
SEEDS, MUTATIONS = 60, 60

Data = bytes | memoryview


@dataclass(frozen=True)
class Way:
    """One of the two ways to do the same work."""

    cut_alike: Callable[..., Cut]
    answer_alike: Callable[..., bytes]


PLAIN = Way(cut_alike_plain, answer_alike_plain)
COMPILED = Way(alike.cut_alike, alike.answer_alike)


@pytest.fixture
def way(is_compiled: bool) -> Way:
    """Plain Python first, then the compiled kernel."""
    return COMPILED if is_compiled else PLAIN


def _framed(body: bytes) -> bytes:
    return pack_size(len(body)) + body


def _request(
    number: int, records: bytes, *, opening: bytes = FLEXIBLE, head: bytes = HEAD, tags: bytes = b"\0\0\0"
) -> bytes:
    start = opening + number.to_bytes(4) + head
    if opening == FLEXIBLE:
        return _framed(start + varint(len(records) + 1) + records + tags)
    return _framed(start + pack_size(len(records)) + records)


def _batch(size: int = HEADER_SIZE) -> bytes:
    """As long as a batch, which is all that is asked of it here."""
    return bytes(index % 251 for index in range(size))


def _cut(
    way: Way, data: Data, start: int = 0, *, opening: bytes = FLEXIBLE, head: bytes = HEAD
) -> tuple[list[bytes], list[bytes], int, bool]:
    run, numbers, position, is_through = way.cut_alike(data, start, opening, head, size_max=SIZE_MAX)
    return [bytes(each) for each in run.batches], numbers, position, is_through


@pytest.mark.parametrize("kind", [bytes, memoryview])
@pytest.mark.parametrize("opening", [FLEXIBLE, OLD])
def test_those_that_follow_each_other_are_cut_at_once(way: Way, kind: Callable[[bytes], Data], opening: bytes) -> None:
    # A length has one, two and three bytes here.
    batches = [_batch(), _batch(126), _batch(127), _batch(16_382), _batch(16_383), _batch((1 << 21) - 2)]
    data = b"before" + b"".join(_request(7 + at, each, opening=opening) for at, each in enumerate(batches))
    numbers = [(7 + at).to_bytes(4) for at in range(len(batches))]
    assert _cut(way, kind(data), 6, opening=opening) == (batches, numbers, len(data), True)


def test_the_batches_of_a_view_are_views(way: Way) -> None:
    data = bytearray(_request(1, _batch()))
    cut = way.cut_alike(memoryview(data), 0, FLEXIBLE, HEAD, size_max=SIZE_MAX)
    data[-4] = 0xEE
    assert cut.run.batches[0][-1] == 0xEE


@pytest.mark.parametrize("left", [0, 1, 3, 4, 5, 40, 104])
def test_what_is_not_all_there_is_left_for_later(way: Way, left: int) -> None:
    first, second = _request(1, _batch()), _request(2, _batch())
    assert left < len(second)
    assert _cut(way, first + second[:left]) == ([_batch()], [b"\0\0\0\1"], len(first), True)


OTHERS = {
    "another version": _request(2, _batch(), opening=b"\0\0\0\x0a"),
    "another API": _request(2, _batch(), opening=b"\0\1\0\x09"),
    "another head": _request(2, _batch(), head=HEAD[:-1] + b"\xff"),
    "a longer head": _request(2, _batch(), head=HEAD + b"\0"),
    "a shorter head": _request(2, _batch(), head=HEAD[:-1]),
    "tagged fields": _request(2, _batch(), tags=b"\1\0\0\0\0"),
    "tagged fields, as long as none": _request(2, _batch(), tags=b"\0\1\0"),
    "no room for a batch": _request(2, _batch(HEADER_SIZE - 5)),
    "too large": _request(2, _batch(SIZE_MAX)),
    "a length of four bytes": _request(2, _batch(1 << 21)),
    "a length that lies": _framed(FLEXIBLE + b"\0\0\0\2" + HEAD + varint(HEADER_SIZE + 2) + _batch() + b"\0\0\0"),
    "null records": _framed(FLEXIBLE + b"\0\0\0\2" + HEAD + b"\0" + _batch() + b"\0\0\0"),
    "a negative size": pack_size(-1) + bytes(300),
    "no size": pack_size(0) + bytes(300),
}


@pytest.mark.parametrize("what", OTHERS)
def test_one_that_differs_ends_them_and_is_not_taken(way: Way, what: str) -> None:
    first, behind = _request(1, _batch()), _request(3, _batch())
    assert _cut(way, first + OTHERS[what] + behind) == ([_batch()], [b"\0\0\0\1"], len(first), False)
    assert _cut(way, OTHERS[what] + behind) == ([], [], 0, False)


def test_an_old_length_that_lies_ends_them(way: Way) -> None:
    for length in (HEADER_SIZE - 1, HEADER_SIZE + 1, -1):
        data = _framed(OLD + b"\0\0\0\2" + HEAD + pack_size(length) + _batch())
        assert _cut(way, data, opening=OLD) == ([], [], 0, False)


def test_both_ways_cut_alike_whatever_the_bytes(compiled_kernel: ModuleType) -> None:
    outcomes = {True: 0, False: 0}
    for seed in range(SEEDS):
        random = Random(seed)
        opening = random.choice((FLEXIBLE, OLD))
        batches = [_batch(HEADER_SIZE + random.choice((0, 3, 66, 300, 17_000))) for _ in range(random.randint(1, 4))]
        good = b"".join(_request(at, each, opening=opening) for at, each in enumerate(batches))
        for _ in range(MUTATIONS):
            harmed = bytearray(good)
            start = random.randrange(len(good))
            # Near the lengths, mostly: there is little else to go wrong.
            at = random.choice((random.randrange(48), random.randrange(len(good)), len(good) - 1 - random.randrange(4)))
            harmed[at] ^= 1 << random.randrange(8)
            found = _cut(COMPILED, bytes(harmed), opening=opening)
            assert found == _cut(PLAIN, bytes(harmed), opening=opening), f"seed {seed}"
            assert _cut(COMPILED, good, start, opening=opening) == _cut(PLAIN, good, start, opening=opening)
            outcomes[bool(found[0])] += 1
    # Both occur often, so both were compared.
    assert min(outcomes.values()) > SEEDS


def test_each_is_told_where_its_batch_stands(way: Way) -> None:
    numbers = [b"\0\0\0\7", b"\xff\xff\xff\xff"]
    batches = [batch(b"1", b"2", b"3"), batch(b"4")]
    data = b"".join(_request(int.from_bytes(number), each) for number, each in zip(numbers, batches, strict=True))
    run = way.cut_alike(data, 0, FLEXIBLE, HEAD, size_max=SIZE_MAX).run
    place(run, first_offset=2**40)
    run.log_start_offset = 2**33
    found = way.answer_alike(b"size", numbers, b"before", run, b"after")
    assert found == b"".join(
        b"size" + number + b"before" + pack_offsets(offset, NO_TIMESTAMP, 2**33) + b"after"
        for number, offset in zip(numbers, (2**40, 2**40 + 3), strict=True)
    )
    with pytest.raises(ValueError, match=r"as many|argument 2"):
        way.answer_alike(b"size", numbers[:1], b"before", run, b"after")


def test_the_kernel_does_not_leave_its_memory(compiled_kernel: ModuleType) -> None:
    data = _request(1, _batch())
    for start in (-1, -len(data)):
        with pytest.raises(ValueError, match="before the beginning"):
            compiled_kernel.cut_alike(data, start, FLEXIBLE, HEAD, SIZE_MAX)
    with pytest.raises(ValueError, match="four bytes"):
        compiled_kernel.cut_alike(data, 0, b"\0", HEAD, SIZE_MAX)
    with pytest.raises(ValueError, match="four bytes"):
        compiled_kernel.answer_alike(b"", [b"12345"], b"", run_of([_batch()]), b"")
    assert _cut(COMPILED, data, 2 * len(data)) == ([], [], 2 * len(data), True)

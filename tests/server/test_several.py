"""Requests for several partitions are cut out of what came, and answered; the kernel and the plain way do the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import ModuleType

import pytest

from ottla.protocol.wire import varint
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP
from ottla.server.alike import pack_size
from ottla.server.several import Spreading, SpreadRequests, cut_spread, cut_spread_plain, pack_told
from tests.records.samples import place
from tests.storage.workbench import batch

OPENING = b"\0\0\0\x0d"
HEAD = b"\0\5bench\0" + bytes(range(20))
SIZE_MAX, ALL = 3 << 20, 1 << 30
SEEDS, MUTATIONS = 60, 60

Data = bytes | memoryview


@dataclass(frozen=True)
class Way:
    """One of the two ways to do the same work."""

    cut_spread: Callable[..., SpreadRequests]


PLAIN, COMPILED = Way(cut_spread_plain), Way(cut_spread)


@pytest.fixture
def way(is_compiled: bool) -> Way:
    """Plain Python first, then the compiled kernel."""
    return COMPILED if is_compiled else PLAIN


def _batch(size: int = HEADER_SIZE) -> bytes:
    return bytes(each % 251 for each in range(size))


def _entries(*entries: tuple[int, bytes]) -> bytes:
    body = b"".join(index.to_bytes(4, signed=True) + varint(len(data) + 1) + data + b"\0" for index, data in entries)
    return varint(len(entries) + 1) + body + b"\0\0"


def _framed(number: int, entries: bytes, *, opening: bytes = OPENING, head: bytes = HEAD) -> bytes:
    body = opening + number.to_bytes(4) + head + entries
    return pack_size(len(body)) + body


def _cut(
    way: Way, data: Data, start: int = 0, *, size_max: int = SIZE_MAX, count_max: int = ALL
) -> tuple[list[Spreading], dict[int, list[bytes]], int]:
    cut = way.cut_spread(data, start, OPENING, HEAD, size_max=size_max, count_max=count_max)
    together = {index: [bytes(each) for each in run.batches] for index, run in cut.runs.items()}
    assert (len(cut), cut.batch_count) == (len(cut.requests), sum(map(len, together.values())))
    return cut.requests, together, cut.position


NOTHING: tuple[list[Spreading], dict[int, list[bytes]], int] = ([], {}, 0)


@pytest.mark.parametrize("kind", [bytes, memoryview])
@pytest.mark.parametrize("count", [1, 6, 126, 127, 300])
def test_each_partition_has_its_batch(way: Way, kind: Callable[[bytes], Data], count: int) -> None:
    entries = [(index * 3 - 1, _batch(HEADER_SIZE + index * index)) for index in range(count)]
    data = _framed(7, _entries(*entries))
    requests, together, position = _cut(way, kind(b"before" + data + b"behind"), 6, size_max=16 << 20)
    assert requests == [(b"\0\0\0\7", [(index, 0) for index, _ in entries])]
    assert together == {index: [batch] for index, batch in entries}
    assert position == 6 + len(data)


def test_what_came_for_a_partition_is_together(way: Way) -> None:
    first, second, third = _batch(), _batch(70), _batch(80)
    data = _framed(1, _entries((4, first), (2, second))) + _framed(2, _entries((2, third), (2, first), (0, second)))
    requests, together, position = _cut(way, data + data[:20])
    assert requests == [(b"\0\0\0\1", [(4, 0), (2, 0)]), (b"\0\0\0\2", [(2, 1), (2, 2), (0, 0)])]
    assert together == {4: [first], 2: [second, third, first], 0: [second]}
    assert position == len(data)


def test_no_more_are_taken_than_are_asked_for(way: Way) -> None:
    one = _framed(1, _entries((4, _batch())))
    requests, together, position = _cut(way, one * 3, count_max=2)
    assert (len(requests), len(together[4]), position) == (2, 2, 2 * len(one))


OTHERS = {
    "another version": _framed(2, _entries((0, _batch())), opening=b"\0\0\0\x0c"),
    "another head": _framed(2, _entries((0, _batch())), head=HEAD[:-1] + b"x"),
    "a shorter head": pack_size(12) + OPENING + b"\0\0\0\2" + HEAD[:4] + bytes(100),
    "tagged fields": _framed(2, _entries((0, _batch()))[:-1] + b"\1"),
    "no partitions": _framed(2, _entries()),
    "less than a batch": _framed(2, _entries((0, _batch(HEADER_SIZE - 1)), (1, _batch()))),
    "a length of four bytes": _framed(2, _entries((0, _batch(1 << 21)))),
    "a negative size": pack_size(-1) + bytes(200),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_request_ends_them(way: Way, what: str) -> None:
    first, behind = _framed(1, _entries((0, _batch()))), _framed(3, _entries((0, _batch())))
    expected = [(b"\0\0\0\1", [(0, 0)])], {0: [_batch()]}, len(first)
    assert _cut(way, first + OTHERS[what] + behind) == expected
    assert _cut(way, OTHERS[what] + behind) == NOTHING


def test_one_that_is_not_whole_or_too_large_ends_them(way: Way) -> None:
    data = _framed(1, _entries((0, _batch()), (1, _batch(200))))
    for end in range(len(data)):
        assert _cut(way, data[:end]) == NOTHING
    assert _cut(way, data, size_max=len(data) - 5) == NOTHING
    assert _cut(way, data, size_max=len(data) - 4) != NOTHING


def test_entries_that_are_not_plainly_that_are_none(way: Way) -> None:
    good = _entries((0, _batch()), (1, _batch(200)))
    harmed = [good[:end] for end in range(len(good))]
    harmed += [good + b"\0", b"\2" + good[1:], b"\4" + good[1:]]
    harmed += [good[:place] + b"\1" + good[len(good) + place + 1 :] for place in (-1, -2, -3)]
    for entries in harmed:
        assert _cut(way, _framed(1, entries)) == NOTHING


def test_both_ways_cut_alike_whatever_the_bytes(compiled_kernel: ModuleType) -> None:
    outcomes = {True: 0, False: 0}
    for seed in range(SEEDS):
        random = Random(seed)
        good = b""
        for number in range(random.randint(1, 4)):
            sizes = [random.choice((0, 3, 66, 300, 17_000)) for _ in range(random.randint(1, 4))]
            good += _framed(number, _entries(*((random.randrange(4), _batch(HEADER_SIZE + size)) for size in sizes)))
        for _ in range(MUTATIONS):
            harmed = bytearray(good)
            start = random.randrange(len(good))
            # Near the lengths, mostly: there is little else to go wrong.
            at = random.choice((random.randrange(48), random.randrange(len(good)), len(good) - 1 - random.randrange(4)))
            harmed[at] ^= 1 << random.randrange(8)
            found = _cut(COMPILED, bytes(harmed))
            assert found == _cut(PLAIN, bytes(harmed)), f"seed {seed}"
            assert _cut(COMPILED, good, start) == _cut(PLAIN, good, start), f"seed {seed}"
            outcomes[bool(found[0])] += 1
    # Both occur often, so both were compared.
    assert min(outcomes.values()) > SEEDS


@pytest.mark.parametrize("count", [1, 126, 127, 16_382, 16_383])
def test_each_is_told_where_its_batches_stand(way: Way, count: int) -> None:
    two, one = batch(b"1", b"2"), batch(b"3")
    data = _framed(7, _entries((2, two), (-1, one))) + _framed(2**32 - 1, _entries(*[(2, one)] * count))
    cut = way.cut_spread(data, 0, OPENING, HEAD, size_max=SIZE_MAX, count_max=ALL)
    for index, first_offset, start in ((2, 2**40, 2**33), (-1, 0, 0)):
        place(cut.runs[index], first_offset=first_offset)
        cut.runs[index].log_start_offset = start
    bodies = [
        b"\0\0\0\7before\3"
        + pack_told(2, 0, 2**40, NO_TIMESTAMP, 2**33)
        + b"behind"
        + pack_told(-1, 0, 0, NO_TIMESTAMP, 0)
        + b"behindend",
        b"\xff\xff\xff\xffbefore"
        + varint(count + 1)
        + b"".join(pack_told(2, 0, 2**40 + 2 + at, NO_TIMESTAMP, 2**33) + b"behind" for at in range(count))
        + b"end",
    ]
    found = cut.answer(b"before", b"behind", b"end")
    assert found == b"".join(pack_size(len(body)) + body for body in bodies)


def test_the_kernel_does_not_leave_its_memory(compiled_kernel: ModuleType) -> None:
    data = _framed(1, _entries((0, _batch())))
    for start in (-1, -len(data)):
        with pytest.raises(ValueError, match="before the beginning"):
            compiled_kernel.cut_spread(data, start, OPENING, HEAD, SIZE_MAX, ALL)
    with pytest.raises(ValueError, match="four bytes"):
        compiled_kernel.cut_spread(data, 0, b"\0", HEAD, SIZE_MAX, ALL)
    assert _cut(COMPILED, data, 2 * len(data)) == ([], {}, 2 * len(data))


def test_the_kernel_keeps_the_runs_that_it_answers_for(compiled_kernel: ModuleType) -> None:
    data = _framed(1, _entries((0, batch(b"1")), (1, batch(b"2"))))
    cut = compiled_kernel.cut_spread(data, 0, OPENING, HEAD, SIZE_MAX, ALL)
    for index in (0, 1):
        place(cut.runs[index], first_offset=5)
    answered = cut.answer(b"before", b"behind", b"end")
    cut.runs.clear()
    assert cut.answer(b"before", b"behind", b"end") == answered

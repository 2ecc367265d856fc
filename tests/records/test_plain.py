"""Plain batches become one run: what it is made of, what is left to be looked at, and both ways to plan it alike."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, PREFIX_SIZE, Buffer, check, prefix, seal
from ottla.records.builder import build_batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from ottla.records.plain import JOINED_BYTES_MAX, Limits, Run, Tail
from tests.records.samples import NOW_MS, PLAIN, Implementation, raw_batch, raw_record

FIRST, EPOCH = 2**40 + 5, 7
LIMITS = Limits(oldest_ms=NOW_MS - 1_000, newest_ms=NOW_MS + 1_000, batch_bytes_max=1 << 20)
TAIL = Tail(
    base_offset=FIRST - 100,
    position=5_000,
    indexed_at=4_000,
    interval_bytes=4_096,
    max_timestamp_ms=NOW_MS - 500,
    max_timestamp_offset=FIRST - 3,
    timed_ms=NOW_MS - 600,
)
PLAIN_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
SEEDS, MUTATIONS = 200, 40

Kind = Callable[[bytes], Buffer]


def _batch(*values: bytes, timestamp_ms: int = NOW_MS, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytes:
    records = [(b"k", value, timestamp_ms, ()) for value in values]
    return bytes(build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=0))


def _plan(implementation: Implementation, *batches: Buffer, limits: Limits = LIMITS, tail: Tail = TAIL) -> Run | None:
    run: Run | None = implementation.plan_run(list(batches), limits, tail, first_offset=FIRST, leader_epoch=EPOCH)
    return run


def _written(run: Run | None) -> bytes:
    assert run is not None
    return b"".join(run.parts)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [10, 3 * JOINED_BYTES_MAX])
def test_each_batch_gets_its_place_and_is_otherwise_as_it_came(
    implementation: Implementation, kind: Kind, size: int
) -> None:
    batches = [_batch(b"x" * size), _batch(b"a", b"y" * size, b"b", timestamp_ms=NOW_MS + 9), _batch(b"z" * size)]
    run = _plan(implementation, *map(kind, batches))
    assert run is not None
    assert (run.offsets, run.end_offset) == ([FIRST, FIRST + 1, FIRST + 4], FIRST + 5)
    assert (run.first_ms, run.last_at) == (NOW_MS, TAIL.position + len(batches[0]) + len(batches[1]))
    assert (run.max_timestamp_ms, run.max_timestamp_offset) == (NOW_MS + 9, FIRST + 3)
    assert (run.size, run.newest_ms, run.has_producer) == (sum(map(len, batches)), NOW_MS + 9, False)
    expected = [
        prefix(offset, len(batch) - LOG_OVERHEAD, EPOCH) + batch[PREFIX_SIZE:]
        for offset, batch in zip(run.offsets, batches, strict=True)
    ]
    assert _written(run) == b"".join(expected)
    assert check(_written(run)).leader_epoch == EPOCH


def test_small_batches_are_copied_together_and_large_ones_are_not(implementation: Implementation) -> None:
    small, large = _plan(implementation, _batch(b"s"), _batch(b"s")), _plan(implementation, _batch(b"l" * 9_000))
    assert small is not None
    assert large is not None
    assert (len(small.parts), len(large.parts)) == (1, 2)


def test_a_batch_that_can_be_written_to_is_written_from_where_it_is(kernel_implementation: Implementation) -> None:
    """The receive buffer is ours; only what no checksum covers is changed in it."""
    came = _batch(b"l" * 9_000)
    room = bytearray(came)
    run = _plan(kernel_implementation, memoryview(room))
    assert run is not None
    assert len(run.parts) == 1
    assert _written(run) == room
    assert room[PREFIX_SIZE:] == came[PREFIX_SIZE:]
    assert check(room).base_offset == FIRST


def test_an_entry_is_made_where_the_last_one_is_far_enough_away(implementation: Implementation) -> None:
    near, large, late = _batch(b"n"), _batch(b"l" * 5_000), _batch(b"l" * 5_000, timestamp_ms=NOW_MS + 5)
    run = _plan(implementation, near, large, near, late, large)
    assert run is not None
    ends = [TAIL.position + sum(map(len, (near, large, near, late, large)[:count])) for count in range(5)]
    assert run.entry_positions == [ends[2], ends[4]]
    assert run.entry_offsets == [102, 104]
    # The greatest so far: of the first batch, and then of the fourth.
    assert run.times == [(NOW_MS, 100), (NOW_MS + 5, 103)]
    assert run.indexed_at == ends[4]


def test_a_run_within_the_interval_has_no_entries(implementation: Implementation) -> None:
    run = _plan(implementation, _batch(b"n"), _batch(b"n"))
    assert run is not None
    assert (run.entry_positions, run.entry_offsets, run.times, run.indexed_at) == ([], [], [], TAIL.indexed_at)


def test_old_records_leave_the_greatest_timestamp_as_it_is(implementation: Implementation) -> None:
    run = _plan(
        implementation, _batch(b"l" * 5_000, timestamp_ms=NOW_MS - 700), _batch(b"n", timestamp_ms=NOW_MS - 700)
    )
    assert run is not None
    assert (run.max_timestamp_ms, run.max_timestamp_offset) == (TAIL.max_timestamp_ms, TAIL.max_timestamp_offset)
    assert run.newest_ms == NOW_MS - 700
    assert run.times == [(TAIL.max_timestamp_ms, TAIL.max_timestamp_offset - TAIL.base_offset)]


@pytest.mark.parametrize("codec", PLAIN_CODECS)
def test_codecs_that_every_version_knows_are_plain(implementation: Implementation, codec: Codec) -> None:
    assert check(_written(_plan(implementation, _batch(b"v" * 100, codec=codec)))).codec == codec


def test_it_is_said_when_any_has_a_producer(implementation: Implementation) -> None:
    run = _plan(implementation, _batch(b"1"), _batch(b"2", producer_id=0))
    assert run is not None
    assert run.has_producer


NOT_PLAIN: dict[str, bytes] = {
    "nothing": b"",
    "less than a header": _batch(b"v")[: HEADER_SIZE - 1],
    "cut off": _batch(b"v")[:-1],
    "more than a batch": _batch(b"v") + b"\0",
    "two batches in one": _batch(b"v") + _batch(b"w"),
    "another magic": raw_batch(raw_record(), magic=1),
    "zstd, which old versions do not know": _batch(b"v" * 100, codec=Codec.ZSTD),
    "stamped by a broker": raw_batch(raw_record(), attributes=0x08),
    "a transaction's": raw_batch(raw_record(), attributes=0x10),
    "a marker": raw_batch(raw_record(), attributes=0x20),
    "unknown bits": raw_batch(raw_record(), attributes=-0x8000),
    "no records": raw_batch(b"", count=0),
    "a negative count": raw_batch(raw_record(), count=-1),
    "a negative last offset": raw_batch(raw_record(), last_offset_delta=-1, count=0),
    "more offsets than records": raw_batch(raw_record(), last_offset_delta=1),
    "the greatest last offset": raw_batch(raw_record(), last_offset_delta=2**31 - 1, count=-(2**31)),
    "more records than there is room for": raw_batch(raw_record(), count=1_000, last_offset_delta=999),
    "more records than could be unpacked": raw_batch(
        raw_record(), count=DECOMPRESSED_BYTES_MAX, last_offset_delta=DECOMPRESSED_BYTES_MAX - 1, attributes=1
    ),
    "a record of yesterday": _batch(b"v", timestamp_ms=LIMITS.oldest_ms - 1),
    "a record of tomorrow": _batch(b"v", timestamp_ms=LIMITS.newest_ms + 1),
    "a wrong checksum": _batch(b"v")[:-1] + b"\xff",
    "too large": _batch(b"v" * (1 << 20)),
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_anything_else_is_left_to_be_looked_at(implementation: Implementation, what: str) -> None:
    assert _plan(implementation, NOT_PLAIN[what]) is None
    assert _plan(implementation, _batch(b"before"), NOT_PLAIN[what]) is None
    assert _plan(implementation, NOT_PLAIN[what], _batch(b"behind")) is None


def test_the_limits_belong_to_what_is_allowed(implementation: Implementation) -> None:
    batches = [_batch(b"v", timestamp_ms=LIMITS.oldest_ms), _batch(b"v", timestamp_ms=LIMITS.newest_ms)]
    exact = replace(LIMITS, batch_bytes_max=len(batches[0]))
    assert _plan(implementation, *batches, limits=exact) is not None
    assert _plan(implementation, *batches, limits=replace(exact, batch_bytes_max=len(batches[0]) - 1)) is None


def test_both_ways_plan_alike_whatever_the_bytes(kernel_implementation: Implementation) -> None:
    outcomes = {True: 0, False: 0}
    for seed in range(SEEDS):
        random = Random(seed)
        good = [
            _batch(
                *(random.randbytes(random.choice((0, 5, 300, 6_000))) for _ in range(random.randint(1, 4))),
                codec=random.choice(PLAIN_CODECS),
                timestamp_ms=NOW_MS + random.randint(-900, 900),
                producer_id=random.choice((-1, 3)),
            )
            for _ in range(random.randint(1, 5))
        ]
        for _ in range(MUTATIONS):
            batches: list[Buffer] = list(good)
            if random.random() < 0.8:
                at = random.randrange(len(good))
                harmed = bytearray(good[at])
                harmed[random.randrange(HEADER_SIZE)] ^= 1 << random.randrange(8)
                if random.random() < 0.7:
                    seal(harmed)
                batches[at] = harmed
            tail = replace(
                TAIL, interval_bytes=random.choice((0, 100, 4_096)), timed_ms=NOW_MS + random.randint(-900, 900)
            )
            expected = _plan(PLAIN, *batches, tail=tail)
            found = _plan(kernel_implementation, *batches, tail=tail)
            assert (found is None) == (expected is None), f"seed {seed}"
            if found is not None and expected is not None:
                assert _written(found) == _written(expected), f"seed {seed}"
                assert replace(found, parts=[]) == replace(expected, parts=[]), f"seed {seed}"
            outcomes[found is not None] += 1
    # Both occur often, so both were compared.
    assert min(outcomes.values()) > SEEDS

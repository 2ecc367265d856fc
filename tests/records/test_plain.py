"""Plain batches become one run: what it is made of, what is left to be looked at, and both ways to plan it alike."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random

import pytest

from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, PREFIX_SIZE, check, prefix, seal
from ottla.records.builder import build_batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from ottla.records.plain import JOINED_BYTES_MAX, Run
from ottla.records.reader import RECORD_BYTES_MIN
from tests.records.samples import NOW_MS, PLAIN, Implementation, place, raw_batch, raw_record, run_of

FIRST, EPOCH = 2**40 + 5, 7
OLDEST_MS, NEWEST_MS = NOW_MS - 1_000, NOW_MS + 1_000
BASE, POSITION, INDEXED_AT = FIRST - 100, 5_000, 4_000
MAX_TIMESTAMP_MS, MAX_TIMESTAMP_OFFSET, TIMED_MS = NOW_MS - 500, FIRST - 3, NOW_MS - 600
FACTS = (
    "offsets",
    "end_offset",
    "size",
    "newest_ms",
    "has_producer",
    "tail",
    "max_timestamp_ms",
    "max_timestamp_offset",
    "indexed_at",
)
"""All that a run says of itself, once its batches have their places."""
PLAIN_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
SEEDS, MUTATIONS = 200, 40

Kind = Callable[[bytes], bytes | memoryview]


def _writable(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def _batch(*values: bytes, timestamp_ms: int = NOW_MS, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytes:
    records = [(b"k", value, timestamp_ms, ()) for value in values]
    return bytes(build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=0))


def _place(
    implementation: Implementation,
    *batches: bytes,
    kind: Kind = bytes,
    batch_bytes_max: int = 1 << 20,
    interval_bytes: int = 4_096,
    timed_ms: int = TIMED_MS,
) -> Run | None:
    run = run_of(batches, make=implementation.run, kind=kind)
    is_placed = run.place(
        first_offset=FIRST,
        leader_epoch=EPOCH,
        oldest_ms=OLDEST_MS,
        newest_ms=NEWEST_MS,
        batch_bytes_max=batch_bytes_max,
        base_offset=BASE,
        position=POSITION,
        indexed_at=INDEXED_AT,
        interval_bytes=interval_bytes,
        max_timestamp_ms=MAX_TIMESTAMP_MS,
        max_timestamp_offset=MAX_TIMESTAMP_OFFSET,
        timed_ms=timed_ms,
    )
    assert len(run) == len(batches)
    return run if is_placed else None


def _written(run: Run | None) -> bytes:
    assert run is not None
    return b"".join(run.parts())


def _entries(run: Run) -> tuple[list[int], list[int]]:
    offsets, positions = run.entries()
    return array("I", offsets).tolist(), array("I", positions).tolist()


@pytest.mark.parametrize("kind", [bytes, memoryview, _writable])
@pytest.mark.parametrize("size", [10, 3 * JOINED_BYTES_MAX])
def test_each_batch_gets_its_place_and_is_otherwise_as_it_came(
    implementation: Implementation, kind: Kind, size: int
) -> None:
    batches = [_batch(b"x" * size), _batch(b"a", b"y" * size, b"b", timestamp_ms=NOW_MS + 9), _batch(b"z" * size)]
    run = _place(implementation, *batches, kind=kind)
    assert run is not None
    assert (run.offsets, run.end_offset) == ([FIRST, FIRST + 1, FIRST + 4], FIRST + 5)
    assert run.tail == (FIRST + 4, POSITION + len(batches[0]) + len(batches[1]))
    assert (run.max_timestamp_ms, run.max_timestamp_offset) == (NOW_MS + 9, FIRST + 3)
    assert (run.size, run.newest_ms, run.has_producer) == (sum(map(len, batches)), NOW_MS + 9, False)
    expected = [
        prefix(offset, len(batch) - LOG_OVERHEAD, EPOCH) + batch[PREFIX_SIZE:]
        for offset, batch in zip(run.offsets, batches, strict=True)
    ]
    assert _written(run) == b"".join(expected)
    assert check(_written(run)).leader_epoch == EPOCH


def test_small_batches_are_copied_together_and_large_ones_are_not(implementation: Implementation) -> None:
    small, large = _place(implementation, _batch(b"s"), _batch(b"s")), _place(implementation, _batch(b"l" * 9_000))
    assert small is not None
    assert large is not None
    assert (len(small.parts()), len(large.parts())) == (1, 2)


def test_a_batch_that_can_be_written_to_is_written_from_where_it_is(kernel_implementation: Implementation) -> None:
    """The receive buffer is ours; only what no checksum covers is changed in it."""
    came = _batch(b"l" * 9_000)
    run = _place(kernel_implementation, came, kind=_writable)
    assert run is not None
    assert len(run.parts()) == 1
    (room,) = run.batches
    assert _written(run) == room
    assert room[PREFIX_SIZE:] == came[PREFIX_SIZE:]
    assert check(room).base_offset == FIRST


def test_an_entry_is_made_where_the_last_one_is_far_enough_away(implementation: Implementation) -> None:
    near, large, late = _batch(b"n"), _batch(b"l" * 5_000), _batch(b"l" * 5_000, timestamp_ms=NOW_MS + 5)
    run = _place(implementation, near, large, near, late, large)
    assert run is not None
    ends = [POSITION + sum(map(len, (near, large, near, late, large)[:count])) for count in range(5)]
    assert _entries(run) == ([102, 104], [ends[2], ends[4]])
    # The greatest so far: of the first batch, and then of the fourth.
    assert list(run.times) == [(NOW_MS, 100), (NOW_MS + 5, 103)]
    assert run.indexed_at == ends[4]


def test_a_run_within_the_interval_has_no_entries(implementation: Implementation) -> None:
    run = _place(implementation, _batch(b"n"), _batch(b"n"))
    assert run is not None
    assert (_entries(run), run.times, run.indexed_at) == (([], []), (), INDEXED_AT)


def test_old_records_leave_the_greatest_timestamp_as_it_is(implementation: Implementation) -> None:
    run = _place(
        implementation, _batch(b"l" * 5_000, timestamp_ms=NOW_MS - 700), _batch(b"n", timestamp_ms=NOW_MS - 700)
    )
    assert run is not None
    assert (run.max_timestamp_ms, run.max_timestamp_offset) == (MAX_TIMESTAMP_MS, MAX_TIMESTAMP_OFFSET)
    assert run.newest_ms == NOW_MS - 700
    assert list(run.times) == [(MAX_TIMESTAMP_MS, MAX_TIMESTAMP_OFFSET - BASE)]


@pytest.mark.parametrize("codec", PLAIN_CODECS)
def test_codecs_that_every_version_knows_are_plain(implementation: Implementation, codec: Codec) -> None:
    assert check(_written(_place(implementation, _batch(b"v" * 100, codec=codec)))).codec == codec


def test_it_is_said_when_any_has_a_producer(implementation: Implementation) -> None:
    run = _place(implementation, _batch(b"1"), _batch(b"2", producer_id=0))
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
    "a record of yesterday": _batch(b"v", timestamp_ms=OLDEST_MS - 1),
    "a record of tomorrow": _batch(b"v", timestamp_ms=NEWEST_MS + 1),
    "a wrong checksum": _batch(b"v")[:-1] + b"\xff",
    "too large": _batch(b"v" * (1 << 20)),
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_anything_else_is_left_to_be_looked_at(implementation: Implementation, what: str) -> None:
    assert _place(implementation, NOT_PLAIN[what]) is None
    assert _place(implementation, _batch(b"before"), NOT_PLAIN[what]) is None
    assert _place(implementation, NOT_PLAIN[what], _batch(b"behind")) is None


def test_the_limits_belong_to_what_is_allowed(implementation: Implementation) -> None:
    batches = [_batch(b"v", timestamp_ms=OLDEST_MS), _batch(b"v", timestamp_ms=NEWEST_MS)]
    assert _place(implementation, *batches, batch_bytes_max=len(batches[0])) is not None
    assert _place(implementation, *batches, batch_bytes_max=len(batches[0]) - 1) is None


def test_as_many_records_as_could_be_unpacked_are_plain(implementation: Implementation) -> None:
    most = DECOMPRESSED_BYTES_MAX // RECORD_BYTES_MIN
    for count, is_plain in ((most, True), (most + 1, False)):
        packed = raw_batch(raw_record(), count=count, last_offset_delta=count - 1, attributes=1)
        assert (_place(implementation, packed) is not None) is is_plain


def test_batches_are_copied_together_up_to_a_size(implementation: Implementation) -> None:
    value = bytes(JOINED_BYTES_MAX - len(_batch(bytes(1_000))) + 1_000)
    assert len(_batch(value)) == JOINED_BYTES_MAX
    joined, apart = _place(implementation, _batch(value)), _place(implementation, _batch(value + b"."))
    assert joined is not None
    assert apart is not None
    assert (len(joined.parts()), len(apart.parts())) == (1, 2)


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
            batches = list(good)
            if random.random() < 0.8:
                at = random.randrange(len(good))
                harmed = bytearray(good[at])
                harmed[random.randrange(HEADER_SIZE)] ^= 1 << random.randrange(8)
                if random.random() < 0.7:
                    seal(harmed)
                batches[at] = bytes(harmed)
            interval_bytes, timed_ms = random.choice((0, 100, 4_096)), NOW_MS + random.randint(-900, 900)
            expected, found = (
                _place(each, *batches, interval_bytes=interval_bytes, timed_ms=timed_ms)
                for each in (PLAIN, kernel_implementation)
            )
            assert (found is None) == (expected is None), f"seed {seed}"
            if found is not None and expected is not None:
                assert _written(found) == _written(expected), f"seed {seed}"
                assert (found.entries(), [*found.times]) == (expected.entries(), [*expected.times]), f"seed {seed}"
                for fact in FACTS:
                    assert getattr(found, fact) == getattr(expected, fact), f"seed {seed}, {fact}"
            outcomes[found is not None] += 1
    # Both occur often, so both were compared.
    assert min(outcomes.values()) > SEEDS


def test_a_run_without_batches_has_no_last_one(implementation: Implementation) -> None:
    run = _place(implementation)
    assert run is not None
    assert (run.offsets, run.size, run.batches) == ([], 0, [])
    with pytest.raises(IndexError):
        _ = run.tail


def test_a_run_of_many_batches_keeps_all_of_them(implementation: Implementation) -> None:
    batches = [_batch(b"%d" % n) for n in range(1_000)]
    run = _place(implementation, *batches)
    assert run is not None
    assert [bytes(each) for each in run.batches] == batches
    assert run.offsets == list(range(FIRST, FIRST + 1_000))


def test_the_kernel_does_not_leave_its_memory(kernel_implementation: Implementation) -> None:
    batch = _batch(b"v")
    for at, size in ((0, len(batch) + 1), (1, len(batch)), (len(batch) + 1, 0), (2**62, 2**62)):
        run = kernel_implementation.run(batch)
        run.add(at, size=size)
        with pytest.raises(ValueError, match="behind what came"):
            run.parts()
    for at, size in ((-1, 5), (5, -1)):
        with pytest.raises(ValueError, match="before the beginning"):
            kernel_implementation.run(batch).add(at, size=size)


def test_the_kernel_writes_only_what_has_its_place(kernel_implementation: Implementation) -> None:
    unplaced = run_of([_batch(b"v")], make=kernel_implementation.run)
    refused = run_of([_batch(b"v"), b"no batch"], make=kernel_implementation.run)
    with pytest.raises(AssertionError):
        place(refused, first_offset=0)
    grown = run_of([_batch(b"v")], make=kernel_implementation.run)
    place(grown, first_offset=0)
    grown.add(0, size=1)
    for run in (unplaced, refused, grown):
        for use in (run.parts, run.entries, lambda run=run: run.tail):
            with pytest.raises(ValueError, match="no place yet"):
                use()

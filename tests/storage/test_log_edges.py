"""Where logs used to break: wide gaps, odd timestamps, jobs that cross each other, damage met half-way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ottla.errors import StorageFault
from ottla.records.batch import pack_header, peek, seal
from ottla.records.control import MarkerType
from ottla.storage.compaction import compact
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.runs import Appended
from tests.storage.workbench import NOW_MS, Workbench, batch, keyed, marker, records_of, removed, sequenced

FAR = 2**31 + 10


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(seed=3)


@pytest.fixture
def bench(disk: MemoryDisk) -> Workbench:
    return Workbench(disk, "/data/topic-0")


def placed(data: bytes, offset: int) -> bytes:
    """A batch as a leader with this offset would send it to a follower."""
    header = replace(peek(data), base_offset=offset, leader_epoch=0)
    return pack_header(header) + data[61:]


def boasting(count: int) -> bytes:
    """A batch that says it holds more records than it does."""
    data = bytearray(batch(b"x"))
    header = replace(peek(data), last_offset_delta=count - 1, record_count=count)
    data[:61] = pack_header(header)
    seal(data)
    return bytes(data)


# --- offsets far apart ---------------------------------------------------------------------------------


def test_a_batch_that_spans_two_thousand_million_offsets_costs_nobody_else_a_record(
    bench: Workbench, disk: MemoryDisk
) -> None:
    log = bench.open()
    log.append(batch(b"before"), leader_epoch=0)
    log.append(batch(b"again"), leader_epoch=0)
    log.append(boasting(2**31 - 1), leader_epoch=0)
    last = log.append(batch(b"after"), leader_epoch=0).last_offset
    log.sync()
    disk.crash()
    again = bench.open()
    assert again.end_offset == last + 1
    assert [found.header.base_offset for found in again.batches(offset=0)] == [0, 1, 2, last]


@pytest.mark.parametrize("first", [[], [0], [0, 1]])
@pytest.mark.parametrize("far", [FAR, 2**33])
def test_a_follower_survives_a_gap_wider_than_an_index_can_hold(
    bench: Workbench, disk: MemoryDisk, first: list[int], far: int
) -> None:
    log = bench.open()
    for offset in [*first, far, far + 1]:
        log.append_replicated(placed(batch(b"%d" % offset), offset))
    log.sync()
    disk.crash()
    again = bench.open()
    assert [record.offset for record in records_of(again)] == [*first, far, far + 1]
    assert again.end_offset == far + 2


# --- timestamps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp_ms", [-1, -2, -5, -(2**62)])
def test_a_negative_timestamp_does_not_slip_past_the_seal(
    bench: Workbench, disk: MemoryDisk, timestamp_ms: int
) -> None:
    log = bench.open()
    log.append(batch(b"a"), leader_epoch=0)
    log.close()
    log = bench.open()
    assert log.append(batch(b"b", timestamp_ms=timestamp_ms), leader_epoch=0) == Appended(1, 1)
    assert log.append(batch(b"c"), leader_epoch=0) == Appended(2, 2)
    log.sync()
    disk.crash()
    again = bench.open()
    assert [record.value for record in records_of(again)] == [b"a", b"b", b"c"]
    assert again.recovery.damage == []


def test_the_newest_record_is_none_of_those_that_were_deleted(bench: Workbench) -> None:
    log = bench.open()
    log.append(batch(timestamp_ms=90), leader_epoch=0)
    log.append(batch(timestamp_ms=10), leader_epoch=0)
    log.delete_records(1).run()
    assert log.newest() == (10, 1, 0)


# --- jobs that cross -------------------------------------------------------------------------------------


def keyed_log(bench: Workbench, **changes: object) -> Log:
    log = bench.open(
        segment_bytes=300, compact=True, min_cleanable_dirty_ratio=0.0, **{"retention_ms": 1_000, **changes}
    )
    for number in range(12):
        log.append(keyed([(b"k%d" % (number % 2), b"%d" % number)], timestamp_ms=NOW_MS), leader_epoch=0)
    log.sync()
    return log


def test_retention_waits_while_compacted_segments_are_put_in_place(bench: Workbench) -> None:
    log = keyed_log(bench)
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    swap = log.install_compaction(planned, compact(bench.disk, bench.directory, planned))
    assert swap is not None
    bench.clock.advance(10_000)
    assert log.apply_retention(below_offset=log.end_offset) is None
    log.delete_records(3).run()
    swap.run()
    log.complete_compaction(swap)
    assert records_of(log)[-1].value == b"11"
    assert removed(log, below_offset=log.end_offset) > 0
    assert records_of(log)[-1].value == b"11"


def test_segments_that_are_being_replaced_stay_readable_when_descriptors_are_let_go(bench: Workbench) -> None:
    log = keyed_log(bench, retention_ms=-1)
    before = [record.value for record in records_of(log)]
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    swap = log.install_compaction(planned, compact(bench.disk, bench.directory, planned))
    assert swap is not None
    swap.run()
    log.release()
    assert [record.value for record in records_of(log)] == before
    reading = log.slice(offset=0, bytes_max=1)
    assert reading is not None
    first = reading.read()
    log.complete_compaction(swap).run()
    assert len(records_of(log)) < len(before)
    assert reading.read() == first


def test_walking_over_batches_goes_on_where_segments_are_removed_behind(bench: Workbench) -> None:
    log = bench.open(segment_bytes=1)
    for number in range(6):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.sync()
    walk = log.batches(offset=0)
    assert next(walk).header.base_offset == 0
    log.delete_records(1).run()
    assert [found.header.base_offset for found in walk] == [1, 2, 3, 4, 5]


def test_a_compacted_file_of_the_wrong_size_is_not_swapped_in(bench: Workbench) -> None:
    log = keyed_log(bench, retention_ms=-1)
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    result = compact(bench.disk, bench.directory, planned)
    file = bench.disk.open(f"{bench.directory}/{0:020d}.log.cleaned")
    file.append([b"more"])
    file.close()
    swap = log.install_compaction(planned, result)
    assert swap is not None
    with pytest.raises(StorageFault, match="its seal says"):
        swap.run()
    assert len(records_of(bench.open(segment_bytes=300, compact=True))) == 12


# --- damage met half-way ----------------------------------------------------------------------------------


def test_an_empty_last_segment_is_used_again_when_an_earlier_one_was_damaged(
    bench: Workbench, disk: MemoryDisk
) -> None:
    log = bench.open(segment_bytes=200)
    for number in range(4):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.roll()
    log.close()
    bench.disk.remove(f"{bench.directory}/{0:020d}.seal")
    log = bench.open(segment_bytes=200)
    bases = [segment.base_offset for segment in log.segments]
    assert len(set(bases)) == len(bases)
    for number in range(4, 8):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.sync()
    disk.kill()
    assert [record.value for record in records_of(bench.open(segment_bytes=200))] == [b"%d" % n for n in range(8)]


def test_truncation_that_meets_damage_cuts_nothing(bench: Workbench) -> None:
    log = bench.open()
    for number in range(5):
        log.append(batch(b"%d" % number), leader_epoch=0)
    log.close()
    size = len(batch(b"0"))
    file = bench.disk.open(f"{bench.directory}/{0:020d}.log")
    rest = file.read(position=size, size=4 * size)
    file.truncate(size)
    file.append([b"\0" * 17, rest[17:]])
    file.sync()
    file.close()
    log = bench.open()
    with pytest.raises(StorageFault, match="damaged"):
        log.truncate_to(3)
    assert bench.disk.size(f"{bench.directory}/{0:020d}.log") == 5 * size
    assert log.end_offset == 5


@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_of_what_was_truncated_does_not_come_back(seed: int) -> None:
    disk = MemoryDisk(seed=seed)
    bench = Workbench(disk, "/data/topic-0")
    log = bench.open()
    for number in range(20):
        log.append(sequenced(7, number), leader_epoch=0)
    log.close()
    log = bench.open()
    log.truncate_to(10)
    for number in range(20):
        log.append(batch(b"%d" % number), leader_epoch=1)
    log.sync()
    disk.crash()
    log = bench.open()
    log.truncate_to(25)
    assert not log.append(sequenced(7, 10), leader_epoch=1).repeated


def test_segments_that_outlive_a_truncation_keep_their_snapshots(bench: Workbench, disk: MemoryDisk) -> None:
    log = bench.open(segment_bytes=250)
    for number in range(12):
        log.append(sequenced(7, number), leader_epoch=0)
    log.truncate_to(10)
    log.sync()
    first = log.segments[1].base_offset
    log.delete_records(first).run()
    disk.crash()
    again = bench.open(segment_bytes=250)
    entry = again.producers.entry(7)
    assert entry is not None
    assert entry.last_sequence == 9
    assert len(entry.batches) == 5


def test_one_rotten_header_in_a_sealed_segment_does_not_keep_the_log_from_opening(bench: Workbench) -> None:
    log = bench.open(segment_bytes=250)
    for number in range(9):
        log.append(sequenced(7, number, transactional=True), leader_epoch=0)
    log.append(marker(7, MarkerType.COMMIT), leader_epoch=0)
    log.close()
    name = f"{bench.directory}/{log.segments[1].base_offset:020d}.log"
    file = bench.disk.open(name)
    data = bytearray(file.read(position=0, size=file.size))
    data[16] = 1
    file.truncate(0)
    file.append([bytes(data)])
    file.close()
    for name in bench.names(".snapshot"):
        bench.disk.remove(f"{bench.directory}/{name}")
    bench.disk.remove(f"{bench.directory}/leader-epoch-checkpoint")
    again = bench.open(segment_bytes=250)
    assert again.end_offset == 10
    assert again.recovery.damage

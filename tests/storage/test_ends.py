"""Runs on a real file: the kernel writes them itself where it can, and then the file is what it is without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from ottla.errors import DiskFull, StorageFault
from ottla.storage.disk import OsDisk
from ottla.storage.ends import LOOK_FIRST
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.scan import build_indexes
from tests.records.samples import run_of
from tests.storage.test_disk_os import file_size_limit
from tests.storage.workbench import NOW_MS, Workbench, batch

KINDS = [bytes, lambda data: memoryview(bytearray(data))]
SETTINGS: dict[str, object] = {"index_interval_bytes": 0, "segment_bytes": 1 << 28}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(OsDisk(), str(tmp_path / "topic-0"))


def _opened(bench: Workbench) -> Log:
    """A log whose next batch needs no closer look."""
    log = bench.open(**SETTINGS)
    for _ in range(3):
        log.append(batch(b"before"), leader_epoch=0)
    return log


def _append(log: Log, batches: Sequence[bytes], kind: object = KINDS[1]) -> bool:
    run = run_of(batches, kind=kind)  # type: ignore[arg-type]
    return log.append_run(run, leader_epoch=0, oldest_ms=0, newest_ms=2 * NOW_MS, batch_bytes_max=1 << 24)


@pytest.mark.parametrize("kind", KINDS, ids=["bytes", "memoryview"])
@pytest.mark.parametrize(("count", "size"), [(1, 10), (70, 10), (1, 20_000), (3, 20_000), (64, 6_000), (65, 6_000)])
def test_the_file_holds_what_one_batch_after_the_other_leaves(
    bench: Workbench, kind: object, count: int, size: int
) -> None:
    together, singly = _opened(bench), _opened(Workbench(MemoryDisk(seed=1), "/data/topic-0"))
    batches = [batch(bytes([number]) * size, timestamp_ms=NOW_MS + number) for number in range(count)]
    for _ in range(2):
        assert _append(together, batches, kind)
        for data in batches:
            singly.append(data, leader_epoch=0)
    ours, expected = together.segments[-1], singly.segments[-1]
    assert ours.file.size == ours.size == os.path.getsize(ours.file.path)
    assert ours.file.read(position=0, size=ours.size) == expected.file.read(position=0, size=expected.size)
    assert [data for _, data in ours.index_files()] == [data for _, data in expected.index_files()]


def test_entries_that_wait_are_there_for_whoever_looks(bench: Workbench) -> None:
    log, chance = _opened(bench), Random(7)
    for number in range(60):
        batches = [
            batch(b"v" * chance.randint(1, 90), timestamp_ms=NOW_MS + number) for _ in range(chance.randint(1, 9))
        ]
        assert _append(log, batches)
        if chance.random() < 0.3:
            segment = log.segments[-1]
            offset = chance.randrange(log.end_offset)
            header = segment.header_at(segment.position_of(offset))
            assert header.base_offset <= offset <= header.last_offset
        if chance.random() < 0.3:
            log.append(batch(b"single", timestamp_ms=NOW_MS + number), leader_epoch=0)
    segment = log.segments[-1]
    anew = build_indexes(segment.file, base_offset=0, interval_bytes=0)
    segment.finish()
    assert segment.indexes.count == segment.indexes.offsets.count == anew.count > 200
    assert segment.indexes.offsets.to_bytes() == anew.offsets.to_bytes()
    assert segment.indexes.times.to_bytes() == anew.times.to_bytes()


@pytest.mark.parametrize("size", [10, 30_000])
def test_a_run_that_has_no_room_leaves_nothing_and_the_log_goes_on(bench: Workbench, size: int) -> None:
    log, batches = _opened(bench), [batch(b"v" * size) for _ in range(4)]
    before = log.segments[-1].size
    # Room for half of it, so that the system takes a part first.
    with file_size_limit(before + sum(map(len, batches)) // 2), pytest.raises(DiskFull):
        _append(log, batches)
    assert (log.end_offset, log.segments[-1].size, log.segments[-1].file.size) == (3, before, before)
    assert os.path.getsize(log.segments[-1].file.path) == before
    assert _append(log, batches)
    log.close()
    assert bench.open(**SETTINGS).end_offset == 7


def test_a_file_that_is_closed_takes_no_run(bench: Workbench) -> None:
    log = _opened(bench)
    log.segments[-1].file.close()
    with pytest.raises(StorageFault, match="append"):
        _append(log, [batch(b"a"), batch(b"b")])


def test_a_timestamp_as_small_as_any_is_looked_at_where_every_batch_is() -> None:
    bench = Workbench(MemoryDisk(seed=1), "/data/topic-0")
    log = _opened(bench)
    log.close()
    log = bench.open(**SETTINGS)
    assert log.segments[-1].seal is not None
    log.append(batch(b"old", timestamp_ms=LOOK_FIRST), leader_epoch=0)
    assert log.segments[-1].seal is None


@pytest.mark.slow
def test_plain_python_does_the_same() -> None:
    tests = ["test_ends.py", "test_runs.py", "test_leaves.py"]
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *(str(here / name) for name in tests)]
    done = subprocess.run(
        command, env=os.environ | {"OTTLA_KERNEL": "off"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert " passed" in done.stdout

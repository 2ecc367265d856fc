"""Every small file of a log deleted, cut at every length and flipped in every byte: the log answers as before.

And the log file itself: its unsealed end cut and flipped at every byte leaves the longest good prefix, and a second
opening changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.records.batch import walk
from ottla.records.control import MarkerType
from ottla.storage.disk import Disk, File, OsDisk
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.segment import LOOKUP_BYTES
from tests.storage.workbench import NOW_MS, Workbench, batch, marker, sequenced

DIRECTORY = "/data/topic-0"
SETTINGS = {"segment_bytes": 330, "index_interval_bytes": 100}
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
SMALL_FILES = (*INDEX_SUFFIXES, ".snapshot", ".seal", "leader-epoch-checkpoint", "log-start-offset", "log-format")
LOG_START = 2

Files = dict[str, bytes]
Change = Callable[[bytes], bytes | None]


# --- a log, and what it answers ----------------------------------------------------------------------


def _fill(log: Log) -> None:
    for number in range(4):
        log.append(batch(b"%d" % number, b"x", timestamp_ms=NOW_MS + 10 * (number ^ 1)), leader_epoch=0)
    log.append(sequenced(1, 0, transactional=True), leader_epoch=1)
    log.append(sequenced(2, 0, count=2, transactional=True), leader_epoch=1)
    log.append(marker(1, MarkerType.ABORT), leader_epoch=1)
    log.append(sequenced(3, 0, count=2), leader_epoch=1)
    log.append(marker(2, MarkerType.ABORT), leader_epoch=1)
    log.append(sequenced(3, 2), leader_epoch=3)
    log.append(batch(b"late", timestamp_ms=NOW_MS + 70), leader_epoch=3)
    log.append(batch(b"last", timestamp_ms=NOW_MS + 60), leader_epoch=3)


def _answers(log: Log, *, from_offset: int = LOG_START) -> dict[str, Any]:
    """Everything that can be asked of a log from an offset on."""
    offsets = range(from_offset, log.end_offset + 1)
    whole = [bytes(found.data) for found in log.batches(offset=from_offset)]
    return {
        "end": log.end_offset,
        "reads": [log.read(offset=offset, bytes_max=1) for offset in offsets],
        "batches": whole,
        "times": [log.offset_for_timestamp(NOW_MS + after_ms) for after_ms in range(20, 75)],
        "newest": log.newest(),
        "aborted": [log.aborted_transactions(offset=first, end_offset=log.end_offset) for first in offsets],
        "producers": {entry.producer_id: entry for entry in log.producers.entries},
    }


@cache
def _closed() -> tuple[Files, dict[str, Any]]:
    """The files of a log that was closed, and its answers."""
    bench = Workbench(MemoryDisk(), DIRECTORY)
    log = bench.open(**SETTINGS)
    _fill(log)
    log.sync()
    log.delete_records(LOG_START).run()
    answers = _answers(log)
    log.close()
    assert len(log.segments) >= 3
    return bench.disk.files(), answers  # type: ignore[attr-defined]


def _restored(files: Files) -> Workbench:
    """A disk that holds these files."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    for path, content in files.items():
        disk.open(path, create=True).append([content])
    return Workbench(disk, DIRECTORY)


def _files(bench: Workbench) -> Files:
    assert isinstance(bench.disk, MemoryDisk)
    return bench.disk.files()


def _reopened(files: Files) -> tuple[Workbench, Log]:
    bench = _restored(files)
    return bench, bench.open(**SETTINGS)


def _damaged(suffix: str, changes: Callable[[bytes], Iterator[bytes | None]]) -> Iterator[tuple[str, Files]]:
    """The closed log with one of its files changed, in every way, one after the other."""
    files, _ = _closed()
    for path in (path for path in files if path.endswith(suffix)):
        for number, content in enumerate(changes(files[path])):
            others = {name: data for name, data in files.items() if name != path}
            yield f"{path}, change {number}", others if content is None else {**others, path: content}


def _deletion(content: bytes) -> Iterator[None]:
    yield None


def _every_length(content: bytes) -> Iterator[bytes]:
    return (content[:size] for size in range(len(content)))


def _every_flip(content: bytes) -> Iterator[bytes]:
    """The lowest bit: a digit stays one, so that nothing but a checksum can tell."""
    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 1
        yield bytes(flipped)


# --- small files -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_deletion, _every_length, _every_flip])
@pytest.mark.parametrize("suffix", SMALL_FILES)
def test_a_damaged_small_file_changes_no_answer(suffix: str, damage: Callable[[bytes], Iterator[bytes | None]]) -> None:
    _, answers = _closed()
    count = 0
    for name, files in _damaged(suffix, damage):
        _, log = _reopened(files)
        assert _answers(log) == answers, name
        count += 1
    assert count


@pytest.mark.parametrize("damage", [_deletion, _every_length, _every_flip])
@pytest.mark.parametrize("suffix", INDEX_SUFFIXES)
def test_a_damaged_index_is_built_anew_on_disk(suffix: str, damage: Callable[[bytes], Iterator[bytes | None]]) -> None:
    good, _ = _closed()
    for name, files in _damaged(suffix, damage):
        bench, log = _reopened(files)
        _answers(log)
        log.close()
        assert _files(bench) == good, name


def test_the_log_files_alone_are_enough() -> None:
    files, answers = _closed()
    _, log = _reopened({path: data for path, data in files.items() if path.endswith(".log")})
    log.delete_records(LOG_START).run()
    assert _answers(log) == answers


def test_a_lost_log_start_brings_deleted_records_back_but_loses_none() -> None:
    files, answers = _closed()
    _, log = _reopened({path: data for path, data in files.items() if not path.endswith("log-start-offset")})
    assert log.log_start_offset == 0
    assert _answers(log)["batches"] == answers["batches"]


def test_a_damaged_log_start_is_reported() -> None:
    path = f"{DIRECTORY}/log-start-offset"
    for _, files in _damaged("log-start-offset", _every_flip):
        _, log = _reopened(files)
        assert [sentence for sentence in log.recovery.damage if sentence.startswith(path)], files[path]


def test_a_damaged_seal_is_reported() -> None:
    # Without its last line end a seal is still whole.
    for name, files in _damaged(".seal", lambda content: _every_length(content[:-1])):
        _, log = _reopened(files)
        assert len(log.recovery.damage) == 1, name
        assert log.recovery.damage[0].startswith(name.partition(",")[0])


def test_lost_leader_epochs_are_read_from_the_log() -> None:
    files, _ = _closed()
    good = files[f"{DIRECTORY}/leader-epoch-checkpoint"]
    bench, _ = _reopened({path: data for path, data in files.items() if not path.endswith("checkpoint")})
    assert _files(bench)[f"{DIRECTORY}/leader-epoch-checkpoint"] == good


def test_leader_epochs_that_were_cut_short_are_read_from_the_log() -> None:
    files, _ = _closed()
    good = files[f"{DIRECTORY}/leader-epoch-checkpoint"]
    for name, damaged in _damaged("leader-epoch-checkpoint", _every_length):
        bench, _ = _reopened(damaged)
        assert _files(bench)[f"{DIRECTORY}/leader-epoch-checkpoint"] == good, name


def test_no_index_outlives_its_segment() -> None:
    bench = Workbench(MemoryDisk(), DIRECTORY)
    log = bench.open(**SETTINGS)
    _fill(log)
    log.sync()
    log.delete_records(log.end_offset).run()
    log.close()
    alive = {f"{segment.base_offset:020d}" for segment in log.segments}
    assert {name.partition(".")[0] for name in bench.names() if name.endswith((*INDEX_SUFFIXES, ".seal"))} == alive


# --- how much a look-up reads ------------------------------------------------------------------------


class _CountingFile:
    """A file that counts the bytes read from it."""

    def __init__(self, file: File, counts: dict[str, int]) -> None:
        self._file = file
        self._counts = counts
        self.path = file.path

    def read(self, *, position: int, size: int) -> bytes:
        data = self._file.read(position=position, size=size)
        suffix = Path(self.path).suffix
        self._counts[suffix] = self._counts.get(suffix, 0) + len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _CountingDisk:
    """A disk whose files count the bytes read from them, by suffix."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.counts: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> Any:
        return _CountingFile(self._disk.open(path, create=create), self.counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


SEGMENT_BYTES = 64 << 20
BATCH_BYTES = 16 << 10


@pytest.fixture(scope="module")
def big_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A closed log whose one segment is large."""
    directory = str(tmp_path_factory.mktemp("big") / "topic-0")
    log = Workbench(OsDisk(), directory).open()
    one = batch(b"x" * BATCH_BYTES, timestamp_ms=NOW_MS)
    while log.size < SEGMENT_BYTES:
        log.append(one, leader_epoch=0)
    log.close()
    return directory


@pytest.mark.slow
def test_the_last_offset_of_a_big_segment_is_found_without_reading_the_segment(big_log: str) -> None:
    disk = _CountingDisk(OsDisk())
    log = Workbench(disk, big_log).open()
    assert sum(disk.counts.values()) < 4096, "a clean opening reads checkpoints only"
    data = log.read(offset=log.end_offset - 1, bytes_max=1)
    assert [header.base_offset for _, header in walk(data)] == [log.end_offset - 1]
    # One batch is in the answer, at most one interval and the batch after it are looked through.
    assert disk.counts[".log"] <= 2 * LOOKUP_BYTES + 2 * len(data)
    assert disk.counts[".index"] <= 8 * SEGMENT_BYTES // BATCH_BYTES


@pytest.mark.slow
def test_a_time_in_a_big_segment_is_found_without_reading_the_segment(big_log: str) -> None:
    disk = _CountingDisk(OsDisk())
    log = Workbench(disk, big_log).open()
    assert log.offset_for_timestamp(NOW_MS + 1) is None
    assert ".log" not in disk.counts


# --- the log file ------------------------------------------------------------------------------------


@cache
def _killed() -> tuple[Files, str, list[tuple[int, int]]]:
    """The files of a log that was not closed, its open segment's path, and the end and size of each prefix there."""
    bench = Workbench(MemoryDisk(), DIRECTORY)
    log = bench.open(**SETTINGS)
    _fill(log)
    log.roll()
    log.sync()
    log.append(sequenced(3, 3, count=3), leader_epoch=3)
    log.append(batch(b"one"), leader_epoch=4)
    log.append(batch(b"more"), leader_epoch=4)
    active = log.segments[-1]
    files = bench.disk.files()  # type: ignore[attr-defined]
    path = active.path(".log")
    assert path.removesuffix(".log") + ".seal" not in files
    prefixes = [(0, active.base_offset)]
    prefixes += [(position + header.size, header.next_offset) for position, header in walk(files[path])]
    assert len(prefixes) >= 4
    return files, path, prefixes


def _prefix_of(prefixes: Sequence[tuple[int, int]], size: int) -> tuple[int, int]:
    """The longest good prefix that ends at or before a byte."""
    return max(prefix for prefix in prefixes if prefix[0] <= size)


def _opened_twice(files: Files) -> tuple[Log, Files]:
    """Open, kill, open again: the second opening must change nothing on disk."""
    bench, log = _reopened(files)
    first = _files(bench)
    again = _restored(first)
    again.open(**SETTINGS)
    assert _files(again) == first
    return log, first


@pytest.mark.slow
def test_an_open_segment_cut_at_every_byte_keeps_its_longest_good_prefix() -> None:
    files, path, prefixes = _killed()
    for size in range(len(files[path]) + 1):
        log, left = _opened_twice({**files, path: files[path][:size]})
        good_size, end_offset = _prefix_of(prefixes, size)
        assert (log.end_offset, left[path]) == (end_offset, files[path][:good_size]), size
        assert log.recovery.damage == []


@pytest.mark.slow
def test_a_byte_flipped_in_an_open_segment_cuts_it_there() -> None:
    files, path, prefixes = _killed()
    for at in range(len(files[path])):
        good_size, end_offset = _prefix_of(prefixes, at)
        flipped = bytearray(files[path])
        flipped[at] ^= 1
        log, left = _opened_twice({**files, path: bytes(flipped)})
        if _is_covered(at - good_size):
            assert (log.end_offset, left[path]) == (end_offset, files[path][:good_size]), at
        # Base offset and leader epoch stand outside the checksum. What comes before is safe all the same.
        assert left[path][:good_size] == files[path][:good_size], at


def _is_covered(at: int) -> bool:
    """Whether a checksum, or the shape of a batch, finds out a change at this byte of a batch."""
    return 8 <= at < 12 or at >= 16


@pytest.mark.slow
def test_a_sealed_last_segment_cut_at_every_byte_keeps_its_longest_good_prefix() -> None:
    files, _ = _closed()
    path = max(path for path in files if path.endswith(".log"))
    base_offset = int(Path(path).stem)
    prefixes = [(0, base_offset)]
    prefixes += [(position + header.size, header.next_offset) for position, header in walk(files[path])]
    whole_end_offset = prefixes[-1][1]
    for size in range(len(files[path])):
        log, left = _opened_twice({**files, path: files[path][:size]})
        good_size, end_offset = _prefix_of(prefixes, size)
        assert left[path] == files[path][:good_size], size
        assert [header.next_offset for _, header in walk(left[path])][-1:] == [end_offset][: good_size and 1], size
        # These offsets were acknowledged once, so they are not given out again.
        assert log.end_offset == whole_end_offset, size


@pytest.mark.slow
def test_a_sealed_segment_in_the_middle_cut_at_every_byte_leaves_the_others_whole() -> None:
    files, answers = _closed()
    paths = sorted(path for path in files if path.endswith(".log"))
    path, following = paths[1], int(Path(paths[2]).stem)
    prefixes = [(0, 0)] + [(position + header.size, header.next_offset) for position, header in walk(files[path])]
    for size in range(len(files[path])):
        log, left = _opened_twice({**files, path: files[path][:size]})
        good_size, _ = _prefix_of(prefixes, size)
        assert left[path] == files[path][:good_size]
        assert log.end_offset == answers["end"]
        assert [bytes(found.data) for found in log.batches(offset=following)] == [
            data for data in answers["batches"] if int.from_bytes(data[:8], "big") >= following
        ]


def test_a_sealed_segment_that_was_cut_between_two_batches_is_reported() -> None:
    files, _ = _closed()
    path = min(path for path in files if path.endswith(".log"))
    whole = [position for position, _ in walk(files[path])]
    for size in whole:
        _, log = _reopened({**files, path: files[path][:size]})
        # The seal knows how long the segment was, so that no crash explains the missing batches.
        assert len(log.recovery.damage) == 1, size


def test_a_sealed_segment_whose_log_file_is_gone_is_reported() -> None:
    files, _ = _closed()
    for path in (path for path in files if path.endswith(".log")):
        _, log = _reopened({name: data for name, data in files.items() if name != path})
        # A seal goes before its segment does, so that no crash leaves one alone.
        assert len(log.recovery.damage) == 1, path

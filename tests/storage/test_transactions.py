"""Transactions in a log: where its stable part ends, and what a reader of committed records must skip."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from ottla.records.batch import walk
from ottla.records.control import MarkerType, parse_marker
from ottla.records.reader import read_batch
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.compaction import compact
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from tests.storage.workbench import NOW_MS, Workbench, batch, installed, marker, removed, sequenced

SEEDS = 60
PRODUCERS = (7, 8, 9)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(seed=1)


@pytest.fixture
def bench(disk: MemoryDisk) -> Workbench:
    return Workbench(disk, "/data/topic-0")


def put(log: Log, data: bytes) -> int:
    return log.append(data, leader_epoch=0).first_offset


def seal(log: Log) -> None:
    """Begin a new segment and seal the one before."""
    log.roll()
    log.sync()


def aborted(log: Log) -> list[tuple[int, int, int]]:
    found = log.aborted_transactions(offset=log.log_start_offset, end_offset=log.end_offset)
    return [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found]


# --- the stable part -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_retention", [True, False], ids=["retention", "DeleteRecords"])
@pytest.mark.parametrize("is_reopened", [False, True], ids=["at once", "after a crash"])
def test_an_open_transaction_whose_beginning_is_gone_holds_the_start_of_the_log(
    disk: MemoryDisk, bench: Workbench, *, is_retention: bool, is_reopened: bool
) -> None:
    """As in Kafka, an open transaction does not keep its records from going."""
    log = bench.open(retention_ms=1_000)
    put(log, batch(b"before"))
    put(log, sequenced(7, 0, transactional=True))
    seal(log)
    put(log, sequenced(7, 1, transactional=True))
    put(log, batch(b"after", timestamp_ms=NOW_MS + 10_000))
    bench.clock.advance(10_000)
    assert log.first_unstable_offset(log.end_offset) == 1
    if is_retention:
        assert removed(log, below_offset=log.end_offset) == 1
    else:
        log.delete_records(2).run()
    log.sync()
    if is_reopened:
        disk.crash()
        log = bench.open(retention_ms=1_000)
    assert log.log_start_offset == 2
    assert log.first_unstable_offset(log.end_offset) == 2
    put(log, marker(7, MarkerType.ABORT, epoch=1))
    assert log.first_unstable_offset(log.end_offset) is None
    assert aborted(log) == [(7, 1, 4)]


def test_retention_takes_nothing_that_the_next_start_needs_to_know_of_an_open_transaction(
    disk: MemoryDisk, bench: Workbench
) -> None:
    log = bench.open(retention_ms=1_000)
    put(log, sequenced(7, 0, transactional=True))
    seal(log)
    put(log, batch(b"later", timestamp_ms=NOW_MS + 10_000))
    log.sync()
    bench.clock.advance(10_000)
    assert removed(log, below_offset=log.end_offset) == 1
    disk.crash()
    log = bench.open(retention_ms=1_000)
    assert log.first_unstable_offset(log.end_offset) == 1
    entry = log.producers.entry(7)
    assert entry is not None
    assert entry.transaction_first_offset == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_first_unstable_offset_is_that_of_the_oldest_transaction_that_is_not_at_its_end(seed: int) -> None:
    chance = Random(seed)
    log = Workbench(MemoryDisk(seed=1), "/data/topic-0").open()
    sequences: dict[int, int] = {}
    open_since: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    high_watermark = 0
    for _ in range(200):
        producer_id = chance.randrange(20)
        if producer_id in open_since and chance.random() < 0.4:
            kind = chance.choice(list(MarkerType))
            ended.append((open_since.pop(producer_id), put(log, marker(producer_id, kind))))
        else:
            sequence = sequences[producer_id] = sequences.get(producer_id, -1) + 1
            offset = put(log, sequenced(producer_id, sequence, transactional=True))
            open_since.setdefault(producer_id, offset)
        if chance.random() < 0.3:
            high_watermark = chance.randint(high_watermark, log.end_offset)
        unstable = [*open_since.values(), *(first for first, last in ended if last >= high_watermark)]
        assert log.first_unstable_offset(high_watermark) == min(unstable, default=None)


# --- aborted transactions --------------------------------------------------------------------------------


@dataclass
class LongTransactions:
    """Transactions that begin in one segment and end in another, so that they overlap."""

    log: Log
    ends: list[tuple[int, int, int]] = field(default_factory=list)

    def write(self) -> None:
        log = self.log
        put(log, sequenced(7, 0, transactional=True))
        put(log, sequenced(8, 0, transactional=True))
        seal(log)
        put(log, sequenced(9, 0, transactional=True))
        put(log, marker(8, MarkerType.ABORT))
        seal(log)
        put(log, batch(b"plain"))
        put(log, marker(9, MarkerType.COMMIT))
        seal(log)
        put(log, marker(7, MarkerType.ABORT))
        put(log, batch(b"the end"))
        log.sync()
        # Each entry stands in the segment of its marker; readers get them by first offset.
        self.ends = [(7, 0, 6), (8, 1, 3)]


def test_transactions_over_several_segments_are_told_by_first_offset(bench: Workbench) -> None:
    story = LongTransactions(bench.open())
    story.write()
    assert aborted(story.log) == story.ends


@pytest.mark.parametrize("offset", range(9))
def test_whoever_begins_inside_an_aborted_transaction_is_told_of_it(bench: Workbench, offset: int) -> None:
    story = LongTransactions(bench.open())
    story.write()
    found = story.log.aborted_transactions(offset=offset, end_offset=8)
    assert [entry[:3] for entry in found] == [entry for entry in story.ends if entry[2] >= offset]


@pytest.mark.parametrize("way", ["closed", "crashed", "indexes lost", "indexes and snapshots lost"])
def test_aborted_transactions_are_found_again_at_the_next_start(disk: MemoryDisk, bench: Workbench, way: str) -> None:
    story = LongTransactions(bench.open())
    story.write()
    if way == "crashed":
        disk.crash()
    else:
        story.log.close()
    if "indexes" in way:
        for name in bench.names(".txnindex"):
            disk.remove(f"{bench.directory}/{name}")
    if "snapshots" in way:
        for name in bench.names(".snapshot"):
            disk.remove(f"{bench.directory}/{name}")
    assert aborted(bench.open()) == story.ends


@pytest.mark.parametrize(
    ("offset", "expected", "first_open"),
    [
        (7, [(7, 0, 6), (8, 1, 3)], None),
        (6, [(8, 1, 3)], 0),
        (5, [(8, 1, 3)], 0),
        (3, [], 0),
        (1, [], 0),
        (0, [], None),
    ],
)
@pytest.mark.parametrize("is_reopened", [False, True], ids=["at once", "after a restart"])
def test_a_truncation_takes_back_the_ends_that_it_cuts_off(
    bench: Workbench, offset: int, expected: list[tuple[int, int, int]], first_open: int | None, *, is_reopened: bool
) -> None:
    story = LongTransactions(bench.open())
    story.write()
    story.log.truncate_to(offset)
    log = story.log
    if is_reopened:
        log.close()
        log = bench.open()
    assert aborted(log) == expected
    assert log.first_unstable_offset(log.end_offset) == first_open


def test_a_reader_is_told_of_the_transactions_in_its_bytes_and_of_few_others(bench: Workbench) -> None:
    count = 500
    log = bench.open(index_interval_bytes=200, segment_bytes=20_000)
    for sequence in range(count):
        put(log, sequenced(7, sequence, transactional=True))
        put(log, marker(7, MarkerType.ABORT))
    for offset in (0, 400, 2 * count - 2):
        found = log.slice(offset=offset, bytes_max=1_000)
        assert found is not None
        told = log.aborted_in(found, offset=offset, end_offset=log.end_offset)
        held = {header.base_offset for _, header in walk(found.read()) if not header.is_control}
        assert held <= {entry.first_offset for entry in told}
        assert len(told) <= len(held) + 3
    assert len(log.aborted_transactions(offset=0, end_offset=log.end_offset)) == count


class OpenedNames(MemoryDisk):
    """Remembers which files were opened."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
        self.opened.append(path)
        return super().open(path, create=create)


def test_segments_in_which_nothing_was_aborted_are_not_read_for_it() -> None:
    disk = OpenedNames()
    bench = Workbench(disk, "/data/topic-0")
    log = bench.open()
    for _ in range(20):
        put(log, batch(b"plain"))
        seal(log)
    log.close()
    log = bench.open()
    found = log.slice(offset=0, bytes_max=1_000)
    assert found is not None
    disk.opened.clear()
    assert log.aborted_in(found, offset=0, end_offset=log.end_offset) == []
    assert {path.rsplit("/", 1)[1][:20] for path in disk.opened} <= {f"{0:020d}"}


# --- a reader of committed records ---------------------------------------------------------------------------


def committed_records(log: Log, end_offset: int, chance: Random) -> list[tuple[int, bytes]]:
    """What a consumer sees that reads committed records, in pieces of any size: Java's rules, as Kafka's clients have.

    Each answer stands for itself: what it tells of aborted transactions is all that the consumer goes by.
    """
    offset = log.log_start_offset
    seen: list[tuple[int, bytes]] = []
    while offset < end_offset:
        found = log.slice(offset=offset, bytes_max=chance.randint(1, 600), end_offset=end_offset)
        if found is None:
            break
        told = log.aborted_in(found, offset=offset, end_offset=end_offset)
        assert told == sorted(told, key=lambda entry: entry.first_offset)
        waiting = deque(told)
        aborting: set[int] = set()
        data = found.read()
        next_offset = offset
        for position, header in walk(data):
            whole = data[position : position + header.size]
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.popleft().producer_id)
            if header.is_control:
                end = parse_marker(whole)
                if end is not None and end.marker_type is MarkerType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                records = (record for record in read_batch(whole) if record.offset >= offset)
                seen += [(record.offset, bytes(record.value or b"")) for record in records]
            next_offset = header.next_offset
        if next_offset == offset:
            break
        offset = next_offset
    return seen


@dataclass
class Writers:
    """Several producers at once, some with transactions; knows what of theirs is committed."""

    chance: Random
    log: Log
    written: dict[int, bytes] = field(default_factory=dict)
    """By offset, all that is not known to be aborted."""
    open: dict[int, list[int]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def act(self) -> None:
        chance, log = self.chance, self.log
        producer_id = chance.choice(PRODUCERS)
        if producer_id in self.open and chance.random() < 0.5:
            self.end(producer_id)
        elif chance.random() < 0.2:
            value = b"plain %d" % log.end_offset
            self.written[put(log, batch(value))] = value
        else:
            count = chance.randint(1, 3)
            sequence = self.sequences.get(producer_id, -1) + 1
            epoch = self.epochs.get(producer_id, 0)
            first = put(log, sequenced(producer_id, sequence, count=count, epoch=epoch, transactional=True))
            self.sequences[producer_id] = sequence + count - 1
            offsets = range(first, first + count)
            self.open.setdefault(producer_id, []).extend(offsets)
            self.written |= {offset: b"%d/%d" % (producer_id, sequence + offset - first) for offset in offsets}
        if chance.random() < 0.1:
            seal(log)

    def end(self, producer_id: int) -> None:
        kind = self.chance.choice(list(MarkerType))
        if self.chance.random() < 0.5:
            # The second version of transactions: a new epoch with each end.
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.sequences.pop(producer_id, None)
        put(self.log, marker(producer_id, kind, epoch=self.epochs.get(producer_id, 0)))
        offsets = self.open.pop(producer_id)
        if kind is MarkerType.ABORT:
            for offset in offsets:
                del self.written[offset]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_reader_of_committed_records_sees_those_and_no_others(seed: int) -> None:
    chance = Random(seed)
    disk = MemoryDisk(seed=seed)
    bench = Workbench(disk, "/data/topic-0")
    log = bench.open(index_interval_bytes=chance.choice((1, 300)))
    writers = Writers(chance, log)
    for _ in range(80):
        writers.act()
        if chance.random() < 0.05:
            writers.log.sync()
            if chance.random() < 0.5:
                writers.log.close()
            else:
                disk.crash()
            if chance.random() < 0.3:
                for name in bench.names(".txnindex"):
                    disk.remove(f"{bench.directory}/{name}")
            writers.log = bench.open(index_interval_bytes=chance.choice((1, 300)))
    log = writers.log
    unstable = log.first_unstable_offset(log.end_offset)
    stable = log.end_offset if unstable is None else unstable
    expected = sorted((offset, value) for offset, value in writers.written.items() if offset < stable)
    assert committed_records(log, stable, chance) == expected


@pytest.mark.parametrize("seed", range(SEEDS))
def test_compaction_shows_a_reader_of_committed_records_nothing_new(seed: int) -> None:
    """Every record has the same key, so the newest committed one must stay, and nothing aborted may come."""
    chance = Random(seed)
    disk = MemoryDisk(seed=seed)
    bench = Workbench(disk, "/data/topic-0")
    settings = {
        "compact": True,
        "delete": False,
        "min_cleanable_dirty_ratio": 0.0,
        "delete_retention_ms": chance.choice((0, 10**9)),
    }
    writers = Writers(chance, bench.open(**settings))
    for _ in range(80):
        writers.act()
        if chance.random() < 0.1:
            log = writers.log
            plan = log.plan_compaction(high_watermark=log.synced_offset)
            if plan is not None:
                assert installed(log, plan, compact(disk, bench.directory, plan))
            if chance.random() < 0.3:
                log.close()
                if chance.random() < 0.5:
                    for name in [*bench.names(".snapshot"), *bench.names(".txnindex")]:
                        disk.remove(f"{bench.directory}/{name}")
                writers.log = bench.open(**settings)
    log = writers.log
    unstable = log.first_unstable_offset(log.end_offset)
    assert unstable == min((offsets[0] for offsets in writers.open.values()), default=None)
    stable = log.end_offset if unstable is None else unstable
    expected = sorted((offset, value) for offset, value in writers.written.items() if offset < stable)
    seen = committed_records(log, stable, chance)
    assert seen[-1:] == expected[-1:]
    assert seen == [record for record in expected if record in set(seen)]


# --- by time -------------------------------------------------------------------------------------------------


def test_records_of_an_open_transaction_are_not_found_by_time_below_its_beginning(bench: Workbench) -> None:
    log = bench.open()
    put(log, batch(b"plain", timestamp_ms=NOW_MS))
    stable = put(
        log,
        batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, timestamp_ms=NOW_MS + 10),
    )
    found = log.offset_for_timestamp(NOW_MS, end_offset=stable)
    assert found is not None
    assert found.offset == 0
    assert log.offset_for_timestamp(NOW_MS + 10, end_offset=stable) is None
    newest = log.newest(end_offset=stable)
    assert newest is not None
    assert (newest.timestamp_ms, newest.offset) == (NOW_MS, 0)


def test_an_aborted_entry_says_how_far_everything_had_ended_by_then(bench: Workbench) -> None:
    log = bench.open()
    put(log, sequenced(7, 0, transactional=True))
    put(log, sequenced(8, 0, transactional=True))
    put(log, marker(7, MarkerType.ABORT))
    put(log, marker(8, MarkerType.ABORT))
    found = log.aborted_transactions(offset=0, end_offset=log.end_offset)
    assert found == [AbortedTransaction(7, 0, 2, 1), AbortedTransaction(8, 1, 3, 4)]

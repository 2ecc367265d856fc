"""Make the golden data directory: one of each thing that a data directory can hold, in a few kilobytes.

`python -m tests.storage.golden.make` writes `data/` and `records.txt` beside this file anew. Do that only when
the format is meant to change, and say so in FORMAT.md and the change log. What comes out depends on nothing but
this file and the storage layer: time stands still, and the compressed batches are taken from `batches/`, because
another version of a compression library may give other bytes (`--batches` makes those anew too).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from ottla.clock import ManualClock
from ottla.records.batch import restamp_append_time
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.records.reader import read_batch
from ottla.storage import compaction
from ottla.storage.disk import OsDisk
from ottla.storage.layout import LOCK_FILE, DataDirectory, PartitionMetadata
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.storage.workbench import installed

GOLDEN = Path(__file__).resolve().parent
BATCHES = GOLDEN / "batches"
NOW_MS = 1_700_000_000_000
TOPIC_IDS = {
    "journal": UUID("6f74746c-6100-4000-8000-000000000001"),
    "table": UUID("6f74746c-6100-4000-8000-000000000002"),
    "interrupted": UUID("6f74746c-6100-4000-8000-000000000003"),
}
CONFIGS = {
    "journal": LogConfig(segment_bytes=1_100, index_interval_bytes=200),
    "table": LogConfig(segment_bytes=1_000, index_interval_bytes=200, compact=True, delete=False),
    "interrupted": LogConfig(segment_bytes=400, index_interval_bytes=100),
}
"""The topics of the directory, one partition each: a log with every kind of batch that was closed, a compacted
one, and one whose process was killed in the middle of an append."""


def make(target: Path) -> None:
    """Write the data directory; `target` must not exist."""
    disk, clock = OsDisk(), ManualClock(NOW_MS)
    directory = DataDirectory.open(disk, str(target))
    paths = {
        topic: directory.create_partition(topic, 0, PartitionMetadata(topic_id))
        for topic, topic_id in TOPIC_IDS.items()
    }
    _write_journal(Log.open(disk, paths["journal"], config=CONFIGS["journal"], clock=clock))
    _write_table(Log.open(disk, paths["table"], config=CONFIGS["table"], clock=clock), disk, clock)
    _write_interrupted(Log.open(disk, paths["interrupted"], config=CONFIGS["interrupted"], clock=clock))
    directory.close()
    # It holds the number of this process, and the next owner makes it anew.
    (target / LOCK_FILE).unlink()


def describe(data: Path) -> Iterator[str]:
    """What the logs of a data directory hold, a line for each record; recovers what was not closed."""
    for topic in sorted(TOPIC_IDS):
        log = Log.open(OsDisk(), str(data / f"{topic}-0"), config=CONFIGS[topic], clock=ManualClock(NOW_MS))
        yield f"{topic}-0: offsets {log.log_start_offset} to {log.end_offset}, {len(log.segments)} segments"
        for entry in log.epochs.entries:
            yield f"  epoch {entry.epoch} from offset {entry.start_offset}"
        for aborted in log.aborted_transactions(offset=log.log_start_offset, end_offset=log.end_offset):
            yield f"  aborted {tuple(aborted)}"
        for producer in log.producers.entries:
            yield (
                f"  producer {producer.producer_id} epoch {producer.epoch} since {producer.transaction_first_offset} "
                f"{[tuple(batch) for batch in producer.batches]}"
            )
        for found in log.batches(offset=log.log_start_offset):
            header = found.header
            kind = Codec(header.codec).name.lower() + " transactional" * header.is_transactional
            yield f"  batch {header.base_offset} to {header.last_offset} epoch {header.leader_epoch} {kind}"
            for record in read_batch(found.data):
                headers = " ".join(f"{name}={value!r}" for name, value in record.headers)
                when = record.timestamp_ms - NOW_MS
                yield f"    {record.offset} {when:+d} {record.key!r} {record.value!r} {headers}".rstrip()


def make_batches() -> None:
    """The compressed batches that the journal holds."""
    BATCHES.mkdir(exist_ok=True)
    for codec in list(Codec)[1:]:
        records = [(b"key-%d" % (n % 3), b"a value, number %d" % n, NOW_MS + 100 * codec + n, ()) for n in range(8)]
        (BATCHES / f"{codec.name.lower()}.batch").write_bytes(build_batch(records, codec=codec))


def _write_journal(log: Log) -> None:
    """Every codec, every kind of producer, epochs, transactions, and a log start that was raised."""
    for number in range(12):
        log.append(_batch(b"early", b"%d" % number, after_ms=number), leader_epoch=0)
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("", b"x"))
    special = [(None, None, NOW_MS + 40, headers), (b"", b"", NOW_MS + 30, ()), (b"k", b"late", NOW_MS + 20, ())]
    log.append(build_batch(special), leader_epoch=0)
    for path in sorted(BATCHES.iterdir()):
        log.append(path.read_bytes(), leader_epoch=2)
    stamped = build_batch([(b"k", b"stamped by the log", NOW_MS, ())] * 2)
    restamp_append_time(stamped, timestamp_ms=NOW_MS + 600)
    log.append(stamped, leader_epoch=2)
    for sequence in range(0, 14, 2):
        log.append(_sequenced(1000, sequence, count=2), leader_epoch=2)
    log.sync()
    log.append(_sequenced(2000, 0, transactional=True), leader_epoch=3)
    log.append(_sequenced(2001, 0, count=3, transactional=True), leader_epoch=3)
    log.append(_sequenced(2000, 1, transactional=True), leader_epoch=3)
    log.append(_marker(2001, MarkerType.ABORT), leader_epoch=3)
    log.append(_marker(2000, MarkerType.COMMIT), leader_epoch=3)
    log.roll()
    log.append(_sequenced(2001, 0, epoch=1, transactional=True), leader_epoch=3)
    log.append(_marker(2001, MarkerType.ABORT, epoch=1), leader_epoch=3)
    log.append(_sequenced(2002, 0, count=2, transactional=True), leader_epoch=3)
    log.delete_records(14).run()
    log.close()


def _write_table(log: Log, disk: OsDisk, clock: ManualClock) -> None:
    """A compacted segment with gaps, a tombstone that waits for its horizon, and newer records behind it."""
    for number in range(30):
        log.append(_batch(b"key-%d" % (number % 14), b"%d" % number, after_ms=number), leader_epoch=0)
        if number % 6 == 5:
            log.roll()
    log.append(_batch(b"key-1", None, after_ms=30), leader_epoch=0)
    log.append(_sequenced(3000, 0, count=2, transactional=True), leader_epoch=0)
    log.append(_marker(3000, MarkerType.ABORT), leader_epoch=0)
    log.roll()
    log.append(_batch(b"key-2", b"after the compaction", after_ms=60), leader_epoch=1)
    log.sync()
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None, "the table is dirty enough to be compacted"
    result = compaction.compact(disk, log.directory, planned)
    assert installed(log, planned, result)
    log.close()


def _write_interrupted(log: Log) -> None:
    """Killed inside an append: sealed segments, an open one, and half a batch."""
    for number in range(6):
        log.append(_sequenced(1000, number), leader_epoch=0)
    log.sync()
    log.append(_sequenced(1000, 6), leader_epoch=1)
    log.segments[-1].file.append([_sequenced(1000, 7)[:50]])
    log.release()


def _batch(key: bytes, value: bytes | None, *, after_ms: int) -> bytes:
    return bytes(build_batch([(key, value, NOW_MS + after_ms, ())]))


def _sequenced(
    producer_id: int, sequence: int, *, count: int = 1, epoch: int = 0, transactional: bool = False
) -> bytes:
    records = [(b"p", b"%d/%d/%d" % (producer_id, epoch, sequence + n), NOW_MS + 700, ()) for n in range(count)]
    return bytes(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def _marker(producer_id: int, kind: MarkerType, *, epoch: int = 0) -> bytes:
    return bytes(
        build_marker(
            kind, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=4, timestamp_ms=NOW_MS + 800
        )
    )


def main() -> None:
    if "--batches" in sys.argv:
        make_batches()
    data, scratch = GOLDEN / "data", GOLDEN / "scratch"
    shutil.rmtree(data, ignore_errors=True)
    make(data)
    # Describing recovers, and the directory must stay as the interruption left it.
    shutil.copytree(data, scratch)
    try:
        text = "".join(f"{line}\n" for line in describe(scratch))
    finally:
        shutil.rmtree(scratch)
    (GOLDEN / "records.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

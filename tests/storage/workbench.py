"""What the log's tests build with: batches of any kind, and a log on a disk of choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.clock import ManualClock
from ottla.errors import StorageFault
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.records.reader import Record, read_batch
from ottla.storage.compaction import CompactionResult
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.disk import Disk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

NOW_MS = 1_700_000_000_000


def batch(*values: bytes | None, key: bytes | None = b"k", timestamp_ms: int = NOW_MS, **fields: object) -> bytes:
    """A batch of records with the given values; `fields` go to `build_batch`."""
    records = [(key, value, timestamp_ms, ()) for value in values or (b"v",)]
    return bytes(build_batch(records, **fields))  # type: ignore[arg-type]


def keyed(pairs: Sequence[tuple[bytes | None, bytes | None]], *, timestamp_ms: int = NOW_MS) -> bytes:
    """A batch of records with keys of their own."""
    return bytes(build_batch([(key, value, timestamp_ms, ()) for key, value in pairs]))


def sequenced(producer_id: int, sequence: int, *, count: int = 1, epoch: int = 0, transactional: bool = False) -> bytes:
    """A batch of an idempotent or transactional producer."""
    return batch(
        *(b"%d/%d" % (producer_id, sequence + n) for n in range(count)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(producer_id: int, kind: MarkerType, *, epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    """The end of a transaction."""
    return bytes(
        build_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=NOW_MS,
        )
    )


def records_of(log: Log, *, offset: int | None = None) -> list[Record]:
    """Every record from an offset on, decoded; control records too."""
    start = log.log_start_offset if offset is None else offset
    records = [record for found in log.batches(offset=start) for record in read_batch(found.data)]
    return [record for record in records if record.offset >= start]


def removed(log: Log, *, below_offset: int) -> int:
    """Apply retention here and now; returns how many segments went."""
    job = log.apply_retention(below_offset=below_offset)
    if job is None:
        return 0
    job.run()
    return len(job.segments)


def installed(log: Log, planned: CompactionPlan, result: CompactionResult) -> bool:
    """Put a compaction in place here and now, unless the log has moved on."""
    job = log.install_compaction(planned, result)
    if job is None:
        return False
    try:
        job.run()
    except StorageFault as error:
        log.fail(error)
        raise
    log.complete_compaction(job).run()
    return True


@dataclass
class Workbench:
    """A disk with one partition's directory on it."""

    disk: Disk
    directory: str
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    config: LogConfig = field(default_factory=LogConfig)

    def open(self, **changes: object) -> Log:
        """Open the log, with settings of the test's own."""
        config = LogConfig(**changes) if changes else self.config  # type: ignore[arg-type]
        self.config = config
        return Log.open(self.disk, self.directory, config=config, clock=self.clock)

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.names(self.directory) if name.endswith(suffix)]


CODECS = tuple(Codec)

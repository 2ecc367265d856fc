"""One seeded life of a log on a disk that loses its power at the worst moments.

A run chooses operations, a hook on the disk chooses where to die, and after each recovery the log is
checked against the model. The seed decides everything, so a run can be had again.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from random import Random

import pytest

from ottla.clock import ManualClock
from ottla.errors import DiskFull, LogClosed, StorageFault
from ottla.records.batch import restamp
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.storage import compaction
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.memory_disk import Crash, MemoryDisk, Moment
from ottla.storage.recovery import SYNC_FAILED_FILE
from ottla.storage.runs import Appended
from tests.storage.crash import points
from tests.storage.crash.checks import check_opened
from tests.storage.crash.model import Model, StoredBatch
from tests.storage.crash.points import Point
from tests.storage.workbench import installed, removed

DIRECTORY = "/data/events-0"
STEPS = 36
RECOVERY_CRASHES_MAX = 3
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)
KEYS = (None, b"a", b"b", b"c", b"d", b"e")


class Dying:
    """The disk's hook: counts down to a crash, or waits for one operation at one moment."""

    def __init__(self, random: Random, hits: Counter[Point]) -> None:
        self._random = random
        self._hits = hits
        self._countdown = 0
        self._target: Point | None = None

    def arm(self, places: list[Point]) -> None:
        """Choose the next crash; often at a given place, so that rare ones get their turn."""
        if self._random.random() < 0.7:
            self._target, self._countdown = self._random.choice(places), 0
        else:
            self._target, self._countdown = None, self._random.randint(1, 60)

    def disarm(self) -> None:
        self._target, self._countdown = None, 0

    def __call__(self, operation: str, moment: Moment) -> None:
        if self._countdown:
            self._countdown -= 1
            if self._countdown:
                return
        elif self._target != (operation, moment):
            return
        self.disarm()
        self._hits[operation, moment] += 1
        raise Crash(f"{operation} {moment}")


class Simulation:
    """A log, its disk, its model, and the chance that drives them."""

    def __init__(self, seed: int, hits: Counter[Point]) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk(seed)
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.clock = ManualClock()
        self.model = Model()
        self.dying = Dying(self.random, hits)
        self.disk.on_operation = self.dying
        self.leader_epoch = 0
        self.config = self._choose_config()
        self.trace = blake2b()
        self.operations: Counter[str] = Counter()
        self.sync_failed = False
        self.compacted_below = 0
        self.log: Log

    def _choose_config(self) -> LogConfig:
        choose = self.random.choice
        compact = choose((False, True, True))
        return LogConfig(
            segment_bytes=choose((400, 1000, 2500)),
            segment_ms=choose((20_000, 10_000_000)),
            index_interval_bytes=choose((0, 150, 600)),
            retention_bytes=choose((-1, 2500)),
            retention_ms=choose((-1, 60_000)),
            delete=not compact or choose((False, True)),
            compact=compact,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=choose((0, 30_000)),
        )

    # --- the run -----------------------------------------------------------------------------------

    def run(self) -> str:
        """Live through it; returns a digest of every state that was seen."""
        self.recover()
        for _ in range(STEPS):
            self.step()
        self.dying.disarm()
        self.die(power_loss=True)
        self.recover()
        self.close_and_open()
        return self.trace.hexdigest()

    def step(self) -> None:
        """One operation; dying in it is part of it."""
        name, operation, _, places = self.random.choices(OPERATIONS, WEIGHTS)[0]
        if self.random.random() < 0.35:
            self.dying.arm(places)
        else:
            self.dying.disarm()
        try:
            operation(self)
            self.operations[name] += 1
        except Crash:
            # Nothing helps a process that dies after a failed sync and before it could leave word of it: the
            # system says that all is well. Only then a loss of power is the lesser evil.
            unnoted = self.sync_failed and f"{DIRECTORY}/{SYNC_FAILED_FILE}" not in self.disk.files()
            self.die(power_loss=unnoted or self.random.random() < 0.75)
            self.recover()

    def die(self, *, power_loss: bool) -> None:
        """Lose the power, or only the process."""
        self.disk.heal()
        if power_loss:
            self.disk.crash()
            self.model.keeps_written = False
        else:
            self.disk.kill()

    def recover(self) -> None:
        """Open the log, dying in that a few times, and check it; then once more, which must change nothing."""
        for attempt in range(RECOVERY_CRASHES_MAX + 1):
            if attempt < RECOVERY_CRASHES_MAX and self.random.random() < 0.5:
                self.dying.arm(self._places_of_recovery())
            else:
                self.dying.disarm()
            try:
                self.log = Log.open(self.disk, DIRECTORY, config=self.config, clock=self.clock)
                break
            except Crash:
                self.die(power_loss=self.random.random() < 0.75)
        self.dying.disarm()
        self.sync_failed = False
        assert self.log.recovery.damage == [], "a crash alone damages nothing that was sealed"
        check_opened(self.log, self.model)
        self.model.settle(start=self.log.log_start_offset, end=self.log.end_offset)
        self._recover_again()

    def _places_of_recovery(self) -> list[Point]:
        """Where this recovery is likely to come past, by what it will find."""
        names = self.disk.names(DIRECTORY) if self.disk.is_directory(DIRECTORY) else []
        leftovers = [name[name.find(".") :] for name in names if name.endswith((".cleaned", ".tmp"))]
        if not names:
            return points.MAKING
        if SYNC_FAILED_FILE in names:
            return points.REWRITING
        if any(name.endswith(".swap") for name in names):
            return points.SWAPPING
        if leftovers and self.random.random() < 0.8:
            return [place for place in points.TIDYING if place[0].removeprefix("remove ") in leftovers]
        return points.RECOVERING

    def _recover_again(self) -> None:
        """What recovery said it keeps, a loss of power does not take; and a second one changes no byte."""
        if self.random.random() < 0.5:
            self.disk.crash()
            self.log = Log.open(self.disk, DIRECTORY, config=self.config, clock=self.clock)
            check_opened(self.log, self.model)
        before = self.disk.files()
        self.disk.kill()
        self.log = Log.open(self.disk, DIRECTORY, config=self.config, clock=self.clock)
        after = self.disk.files()
        assert after == before, f"a second recovery changed {sorted(set(before.items()) ^ set(after.items()))}"
        self.trace.update(repr(sorted(after.items())).encode())

    # --- operations ----------------------------------------------------------------------------------

    def append(self) -> None:
        kind = self.random.randrange(4)
        if kind == 0:
            self._append(build_batch(self._records(), codec=self.random.choice((Codec.NONE, Codec.LZ4))))
        elif kind == 1:
            self._append_idempotent()
        elif kind == 2:
            self._append_transactional()
        else:
            self._end_transaction()

    def append_many(self) -> None:
        for _ in range(self.random.randint(2, 8)):
            self.append()

    def _append(self, batch: bytearray) -> None:
        if self.random.random() < 0.05:
            self.leader_epoch += 1
        stamped = bytearray(batch)
        restamp(stamped, base_offset=self.log.end_offset, leader_epoch=self.leader_epoch)
        stored = StoredBatch.of(bytes(stamped))
        self.model.append(stored)
        try:
            appended = self.log.append(batch, leader_epoch=self.leader_epoch)
        except DiskFull:
            self.model.refuse()
            return
        assert appended == Appended(stored.header.base_offset, stored.header.last_offset)
        self.model.appended()

    def _append_idempotent(self) -> None:
        producer_id = self.random.choice(IDEMPOTENT)
        entry = self.log.producers.entry(producer_id)
        epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.last_sequence + 1)
        if entry is not None and self.random.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        batch = build_batch(self._records(), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        before = self.log.end_offset
        self._append(batch)
        if self.log.end_offset > before and self.random.random() < 0.2:
            again = self.log.append(batch, leader_epoch=self.leader_epoch)
            assert again == Appended(before, self.log.end_offset - 1, True)

    def _append_transactional(self) -> None:
        producer_id = self.random.choice(TRANSACTIONAL)
        entry = self.log.producers.entry(producer_id)
        epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.last_sequence + 1)
        self._append(
            build_batch(
                self._records(),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def _end_transaction(self) -> None:
        open_entries = [entry for entry in self.log.producers.entries if entry.transaction_first_offset >= 0]
        if open_entries:
            entry = self.random.choice(open_entries)
            marker = build_marker(
                self.random.choice((MarkerType.ABORT, MarkerType.COMMIT)),
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                coordinator_epoch=max(entry.coordinator_epoch, 0),
                timestamp_ms=self.clock.now_ms(),
            )
            self._append(marker)

    def _records(self) -> list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]]:
        self.clock.advance(self.random.choice((0, 10, 3000)))
        return [
            (
                self.random.choice(KEYS),
                None if self.random.random() < 0.2 else self.random.randbytes(self.random.randrange(60)),
                self.clock.now_ms() - self.random.randrange(500),
                (("h", b"x"),) if self.random.random() < 0.1 else (),
            )
            for _ in range(self.random.randint(1, 4))
        ]

    def roll(self) -> None:
        self.log.roll()

    def sync(self) -> None:
        self.log.sync()
        assert self.log.synced_offset == self.log.end_offset
        self.model.promised_end = self.log.end_offset

    def sync_beside_appends(self) -> None:
        """As a broker does: the loop prepares, appends go on, a thread syncs."""
        job = self.log.prepare_sync()
        self.append_many()
        if job is not None:
            job.run()
            self.log.complete_sync(job)
            self.model.promised_end = max(self.model.promised_end, job.end_offset)
            assert self.log.synced_offset == job.end_offset

    def delete_records(self) -> None:
        offset = self.random.randint(self.log.log_start_offset, self.log.end_offset)
        self.model.start_highest = max(self.model.start_highest, offset)
        self.log.delete_records(offset).run()
        assert self.log.log_start_offset == offset
        self.model.start_lowest = offset

    def apply_retention(self) -> None:
        self.clock.advance(self.random.choice((0, 50_000)))
        self.model.start_highest = max(self.model.start_highest, self.log.synced_offset)
        removed(self.log, below_offset=self.log.synced_offset)
        self.model.start_lowest = self.model.start_highest = self.log.log_start_offset

    def truncate(self) -> None:
        # Nobody truncates below a high watermark that compaction has relied on.
        lowest = max(self.log.log_start_offset, self.compacted_below)
        if lowest <= self.log.end_offset:
            offset = self.random.randint(max(lowest, self.log.end_offset - 12), self.log.end_offset)
            boundary = self.model.truncating(offset, start=self.log.log_start_offset)
            self.log.truncate_to(offset)
            assert self.log.end_offset == boundary
            self.model.batches = self.model.batches_between(start=0, end=boundary)
            self.model.end_offset = boundary

    def restart(self) -> None:
        """As a follower that was left behind: the whole log goes, and it goes on further up."""
        offset = self.log.end_offset + self.random.randrange(5)
        self.model.start_highest = offset
        self.log.restart_at(offset)
        self.model.settle(start=offset, end=offset)

    def release(self) -> None:
        self.log.release()

    def compact(self) -> None:
        if not self.config.compact:
            return
        self.clock.advance(self.random.choice((0, 40_000)))
        if self.random.random() < 0.7:
            self.roll()
            self.sync()
        planned = self.log.plan_compaction(high_watermark=self.log.synced_offset)
        if planned is not None:
            self.model.compacted_end = max(self.model.compacted_end, planned.end_offset)
            self.compacted_below = max(self.compacted_below, self.log.synced_offset)
            if self.random.random() < 0.5:
                self.dying.arm(points.COMPACTING)
            result = compaction.compact(self.disk, DIRECTORY, planned)
            if self.random.random() < 0.3:
                self.append_many()
            assert installed(self.log, planned, result)

    def close_and_open(self) -> None:
        """After a clean stop nothing is read and nothing is lost."""
        self.log.close()
        self.model.promised_end = self.model.end_offset
        if self.random.random() < 0.5:
            self.disk.crash()
        self.log = Log.open(self.disk, DIRECTORY, config=self.config, clock=self.clock)
        assert self.log.recovery.clean
        assert self.log.recovery.scanned_bytes == 0
        check_opened(self.log, self.model)

    def fill_disk(self) -> None:
        """Space runs out in the middle of things; what is refused is not there, the rest goes on later."""
        self.disk.capacity_bytes = self.disk.used_bytes() + self.random.randrange(1500)
        self.append_many()
        try:
            self.sync()
        except DiskFull:
            self.operations["sync refused by a full disk"] += 1
        self.disk.heal()
        self.append()
        self.sync()

    def fail_sync(self) -> None:
        """A sync that fails takes the log offline; reopening it finds what can be found."""
        self.append()
        self.disk.fail_next("sync", self.random.choice((".log", "")), errno.EIO)
        self.sync_failed = True
        try:
            self.log.sync()
        except StorageFault:
            with pytest.raises(LogClosed):
                self.log.append(build_batch(self._records()), leader_epoch=self.leader_epoch)
            # Which bytes the system still shows is its own affair now.
            self.model.keeps_written = False
            raise Crash("offline") from None
        self.disk.heal()
        self.sync_failed = False

    def fail_append(self) -> None:
        self.disk.fail_next("append", ".log", errno.EIO)
        with pytest.raises(StorageFault):
            self._append(build_batch(self._records()))
        raise Crash("offline")


OPERATIONS: list[tuple[str, Callable[[Simulation], None], int, list[Point]]] = [
    ("append", Simulation.append, 10, points.APPENDING),
    ("append many", Simulation.append_many, 10, points.APPENDING),
    ("roll", Simulation.roll, 4, points.APPENDING),
    ("sync", Simulation.sync, 8, points.SYNCING),
    ("sync beside appends", Simulation.sync_beside_appends, 6, points.SYNCING),
    ("delete records", Simulation.delete_records, 2, points.RAISING_LOG_START),
    ("apply retention", Simulation.apply_retention, 3, points.REMOVING),
    ("truncate", Simulation.truncate, 3, points.TRUNCATING),
    ("restart", Simulation.restart, 1, points.RAISING_LOG_START),
    ("release", Simulation.release, 1, points.APPENDING),
    ("compact", Simulation.compact, 6, points.COMPACTING),
    ("close and open", Simulation.close_and_open, 2, points.SYNCING),
    ("fill disk", Simulation.fill_disk, 1, points.APPENDING),
    ("fail sync", Simulation.fail_sync, 2, points.NOTING_A_FAULT),
    ("fail append", Simulation.fail_append, 1, points.NOTING_A_FAULT),
]
WEIGHTS = [weight for _, _, weight, _ in OPERATIONS]

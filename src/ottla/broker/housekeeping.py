"""What a broker does by itself: retention, compaction, forgetting producers, trying failed disks again.

Each pass looks at the open partitions only; one that fails does not stop the others. Nothing here blocks:
files are removed by the pool, compaction runs in a process of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.errors import OttlaError, StorageFault
from ottla.metadata.catalog import Catalog
from ottla.partitions.hosted import HostedPartitions
from ottla.partitions.partition import Partition
from ottla.scheduler import Scheduler, Timer
from ottla.storage.compaction import CompactionResult
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.swap import SwapJob

OPEN_MS = 50
"""How often one more partition is opened that no client has used since the start."""
REOPEN_MS = 10_000
"""How often a partition that went offline is tried again."""

Compacted = Callable[[CompactionResult | OttlaError], None]
Compactor = Callable[[str, CompactionPlan, Compacted], None]
"""Carries out a plan for a directory somewhere else, and says on the owner's thread how that ended."""

_logger = logging.getLogger(__name__)


class Housekeeping:
    """Timers over all partitions."""

    def __init__(
        self,
        partitions: HostedPartitions,
        catalog: Catalog,
        *,
        scheduler: Scheduler,
        compactor: Compactor | None,
    ) -> None:
        self._partitions = partitions
        self._catalog = catalog
        self._scheduler = scheduler
        self._compactor = compactor
        self._compacting = False
        self._to_compact: deque[Partition] = deque()
        """Whose turn comes in the pass that is under way."""
        self._timers: dict[str, Timer] = {}
        self._stopped = False

    def start(self) -> None:
        """Begin the passes."""
        self._again("retention", "log.retention.check.interval.ms", self._apply_retention)
        self._again("compaction", "log.cleaner.backoff.ms", self._compact)
        self._timers["reopen"] = self._scheduler.call_later(REOPEN_MS, self._reopen)
        self._timers["open"] = self._scheduler.call_later(OPEN_MS, self._open_next)

    def stop(self) -> None:
        """End them."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _again(self, name: str, setting: str, work: Callable[[], None]) -> None:
        def run() -> None:
            if not self._stopped:
                work()
                self._again(name, setting, work)

        self._timers[name] = self._scheduler.call_later(self._catalog.broker_configs().integer(setting), run)

    # --- retention -----------------------------------------------------------------------------------

    def _apply_retention(self) -> None:
        for (topic, index), partition in self._partitions:
            if partition.offline is None:
                try:
                    self.retain(partition)
                    partition.log.expire_producers()
                except OttlaError as error:
                    _logger.error("retention of %s-%d: %s", topic, index, error)

    def retain(self, partition: Partition) -> None:
        """Let go of what one partition has kept long enough."""
        partition.roll_if_expired()
        job = partition.log.apply_retention(below_offset=partition.high_watermark)
        if job is not None:
            _logger.info("%s: %d segments have expired", partition.log.directory, len(job.segments))
            partition.run(job, partial(_report, partition))

    # --- compaction ----------------------------------------------------------------------------------

    def _compact(self) -> None:
        """One compaction at a time: it is the disk and the second core that it shares with everybody."""
        if (
            self._compactor is None
            or self._compacting
            or not self._catalog.broker_configs().boolean("log.cleaner.enable")
        ):
            return
        # Everybody has a turn in each pass, so that one that fails again and again does not keep the others waiting.
        self._to_compact = deque(partition for _, partition in self._partitions if partition.config.log.compact)
        self._compact_next()

    def _compact_next(self) -> None:
        while self._to_compact and self._compactor is not None and not self._stopped:
            partition = self._to_compact.popleft()
            if partition.offline is not None:
                continue
            try:
                planned = partition.log.plan_compaction(high_watermark=partition.high_watermark)
            except OttlaError as error:
                _logger.error("compaction of %s: %s", partition.log.directory, error)
                continue
            if planned is not None:
                self._compacting = True
                self._compactor(partition.log.directory, planned, partial(self._compacted, partition, planned))
                return
        self._compacting = False

    def _compacted(self, partition: Partition, planned: CompactionPlan, outcome: CompactionResult | OttlaError) -> None:
        job: SwapJob | None = None
        try:
            if isinstance(outcome, OttlaError):
                raise outcome
            if partition.offline is None and not self._stopped:
                job = partition.log.install_compaction(planned, outcome)
        except OttlaError as error:
            _logger.error("compaction of %s: %s", partition.log.directory, error)
        if job is None:
            self._compact_next()
        else:
            partition.run(job, partial(self._swapped, partition, job))

    def _swapped(self, partition: Partition, job: SwapJob, fault: StorageFault | None) -> None:
        if fault is not None:
            partition.fail(fault)
        elif partition.offline is None:
            released = partition.log.complete_compaction(job)
            partition.run(released, lambda fault: None)
            # There may be more to do in it; the others come first.
            self._to_compact.append(partition)
        self._compact_next()

    # --- what nobody has used yet ---------------------------------------------------------------------

    def _open_next(self) -> None:
        if not self._stopped and self._partitions.open_next():
            self._timers["open"] = self._scheduler.call_later(OPEN_MS, self._open_next)

    # --- what failed -----------------------------------------------------------------------------------

    def _reopen(self) -> None:
        if not self._stopped:
            try:
                self._partitions.reopen_failed()
            finally:
                self._timers["reopen"] = self._scheduler.call_later(REOPEN_MS, self._reopen)


def _report(partition: Partition, fault: StorageFault | None) -> None:
    if fault is not None:
        _logger.error("%s: expired segments could not be removed: %s", partition.log.directory, fault)

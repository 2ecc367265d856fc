"""One compaction of one log, from the plan to the swap: whether what was planned still holds.

Between the two, in another process perhaps, the log goes on: segments may have been removed or truncated. A
result that speaks of segments that are no longer the same is dropped.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.storage import swap
from ottla.storage.compaction import CompactionResult
from ottla.storage.compaction_plan import CompactionPlan, plan
from ottla.storage.disk import Disk
from ottla.storage.log_config import LogConfig
from ottla.storage.seal import Seal
from ottla.storage.segments import Segments
from ottla.storage.swap import SwapJob


class CompactionTurn:
    """What a log must remember of its compactions."""

    __slots__ = ("_next_horizon_ms", "_planned", "is_swapping")

    def __init__(self) -> None:
        self.is_swapping = False
        """From `install` to `complete`: the files behind the segments are being replaced."""
        self._planned: dict[int, Seal] = {}
        """The seals that the sources had when they were planned for, by base offset."""
        self._next_horizon_ms: int | None = None

    def plan(
        self,
        segments: Segments,
        config: LogConfig,
        *,
        now_ms: int,
        first_unstable_offset: int | None,
        high_watermark: int,
    ) -> CompactionPlan | None:
        """What there is to do now, if anything."""
        planned = plan(
            segments.facts(),
            config,
            now_ms=now_ms,
            first_unstable_offset=first_unstable_offset,
            high_watermark=high_watermark,
            earliest_horizon_ms=self._next_horizon_ms,
        )
        if planned is None:
            return None
        sources = segments.starting_at(source.base_offset for source in planned.sources)
        # Compaction reads the aborted transactions from the index files, so these must be right.
        self._planned = {segment.base_offset: segment.sound_seal() for segment in sources}
        aborted = segments.aborted(planned.sources[0].base_offset, end_offset=planned.end_offset)
        beyond = tuple(entry for entry in aborted if entry.last_offset >= planned.end_offset)
        return replace(planned, aborted_beyond=beyond)

    def install(
        self, disk: Disk, directory: str, segments: Segments, planned: CompactionPlan, result: CompactionResult
    ) -> SwapJob | None:
        """The job that swaps the result in; None when the log has moved on."""
        sources = segments.starting_at(source.base_offset for source in planned.sources)
        if {segment.base_offset: segment.seal for segment in sources} != self._planned or not self._planned:
            swap.drop_undecided(disk, directory)
            return None
        self.is_swapping = True
        for segment in sources:
            segment.hold()
        horizons = [result.next_horizon_ms]
        if not result.outputs or result.outputs[-1].end_offset < planned.end_offset:
            # What was left out this time keeps the horizons that it had.
            horizons.append(self._next_horizon_ms)
        next_horizon_ms = min((horizon for horizon in horizons if horizon is not None), default=None)
        return SwapJob(disk, directory, [output.base_offset for output in result.outputs], next_horizon_ms)

    def complete(self, job: SwapJob) -> None:
        """The job has run; the same result is not installed twice."""
        self.is_swapping = False
        self._planned = {}
        self._next_horizon_ms = job.next_horizon_ms

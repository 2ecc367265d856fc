"""How far a stream may read next: what is new, within the limits, and what became of partitions that went away.

The logic behind `stream_reader`, without Spark: offsets in, offsets and ranges out. Lives in the driver's worker for as
long as the query runs, so it remembers the target of an AvailableNow run and what brokers told last. A broker that is
away for a while is waited for; only one that never answered is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.client.errors import NoBrokerReachable, PartitionNotFound, TopicNotFound
from ottla.client.transport import run_now
from ottla.client.values import TopicPartition
from ottla.errors import OttlaError
from ottla.spark import planning
from ottla.spark.errors import DataLost, InvalidOption
from ottla.spark.group_offsets import GroupOffsets
from ottla.spark.news import sampled_sizes, wait_for_news
from ottla.spark.offsets import Offsets
from ottla.spark.options import ReadOptions
from ottla.spark.patience import Outage, Patience
from ottla.spark.planning import LostRecords, OffsetRange
from ottla.spark.topics import UNCOMMITTED, PartitionWatch

T = TypeVar("T")

METADATA_AGE_MAX_MS = 2_000
"""How soon new partitions are noticed. A look costs a request, which a stream of small batches should not pay each."""
ENDS_AGE_MAX_MS = 250
"""A stream that is far behind knows where its next batch ends without asking; it looks again after this long."""
DOUBT_LOOKS = 5
DOUBT_PAUSE_MS = 200
"""Before records are declared lost it is looked again, for a second: a broker that has just started may be behind."""
OUTAGE_PAUSE_MS = 500
FIRST_CONTACT_MS = 10_000
"""How long a query that starts looks for a broker: one that is being restarted just then is no wrong address."""
OUTAGE_MS = 300_000
"""How long a question is asked again without whose answer no batch can be planned."""

HELD_BACK_PAUSE_MS = 100
"""With minOffsetsPerTrigger: how often it is looked whether there is enough."""
SAMPLED_MAX = 64
"""Partitions whose records are weighed at a time."""
WEIGHED_MS = 60_000
"""How long a weight is good for where nothing but the number of tasks depends on it."""

_logger = logging.getLogger(__name__)


class StreamProgress:
    """One query's way through its partitions."""

    def __init__(self, options: ReadOptions, watch: PartitionWatch) -> None:
        self._options = options
        self._watch = watch
        self._ticks = watch.cluster.ticks
        self._group = None if options.group_id is None else GroupOffsets(watch.cluster, options.group_id)
        self._first_contact_until_ms = self._ticks.now_ms() + FIRST_CONTACT_MS
        self._outage = Outage(self._ticks)
        self._patience = Patience(self._ticks)
        self._start: Offsets | None = None
        self._unfit: list[InvalidOption] = []
        """Why some partitions have no start. A first batch that was planned before they came may still be read."""
        self._target: Offsets | None = None
        """What an AvailableNow run ends with."""
        self._ends: Offsets = {}
        """As told last."""
        self._whole_look_ms: int | None = None
        """When all partitions told their ends, and were those of the topics that were read before."""
        self._topic_ids: dict[str, bytes] = {}
        self._made_anew: set[str] = set()
        """Topics that are not those that were read before, although they have their names."""
        self._same_ids: dict[str, bytes] = {}
        """The ids under which topics were as long as they had to be: still the same, they were not made anew."""
        self._record_bytes: dict[TopicPartition, float] = {}
        self._weighed_ms: int | None = None
        self._last_batch_ms: int | None = None
        self._told: set[str] = set()

    # --- what Spark asks -----------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins; the same each time.

        Partitions for which the options say nothing are left out: `first_start` refuses those.
        """
        if self._start is None:
            self._start = self._insisted(self._resolved)
            self._topic_ids = self._watch.topic_ids()
            self._same_ids = dict(self._topic_ids)
        return dict(self._start)

    def _resolved(self) -> Offsets:
        self._unfit.clear()
        return self._watch.resolved(self._options.start, self._watch.existing(), unfit=self._unfit)

    def first_start(self) -> Offsets:
        """The same for a batch that is yet to be planned."""
        start = self.initial()
        if self._unfit:
            raise self._unfit[0]
        return start

    def fix_target(self) -> None:
        """What is there now is all that this run will read."""
        self._target = self._insisted(lambda: self._watch.latest(self._watch.partitions()))
        self._ends = dict(self._target)

    def next_end(self, start: Offsets, *, within_limits: bool) -> Offsets:
        """Where the batch that begins at `start` ends; `start` itself when there is nothing to read."""
        if start == self._start:
            self.first_start()
        self.processed(start, is_last=start == self._target)
        if self._target is not None:
            # Without an answer the run would end here, with records left that it was started for.
            end = self._insisted(lambda: self._end_before_target(start, within_limits=within_limits))
            self._forget_made_anew(start, end)
            return end
        try:
            known = self._known_ends(start) if within_limits else None
            end = self._admitted(start, known or self._new_ends(start), within_limits=within_limits)
        except OttlaError as e:
            if not self._may_pass(e):
                raise
            # Told as no news, so that Spark is not blocked and the query can be stopped.
            self._outage.noted(e)
            self._watch.pause(OUTAGE_PAUSE_MS)
            end = start
        self._forget_made_anew(start, end)
        self._patience.answered(has_news=end != start)
        return end

    def _forget_made_anew(self, start: Offsets, end: Offsets) -> None:
        """Topics made anew are back at their beginning once a batch ends there, and one that is held back does not."""
        if end != start:
            self._made_anew -= {key.topic for key in end}

    def ends(self) -> Offsets:
        """Where partitions end now, for who does not say where it stands."""
        return self._insisted(lambda: self._looked({}, age_max_ms=0))

    def newest(self) -> Offsets | None:
        """The ends as they were told last, for reports of the progress; asks nobody."""
        return dict(self._ends) if self._ends else None

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What lies between two places of the stream, which may have been noted before a restart."""
        self._patience.batch_ran()
        if start == self._start:
            # Before a restart this start may have been found without partitions that came since: they are for later.
            if self._unfit and not end.keys() <= start.keys():
                raise self._unfit[0]
            start = {key: offset for key, offset in start.items() if key in end}
        starts: Offsets = {}
        absent: list[TopicPartition] = []
        for _ in range(DOUBT_LOOKS):
            starts = self._insisted(lambda: self._starting_points(start, end))
            absent = sorted(key for key in end.keys() - starts.keys() - start.keys() if end[key] > 0)
            if not absent:
                break
            self._watch.pause(DOUBT_PAUSE_MS)
            self._watch.forget()
        self._report(_gone(key, end[key]) for key in absent)
        return planning.ranges(starts, end)

    def record_bytes(self, ranges: list[OffsetRange]) -> Mapping[TopicPartition, float]:
        """What a record of each partition weighs, for sharing ranges out among tasks.

        Learnt anew only now and then, since it costs a request and hardly ever changes.
        """
        is_old = self._weighed_ms is None or self._ticks.now_ms() - self._weighed_ms >= WEIGHED_MS
        if ranges and is_old:
            starts = {TopicPartition(each.topic, each.partition): each.start for each in ranges}
            ends = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
            try:
                return self._weighed(starts, ends)
            except OttlaError as e:
                _logger.debug("no sample could be had: %s", e)
        return self._record_bytes

    @property
    def weights(self) -> Mapping[TopicPartition, float]:
        """The same, of those that were weighed so far; asks nobody."""
        return self._record_bytes

    def processed(self, offsets: Offsets, *, is_last: bool = False) -> None:
        """Everything before these offsets is done with."""
        if self._group is not None and not self._outage.lasts:
            # Brokers take no position in a topic that was deleted, and would have to be asked until they do.
            known = set(self._watch.known)
            there = {key: offset for key, offset in offsets.items() if key in known or not known}
            self._group.store(there, is_last=is_last)

    def batch_noted(self, offsets: Offsets) -> None:
        """Spark has noted the end of a batch, which it does when it begins the next one."""
        self._patience.batch_ran()
        self.processed(offsets)

    # --- ends ----------------------------------------------------------------------------------------

    def _looked(self, start: Offsets, *, age_max_ms: int) -> Offsets:
        """The ends as they are. A partition that is there but cannot tell its end now keeps the place where it is."""
        found = self._watch.ends_now(age_max_ms=age_max_ms)
        if found.problem is not None:
            self._outage.noted(found.problem)
        else:
            self._outage.over()
        self._ends = dict(found.offsets)
        self._note_ids()
        there = self._watch.partitions(age_max_ms=METADATA_AGE_MAX_MS)
        silent = {key: start[key] for key in there if key not in found.offsets and key in start}
        return found.offsets | silent

    def _known_ends(self, start: Offsets) -> Offsets | None:
        """The ends as they were told a moment ago, if there is more before them than the next batch may read."""
        records_max, looked_ms = self._options.records_per_trigger_max, self._whole_look_ms
        if records_max is None or looked_ms is None or self._ticks.now_ms() - looked_ms >= ENDS_AGE_MAX_MS:
            return None
        if start.keys() != self._ends.keys() or any(start[key] > end for key, end in self._ends.items()):
            return None
        behind = sum(end - start[key] for key, end in self._ends.items())
        return dict(self._ends) if behind > records_max else None

    def _new_ends(self, start: Offsets) -> Offsets:
        """The ends for the next batch of a query that goes on."""
        self._whole_look_ms = None
        asked_ms = self._ticks.now_ms()
        ends = self._awaited(start)
        if ends != start:
            # Ends go by names. Asked after them, ids tell whether they are still those of the topics that were read.
            self._watch.ask_for_ids()
            self._note_ids()
            if ends == self._ends and not self._made_anew:
                self._whole_look_ms = asked_ms
        return ends

    def _note_ids(self) -> None:
        ids = self._watch.topic_ids()
        self._made_anew |= {name for name, known in self._topic_ids.items() if ids.get(name, known) != known}
        self._topic_ids |= ids

    def _awaited(self, start: Offsets) -> Offsets:
        """The ends as they are, held back for a while when there is nothing new."""
        wait_ms = self._patience.wait_ms()
        ends = self._believed(start, self._looked(start, age_max_ms=METADATA_AGE_MAX_MS))
        if ends != start or wait_ms == 0:
            return ends
        if not ends:
            # A pattern that no topic matches yet.
            self._watch.pause(wait_ms)
            return ends
        news = run_now(wait_for_news(self._watch.cluster, ends, isolation=self._watch.isolation, wait_ms=wait_ms))
        self._ends |= news
        return ends | news

    def _end_before_target(self, start: Offsets, *, within_limits: bool) -> Offsets:
        """The end of the next batch of a run that ends with the target."""
        target = self._target or {}
        if start == self._start:
            # Latest was asked for after the target was fixed: those that came in between are for the next run.
            target = {key: max(end, start.get(key, end)) for key, end in target.items()}
        self._target = self._believed(start, target)
        return self._admitted(start, self._target, within_limits=within_limits)

    def _believed(self, start: Offsets, ends: Offsets) -> Offsets:
        """The ends, after a second look at those which say that records are lost."""
        for _ in range(DOUBT_LOOKS):
            doubtful = self._doubtful(start, ends)
            if not doubtful:
                break
            self._watch.pause(DOUBT_PAUSE_MS)
            fresh = self._looked(start, age_max_ms=0)
            ends = {key: end for key, end in ends.items() if key not in doubtful}
            for key in doubtful & fresh.keys():
                # Never beyond the target, which would be below.
                ends[key] = start[key] if self._target is not None and fresh[key] >= start[key] else fresh[key]
        return ends

    def _doubtful(self, start: Offsets, ends: Offsets) -> set[TopicPartition]:
        """Partitions that are gone or too short. Where transactions are open, only the whole log tells how long it is.

        Those of the last kind get the place where they are for an end.
        """
        short = {key for key, end in ends.items() if key in start and end < start[key]}
        if short and self._watch.isolation != UNCOMMITTED:
            whole = self._watch.log_ends(short)
            held_up = {key: start[key] for key in short if whole.get(key, -1) >= start[key]}
            ends |= held_up
            short -= held_up.keys()
        return short | (start.keys() - ends.keys())

    # --- starts, losses and limits -------------------------------------------------------------------

    def _admitted(self, start: Offsets, ends: Offsets, *, within_limits: bool) -> Offsets:
        """As much of what is there as a batch may read."""
        ends, is_restart = self._restarted(start, ends)
        starts = self._starting_points(start, ends)
        self._note_same(start, ends)
        ends = {key: end for key, end in ends.items() if key in starts}
        if not within_limits:
            return ends
        options, now_ms = self._options, self._ticks.now_ms()
        may_wait = self._target is None and not is_restart
        if may_wait and planning.is_held_back(
            starts,
            ends,
            records_min=options.records_per_trigger_min,
            delay_max_ms=options.trigger_delay_max_ms,
            now_ms=now_ms,
            last_trigger_ms=self._last_batch_ms,
        ):
            self._watch.pause(HELD_BACK_PAUSE_MS)
            return start
        end = planning.limited(
            starts,
            ends,
            records_max=options.records_per_trigger_max,
            bytes_max=options.bytes_per_trigger_max,
            bytes_per_record={} if options.bytes_per_trigger_max is None else self._weighed(starts, ends),
        )
        if end != start:
            self._last_batch_ms = now_ms
        return end

    def _note_same(self, start: Offsets, ends: Offsets) -> None:
        """Topics that are as long as they have to be are those that were read, and known by their ids from now on."""
        changed = {key.topic for key, end in ends.items() if start.get(key, 0) > end} | self._made_anew
        self._same_ids |= {name: known for name, known in self._topic_ids.items() if name not in changed}

    def _restarted(self, start: Offsets, ends: Offsets) -> tuple[Offsets, bool]:
        """Send partitions of topics that were made anew back to their beginning, which the next batch starts from."""
        anew = {key for key in ends if key.topic in self._made_anew}
        back = [key for key in sorted(anew) if key in start and 0 < start[key] <= ends[key]]
        if back:
            self._report(
                LostRecords(
                    topic=key.topic,
                    partition=key.partition,
                    start=start[key],
                    end=None,
                    reason="the topic was deleted and made anew",
                )
                for key in back
            )
            ends = ends | self._watch.earliest(back)
        return ends, bool(back)

    def _starting_points(self, start: Offsets, ends: Offsets) -> Offsets:
        """Where each partition is read on from; reports what was lost."""
        unknown = planning.unknown_beginnings(start, ends)
        beginnings: Offsets = {}
        if unknown:
            there = set(self._watch.partitions(age_max_ms=METADATA_AGE_MAX_MS))
            beginnings = self._watch.earliest(key for key in unknown if key in there)
        same = {name for name, known in self._same_ids.items() if self._topic_ids.get(name) == known}
        found = planning.starting_points(start, ends, beginnings, same=same)
        self._report(found.lost)
        return found.offsets

    def _report(self, lost: Iterable[LostRecords]) -> None:
        told = tuple(lost)
        if not told:
            return
        if self._options.fail_on_data_loss:
            raise DataLost(planning.described(told))
        new = [each for each in told if str(each) not in self._told]
        self._told.update(str(each) for each in new)
        if new:
            _logger.warning("data was lost, and failOnDataLoss is false: %s", planning.described(new))

    def _weighed(self, starts: Offsets, ends: Offsets) -> Mapping[TopicPartition, float]:
        """What records weigh, learnt from the first batches of what is to be read; those not yet weighed go first."""
        wanted = [TopicPartition(each.topic, each.partition) for each in planning.ranges(starts, ends)]
        wanted.sort(key=lambda key: key in self._record_bytes)
        places = {key: starts[key] for key in wanted[:SAMPLED_MAX]}
        if places:
            self._weighed_ms = self._ticks.now_ms()
            self._record_bytes |= run_now(sampled_sizes(self._watch.cluster, places, isolation=self._watch.isolation))
        return self._record_bytes

    # --- trouble -------------------------------------------------------------------------------------

    def _may_pass(self, error: OttlaError) -> bool:
        is_early = self._ticks.now_ms() < self._first_contact_until_ms
        return self._watch.may_pass(error) or (is_early and isinstance(error, NoBrokerReachable))

    def _insisted(self, ask: Callable[[], T]) -> T:
        """For what Spark cannot do without: asked until it is answered, for as long as brokers may be away."""
        deadline_ms = self._ticks.now_ms() + OUTAGE_MS
        while True:
            try:
                answer = ask()
            except (TopicNotFound, PartitionNotFound):
                if self._ticks.now_ms() >= deadline_ms:
                    raise
                # Deleted since we last looked; the next look knows.
                self._watch.forget()
            except OttlaError as e:
                if not self._may_pass(e) or self._ticks.now_ms() >= deadline_ms:
                    raise
                self._outage.noted(e)
            else:
                self._outage.over()
                return answer
            self._watch.pause(OUTAGE_PAUSE_MS)

    def close(self) -> None:
        self._watch.close()


def _gone(key: TopicPartition, end: int) -> LostRecords:
    """Of a batch that was planned before a restart, and that is where its first offset was known."""
    reason = "the partition is gone"
    return LostRecords(topic=key.topic, partition=key.partition, start=0, end=end, reason=reason)

"""The partitions that a query reads, as the brokers tell of them: which there are, where they begin and end.

The driver's side of reading. Asks, and asks again while an answer may still come; what a stream makes of new, missing
or shortened partitions is decided in `stream_progress`. Reads no records.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.errors import PartitionNotFound, TopicNotFound
from ottla.client.errors_by_code import code_of, error_for
from ottla.client.offsets import OffsetFound, ask_once, list_offsets
from ottla.client.settings import check_isolation
from ottla.client.transport import run_now
from ottla.client.values import OffsetSpec, TopicPartition
from ottla.clock import Clock, SystemClock
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.spark.errors import InvalidOption
from ottla.spark.offsets import (
    EARLIEST_MARK,
    LATEST_MARK,
    ByTimestamp,
    Earliest,
    Exactly,
    Latest,
    Offsets,
    OffsetSpecification,
    RelativeRecords,
    RelativeTime,
    check_partitions,
    listed,
    names,
)
from ottla.spark.options import Assigned, Pattern, ReadOptions, Subscribed
from ottla.spark.pool import new_link
from ottla.spark.topic_patterns import matching, topic_expression

T = TypeVar("T")

LOOK_MS = 2_000
"""How long a stream asks for the ends of its partitions before it goes on with those that it has."""
UNCOMMITTED = 0


class Ends(NamedTuple):
    """Where partitions end now."""

    offsets: Offsets
    problem: OttlaError | None
    """Why some partitions are not among them, although they are there."""


class PartitionWatch:
    """What one query knows of its partitions. For one thread."""

    def __init__(self, cluster: Cluster, options: ReadOptions, *, clock: Clock) -> None:
        self.cluster = cluster
        self.options = options
        self._clock = clock
        self.isolation = check_isolation(options.connection.isolation)
        self._partitions: tuple[TopicPartition, ...] = ()
        self._looked_ms: int | None = None
        self._had_problem = False

    # --- which partitions ----------------------------------------------------------------------------

    def partitions(self, *, age_max_ms: int = 0) -> tuple[TopicPartition, ...]:
        """Those that there are, in order; asks unless it is known from at most so long ago.

        Topics and partitions that were named but are not there are left out; `existing` is for who must not miss any.
        """
        looked_ms = self._looked_ms
        if looked_ms is None or self.cluster.ticks.now_ms() - looked_ms >= age_max_ms:
            self._partitions = self._steadily(self._look)
            self._looked_ms = self.cluster.ticks.now_ms()
        return self._partitions

    def existing(self) -> tuple[TopicPartition, ...]:
        """The same, asked anew; refuses to begin without something that was named."""
        found = self.partitions()
        wanted = self.options.topics
        if isinstance(wanted, Subscribed):
            absent = [name for name in wanted.topics if name not in {key.topic for key in found}]
            if absent:
                raise InvalidOption(
                    "subscribe",
                    f"there is no topic {', '.join(map(repr, absent))}",
                    fix="Create it, correct the name, or use subscribePattern, which takes topics up when they appear",
                )
        elif isinstance(wanted, Assigned):
            lacking = set(wanted.partitions) - set(found)
            if lacking:
                fix = "Name partitions that exist; they are numbered from 0"
                raise InvalidOption("assign", f"there is no {listed(lacking)}", fix=fix)
        return found

    async def _look(self) -> tuple[TopicPartition, ...]:
        wanted = self.options.topics
        topics = await self._matching(wanted) if isinstance(wanted, Pattern) else _names(wanted)
        if not topics:
            return ()
        wrong = await self.cluster.refresh(topics)
        found: list[TopicPartition] = []
        for name in topics:
            code = wrong.get(name, ErrorCode.NONE)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            view = self.cluster.topology.topics.get(name)
            if view is None or not (code is ErrorCode.NONE or code.retriable):
                known = code if code is not ErrorCode.NONE else ErrorCode.LEADER_NOT_AVAILABLE
                raise error_for(known, about=f"topic {name!r}")
            found += view.keys
        if isinstance(wanted, Assigned):
            there = set(found)
            found = [key for key in wanted.partitions if key in there]
        return tuple(sorted(found))

    async def _matching(self, wanted: Pattern) -> list[str]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = await self.cluster.ask_any(ApiKey.METADATA, request, MetadataResponse)
        told = [topic for topic in response.topics if not topic.is_internal and _is_there(topic.error_code)]
        return matching(topic_expression(wanted.pattern), (topic.name for topic in told if topic.name))

    @property
    def known(self) -> tuple[TopicPartition, ...]:
        """The partitions as they were found last; asks nobody."""
        return self._partitions

    def ask_for_ids(self) -> None:
        """Hear anew of the topics that are known, without looking for others."""
        topics = list(dict.fromkeys(key.topic for key in self._partitions))
        if topics:
            self._steadily(lambda: self.cluster.refresh(topics))

    def topic_ids(self) -> dict[str, bytes]:
        """The ids of the topics as they were told last; a topic that was deleted and created anew has another one."""
        views = self.cluster.topology.topics
        topics = dict.fromkeys(key.topic for key in self._partitions)
        return {name: views[name].topic_id for name in topics if name in views and views[name].has_id}

    # --- where they begin and end --------------------------------------------------------------------

    def ends_now(self, *, age_max_ms: int) -> Ends:
        """The end of every partition that is there, as far as it can be had soon."""
        for is_last in (False, True):
            keys = self.partitions(age_max_ms=age_max_ms)
            try:
                found = run_now(self._ends(keys))
            except (TopicNotFound, PartitionNotFound):
                # Deleted since we last looked.
                if is_last:
                    raise
                age_max_ms = 0
            else:
                self._had_problem = found.problem is not None
                return found
        raise AssertionError("unreachable")

    async def _ends(self, keys: Iterable[TopicPartition]) -> Ends:
        """With trouble that lasts, one attempt a time: what can be read is not to wait for what cannot."""
        found: dict[TopicPartition, OffsetFound | None] = {}
        ticks = self.cluster.ticks
        deadline_ms = ticks.now_ms() + LOOK_MS
        wanted: dict[TopicPartition, int] = dict.fromkeys(keys, int(OffsetSpec.LATEST))
        for attempt in itertools.count(1):
            left = {key: spec for key, spec in wanted.items() if key not in found}
            problem = await ask_once(self.cluster, left, found, isolation=self.isolation, deadline_ms=deadline_ms)
            delay_ms = self.cluster.settings.backoff_ms(attempt)
            if problem is None or self._had_problem or ticks.now_ms() + delay_ms >= deadline_ms:
                break
            await self.cluster.transport.sleep(delay_ms)
        offsets = {key: place.offset for key, place in found.items() if place is not None}
        if problem is not None and not offsets:
            raise problem
        return Ends(offsets, problem)

    def latest(self, keys: Iterable[TopicPartition]) -> Offsets:
        """Their ends, for readers of this query's isolation."""
        return self._named(keys, OffsetSpec.LATEST, self.isolation)

    def log_ends(self, keys: Iterable[TopicPartition]) -> Offsets:
        """Their ends, whatever is still open before them."""
        return self._named(keys, OffsetSpec.LATEST, UNCOMMITTED)

    def earliest(self, keys: Iterable[TopicPartition]) -> Offsets:
        """The offset of the first record that each still has."""
        return self._named(keys, OffsetSpec.EARLIEST, self.isolation)

    def _named(self, keys: Iterable[TopicPartition], spec: OffsetSpec, isolation: int) -> Offsets:
        found = self._offsets(dict.fromkeys(keys, int(spec)), isolation)
        return {key: place.offset for key, place in found.items() if place is not None}

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, OffsetFound | None]:
        if not wanted:
            return {}

        async def ask() -> dict[TopicPartition, OffsetFound | None]:
            deadline_ms = self.cluster.deadline_ms()
            return await list_offsets(self.cluster, wanted, isolation=isolation, deadline_ms=deadline_ms)

        return self._steadily(ask)

    # --- what a specification comes to ---------------------------------------------------------------

    def resolved(
        self,
        specification: OffsetSpecification,
        keys: Iterable[TopicPartition],
        *,
        is_end: bool = False,
        unfit: list[InvalidOption] | None = None,
    ) -> Offsets:
        """The offsets that a start, or the end of a batch, stands for in these partitions.

        With `unfit`, partitions for which it stands for nothing are left out, and it is noted there what that would
        otherwise be refused with.
        """
        wanted = tuple(keys)
        try:
            check_partitions(specification, wanted)
        except InvalidOption as e:
            _note(e, unfit)
            wanted = tuple(key for key in wanted if names(specification, key))
        match specification:
            case Earliest():
                return self.earliest(wanted)
            case Latest():
                return self.latest(wanted)
            case Exactly():
                return self._exactly(specification, wanted)
            case ByTimestamp():
                times_ms = {key: specification.time_ms(key) for key in wanted}
                strict = specification.strategy == "error" and not is_end
                return self._by_time(times_ms, option=specification.option if strict else None, unfit=unfit)
            case RelativeTime():
                since_ms = max(0, self._clock.now_ms() - specification.back_ms)
                return self._by_time(dict.fromkeys(wanted, since_ms), option=None)
            case RelativeRecords():
                begins, ends = self.earliest(wanted), self.latest(wanted)
                return {key: max(begins[key], ends[key] - specification.count) for key in wanted}

    def _exactly(self, specification: Exactly, keys: tuple[TopicPartition, ...]) -> Offsets:
        found = {key: specification.offsets[key] for key in keys}
        found |= self.earliest([key for key, offset in found.items() if offset == EARLIEST_MARK])
        found |= self.latest([key for key, offset in found.items() if offset == LATEST_MARK])
        return found

    def _by_time(
        self, times_ms: Mapping[TopicPartition, int], *, option: str | None, unfit: list[InvalidOption] | None = None
    ) -> Offsets:
        """With an `option` it is an error, named by it, when no record is that young; otherwise the end is meant."""
        found = self._offsets(times_ms, self.isolation)
        offsets = {key: place.offset for key, place in found.items() if place is not None}
        too_late = [key for key in times_ms if key not in offsets]
        if too_late and option is not None:
            fix = "Give an earlier time, or set startingOffsetsByTimestampStrategy to latest, to begin at the end"
            _note(InvalidOption(option, f"no record is that young in {listed(too_late)}", fix=fix), unfit)
            return offsets
        return offsets | self.latest(too_late)

    # --- trouble -------------------------------------------------------------------------------------

    def may_pass(self, error: OttlaError) -> bool:
        """Whether it is worth asking again later; not while no broker has ever answered."""
        return self.cluster.may_pass(error)

    def forget(self) -> None:
        """What is known of the partitions turned out to be wrong."""
        self._looked_ms = None

    def pause(self, delay_ms: int) -> None:
        run_now(self.cluster.transport.sleep(delay_ms))

    def close(self) -> None:
        run_now(self.cluster.transport.close())

    def _steadily(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As often as fetchOffset.numRetries says, while there is hope."""
        for attempt in itertools.count(1):
            try:
                return run_now(ask())
            except OttlaError as e:
                if attempt >= self.options.fetch_retries or not self.may_pass(e):
                    raise
            self.pause(self.options.fetch_retry_interval_ms)
        raise AssertionError("unreachable")


def watch(options: ReadOptions) -> PartitionWatch:
    """A watch with connections of its own."""
    return PartitionWatch(new_link(options.connection).cluster, options, clock=SystemClock())


def _note(problem: InvalidOption, unfit: list[InvalidOption] | None) -> None:
    if unfit is None:
        raise problem
    unfit.append(problem)


def _names(wanted: Assigned | Subscribed) -> list[str]:
    topics = wanted.topics if isinstance(wanted, Subscribed) else (key.topic for key in wanted.partitions)
    return list(dict.fromkeys(topics))


def _is_there(error_code: int) -> bool:
    """A topic without leaders at the moment is one all the same."""
    code = code_of(error_code)
    return code is ErrorCode.NONE or (code.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

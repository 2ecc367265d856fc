"""One seeded life of a shard's offsets: plain commits and transactions, deletions, compactions and crashes.

A decision's records become durable together, some time after it was made. When the shard dies, decisions that were not
durable are lost from some point on, and whoever told of a transaction's end without being answered tells it again.
After each step what can be read is compared with a model, which knows the order in which offsets were stored, as Kafka
does:

- of a transaction everything is committed, or nothing;
- of all that was committed for a partition, what was stored last is read;
- stable offsets are refused exactly while a transaction may still change them;
- nothing of a deleted group, offset or topic comes back;
- what is counted for the limits is what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ottla.coordinators.groups import records
from ottla.coordinators.groups.offsets_pending import deleting_bytes, ending_bytes
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, TimerKey
from ottla.error_codes import ErrorCode
from ottla.errors import GroupIdNotFound
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.control import MarkerType
from tests.coordinators.groups.shard_stage import Topics

STEPS = 120
GROUPS = ("g", "h")
TOPICS = {"t": 2, "u": 1}
PRODUCERS = (7, 8, 9)
UNSTABLE = -2
"""What stands for an offset that is refused because it is not stable."""

Decide = Callable[[GroupShard, int, Outcome, int], None]


class Place(NamedTuple):
    group: str
    topic: str
    partition: int


class Stored(NamedTuple):
    position: int
    """Counts everything that is stored."""
    offset: int
    life: int
    """Of the topic: how often it has been made again."""


@dataclass
class Model:
    """What should be there."""

    committed: dict[Place, Stored] = field(default_factory=dict)
    pending: dict[int, dict[Place, Stored]] = field(default_factory=dict)

    def end(self, producer: int, lives: dict[str, int], *, is_commit: bool) -> None:
        for place, stored in self.pending.pop(producer, {}).items():
            there = self.committed.get(place)
            is_newest = there is None or there.position < stored.position
            if is_commit and is_newest and lives.get(place.topic, 0) == stored.life:
                self.committed[place] = stored

    def delete(self, is_gone: Callable[[Place, Stored], bool]) -> None:
        for stored in (self.committed, *self.pending.values()):
            for place in [place for place, each in stored.items() if is_gone(place, each)]:
                del stored[place]
        self.pending = {producer: stored for producer, stored in self.pending.items() if stored}


@dataclass
class Producer:
    """Whoever has transactions; the transaction coordinator behind it forgets nothing."""

    epoch: int = 0
    marker: tuple[int, MarkerType] | None = None
    """The end that is being told, until the answer is there."""
    told_at: int = -1
    """The decision that must be durable for it."""


class OffsetsSimulation:
    """The life of one shard."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self._random = Random(seed)
        self._counts = counts
        self._topics = Topics(dict(TOPICS))
        self._now_ms = 1_000
        self._position = 0
        self._producers = {producer_id: Producer() for producer_id in PRODUCERS}
        self._durable: list[CoordinatorRecord] = []
        self._durable_model = Model()
        self._unsynced: list[tuple[list[CoordinatorRecord], Model]] = []
        self._decisions = 0
        """How many are durable."""
        self._model = Model()
        self._begin()

    def run(self) -> str:
        """Live it; returns what is left."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self._commit),
            (50, self._pend),
            (30, self._end),
            (10, self._tell_end_again),
            (3, self._delete_group),
            (6, self._delete_offset),
            (3, self._remake_topic),
            (5, self._sweep),
            (25, self._sync),
            (10, self._crash),
            (8, self._compact),
        ]
        for _ in range(STEPS):
            (action,) = self._random.choices([each for _, each in actions], [weight for weight, _ in actions])
            action()
            self._check()
        return repr((self._model, self._durable))

    def _begin(self) -> None:
        self._timers: dict[TimerKey, int] = {}
        self._shard = GroupShard(GroupSettings(), lambda: self._topics, lambda prefix: prefix)
        for key, value in self._durable:
            written = None if value is None else records.encode_value(value)
            decoded = records.decode(records.encode_key(key), written)
            assert decoded is not None
            self._shard.replay(decoded.key, decoded.value)
        self._model = deepcopy(self._durable_model)
        self._decide(lambda shard, ticket, outcome, now_ms: shard.loaded(outcome, now_ms))

    def _decide(self, decide: Decide) -> object:
        outcome = Outcome(self._shard.replay)
        decide(self._shard, 1, outcome, self._now_ms)
        self._unsynced.append((outcome.records, deepcopy(self._model)))
        for key, at_ms in outcome.timers.items():
            if at_ms is None:
                self._timers.pop(key, None)
            else:
                self._timers[key] = at_ms
        return outcome.replies[0][1] if outcome.replies else None

    # --- what can happen ---------------------------------------------------------------------------------

    def _places(self) -> list[Place]:
        group = self._random.choice(GROUPS)
        there = [Place(group, topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
        return self._random.sample(there, self._random.randint(1, len(there)))

    def _stored(self, place: Place) -> Stored:
        return Stored(self._position, self._random.randint(0, 1_000), self._topics.lives.get(place.topic, 0))

    def _commit(self) -> None:
        self._position += 1
        stored = {place: self._stored(place) for place in self._places()}
        self._model.committed |= stored
        request = OffsetCommitRequest(
            group_id=next(iter(stored)).group,
            topics=[
                OffsetCommitRequestTopic(
                    name=place.topic,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=each.offset)
                    ],
                )
                for place, each in stored.items()
            ],
        )
        self._decide(lambda shard, ticket, outcome, now_ms: shard.commit(request, 9, ticket, outcome, now_ms))
        is_overtaking = any(place in pending for pending in self._model.pending.values() for place in stored)
        self._counts["a plain commit overtakes a transaction" if is_overtaking else "a plain commit"] += 1

    def _pend(self) -> None:
        producer_id = self._random.choice(PRODUCERS)
        producer = self._producers[producer_id]
        if producer.marker is not None:
            return
        self._position += 1
        stored = {place: self._stored(place) for place in self._places()}
        self._model.pending.setdefault(producer_id, {}).update(stored)
        request = TxnOffsetCommitRequest(
            group_id=next(iter(stored)).group,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=place.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=place.partition, committed_offset=each.offset)
                    ],
                )
                for place, each in stored.items()
            ],
        )
        self._decide(
            lambda shard, ticket, outcome, now_ms: shard.commit_transactional(request, 5, ticket, outcome, now_ms)
        )
        self._counts["a transaction stores offsets"] += 1

    def _end(self) -> None:
        producer_id = self._random.choice(PRODUCERS)
        producer = self._producers[producer_id]
        if producer.marker is not None:
            return
        if self._random.random() < 0.5:
            # The second version of transactions, or a fence.
            producer.epoch += 1
        marker_type = self._random.choice((MarkerType.COMMIT, MarkerType.COMMIT, MarkerType.ABORT))
        producer.marker = producer.epoch, marker_type
        self._tell_end(producer_id, producer.marker)
        self._counts[f"a transaction ends: {marker_type.name}"] += 1

    def _tell_end_again(self) -> None:
        producer_id = self._random.choice(PRODUCERS)
        producer = self._producers[producer_id]
        if producer.marker is not None:
            self._tell_end(producer_id, producer.marker)
            self._counts["an end is told again"] += 1

    def _tell_end(self, producer_id: int, marker: tuple[int, MarkerType]) -> None:
        epoch, marker_type = marker
        self._model.end(producer_id, self._topics.lives, is_commit=marker_type is MarkerType.COMMIT)
        reply = self._decide(
            lambda shard, ticket, outcome, now_ms: shard.end_transaction(
                EndTxnResponse(),
                ticket,
                outcome,
                now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                marker_type=marker_type,
            )
        )
        assert reply == EndTxnResponse()
        self._producers[producer_id].told_at = self._decisions + len(self._unsynced)

    def _delete_group(self) -> None:
        group = self._random.choice(GROUPS)
        is_there = any(place.group == group for place in self._all_places())
        self._model.delete(lambda place, _: place.group == group)
        try:
            self._decide(lambda shard, ticket, outcome, now_ms: shard.delete_group(group, ticket, outcome, now_ms))
        except GroupIdNotFound:
            assert not is_there
        else:
            self._counts["a group is deleted"] += 1

    def _delete_offset(self) -> None:
        group, topic, partition = gone = self._places()[0]
        is_there = any(place.group == group for place in self._all_places())
        self._model.delete(lambda place, _: place == gone)
        partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        )
        try:
            self._decide(lambda shard, ticket, outcome, now_ms: shard.delete_offsets(request, ticket, outcome, now_ms))
        except GroupIdNotFound:
            assert not is_there
        else:
            self._counts["an offset is deleted"] += 1

    def _remake_topic(self) -> None:
        self._topics.make_again(self._random.choice(list(TOPICS)))
        self._counts["a topic is made again"] += 1
        if self._random.random() < 0.7:
            self._decide(
                lambda shard, ticket, outcome, now_ms: shard.topics_changed(outcome, now_ms, is_any_deleted=True)
            )

    def _sweep(self) -> None:
        """What is left of topics that were deleted goes, also if nobody has told of them."""
        self._decide(lambda shard, ticket, outcome, now_ms: shard.topics_changed(outcome, now_ms, is_any_deleted=True))
        self._model.delete(lambda place, stored: stored.life != self._topics.lives.get(place.topic, 0))
        for _ in range(10):
            for key in [key for key in self._timers if key[1] == "sweep"]:
                del self._timers[key]
                self._decide(
                    lambda shard, ticket, outcome, now_ms, key=key: shard.on_timer(key, outcome, now_ms)  # type: ignore[misc]
                )
        assert len(self._shard.offsets) == len(self._model.committed)
        assert len(self._shard.pending) == sum(map(len, self._model.pending.values()))

    def _sync(self) -> None:
        for written, model in self._unsynced:
            self._durable += written
            self._durable_model = model
        self._decisions += len(self._unsynced)
        self._unsynced.clear()
        for producer in self._producers.values():
            if producer.marker is not None and 0 <= producer.told_at <= self._decisions:
                producer.marker = None
                producer.told_at = -1

    def _crash(self) -> None:
        kept = self._random.randint(0, len(self._unsynced))
        lost = self._unsynced[kept:]
        del self._unsynced[kept:]
        self._counts["a crash"] += 1
        self._counts["a crash loses records"] += any(written for written, _ in lost)
        for producer in self._producers.values():
            if producer.told_at > self._decisions + kept:
                producer.told_at = -1
                self._counts["a crash loses the end of a transaction"] += 1
        self._sync()
        self._begin()

    def _compact(self) -> None:
        """As the log does it: up to some point the last record of each key stays, and old tombstones go."""
        end = self._random.randint(0, len(self._durable))
        last = {records.encode_key(key): number for number, (key, _) in enumerate(self._durable[:end])}
        kept = [
            record
            for number, record in enumerate(self._durable[:end])
            if last[records.encode_key(record.key)] == number and record.value is not None
        ]
        self._counts["the log is compacted"] += 1
        self._durable[:end] = kept

    # --- what must hold ----------------------------------------------------------------------------------

    def _all_places(self) -> set[Place]:
        return {*self._model.committed, *(place for pending in self._model.pending.values() for place in pending)}

    def _check(self) -> None:
        lives = self._topics.lives
        committed = {
            place: stored.offset
            for place, stored in self._model.committed.items()
            if stored.life == lives.get(place.topic, 0)
        }
        unstable = {
            place: UNSTABLE
            for pending in self._model.pending.values()
            for place, stored in pending.items()
            if stored.life == lives.get(place.topic, 0)
        }
        assert self._read(require_stable=False) == committed
        assert self._read(require_stable=True) == committed | unstable
        pending = self._shard.pending
        for producer_id in PRODUCERS:
            counted = sum(ending_bytes(key, value) for key, value in pending.of_producer(producer_id))
            assert pending.ending_bytes(producer_id) == counted
        for group in GROUPS:
            of_group = [each.key for id_ in PRODUCERS for each in pending.of_producer(id_) if each.key.group == group]
            assert pending.deleting_bytes(group) == sum(deleting_bytes(key.group, key.topic) for key in of_group)
            assert pending.has_group(group) == bool(of_group)

    def _read(self, *, require_stable: bool) -> dict[Place, int]:
        found = {}
        for group in GROUPS:
            request = OffsetFetchRequestGroup(group_id=group, topics=None)
            outcome = Outcome(self._shard.replay)
            self._shard.fetch_offsets(request, 9, 1, outcome, self._now_ms, require_stable=require_stable)
            ((_, response),) = outcome.replies
            assert isinstance(response, OffsetFetchResponseGroup)
            for topic in response.topics:
                for each in topic.partitions:
                    is_unstable = each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                    offset = UNSTABLE if is_unstable else each.committed_offset
                    found[Place(group, topic.name, each.partition_index)] = offset
        return found

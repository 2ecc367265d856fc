"""Writes of several producers to the same partitions, woven into each other at random, and what readers are shown.

The same seed gives the same steps. What is seen after each is written down with producers by their names, so that the
notes of two brokers can be laid side by side. What the notes ought to say is not known here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.error_codes import ErrorCode
from tests.clients.server_process import ServerProcess
from tests.clients.transactions import raw_admin, raw_log
from tests.clients.transactions.raw_log import COMMITTED, EARLIEST, LATEST, MAX_TIMESTAMP, UNCOMMITTED, View
from tests.clients.transactions.raw_producer import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTION,
    Batch,
    Place,
    RawProducer,
    find_coordinator,
    produce,
)
from tests.server.wire import Wire

STEPS = 30
PARTITIONS = 2
NAMES = ("new", "newer", "old", "older")
"""The first two speak version 2 of transactions, the others version 1."""
TIME_STEP_MS = 1_000
SIZE_STEP = 600
TIME_AHEAD_MS = 600_000
"""Markers carry the time of their writing. Records that were much older would make a log begin a new segment; they are
a little newer, so that the greatest time is that of a record, and the same one for every broker."""
ISOLATIONS = {"uncommitted": UNCOMMITTED, "committed": COMMITTED}


class Step(NamedTuple):
    """One thing that is done."""

    verb: str
    """`write`, `commit`, `abort`, `replace` (a new client for the id), `plain` or `trim`."""
    who: str = ""
    partition: int = 0
    records: int = 1


def steps(seed: int) -> Iterator[Step]:
    """What is done, in order; at the end some transactions are still open."""
    chance = random.Random(seed)
    for _ in range(STEPS):
        verb = chance.choices(("write", "commit", "abort", "replace", "plain", "trim"), weights=(45, 15, 15, 5, 17, 3))[
            0
        ]
        yield Step(verb, chance.choice(NAMES), chance.randrange(PARTITIONS), chance.randint(1, 3))


@dataclass(slots=True)
class Play:
    """The steps of one seed, done to one broker."""

    server: ServerProcess
    topic: str
    notes: list[str] = field(default_factory=list)
    _wire: Wire = field(init=False)
    _producers: dict[str, RawProducer] = field(default_factory=dict)
    _open: dict[str, set[Place]] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _start_ms: int = field(default_factory=lambda: int(time.time() * 1_000) + TIME_AHEAD_MS)
    _time_ms: int = 0

    def run(self, seed: int) -> list[str]:
        """What was seen, a line for each look."""
        with Wire(self.server) as self._wire:
            raw_log.create_topic(self._wire, self.topic, partitions=PARTITIONS)
            for name in NAMES:
                self._begin(name)
            for number, step in enumerate(steps(seed)):
                self.notes.append(f"step {number}: {step.verb} {step.who} {step.partition} x{step.records}")
                self._time_ms = self._start_ms + number * TIME_STEP_MS
                self._do(step)
                for partition in range(PARTITIONS):
                    self._look(Place(self.topic, partition))
                self._look_at_coordinator()
            for partition in range(PARTITIONS):
                self._look_everywhere(Place(self.topic, partition))
        return self.notes

    def _begin(self, name: str) -> None:
        producer = RawProducer(self._wire, f"{self.topic}-{name}")
        find_coordinator(self._wire, producer.transactional_id, TRANSACTION)
        producer.init_patiently()
        self._producers[name] = producer
        self._open[name] = set()
        self._names[producer.producer_id] = name

    def _do(self, step: Step) -> None:
        place = Place(self.topic, step.partition)
        if step.verb == "write":
            self._write(step, place)
        elif step.verb in ("commit", "abort"):
            self._end(step.who, commit=step.verb == "commit")
        elif step.verb == "replace":
            self._begin(step.who)
            self._producers[step.who].settle()
        elif step.verb == "plain":
            batch = Batch(place, self._values(step), NO_PRODUCER, NO_EPOCH, NO_SEQUENCE, self._time_ms, False)
            code, offset = produce(self._wire, batch, None, version=9)
            self.notes.append(f"  {code.name} @{offset}")
        else:
            stable = raw_log.list_offset(self._wire, place, LATEST, isolation=COMMITTED)[1]
            code, start = raw_log.delete_records(self._wire, place, stable // 2)
            self.notes.append(f"  {code.name} {start}")

    def _values(self, step: Step) -> tuple[bytes, ...]:
        when = (self._time_ms - self._start_ms) // TIME_STEP_MS
        # Of different sizes, so that a fetch ends in different places, and a log's indexes have entries.
        return tuple(
            b"%d.%d " % (when, number) + b"x" * (SIZE_STEP * ((when * 5 + number) % 8))
            for number in range(step.records)
        )

    def _write(self, step: Step, place: Place) -> None:
        producer = self._producers[step.who]
        is_new = step.who.startswith("new")
        if not is_new and place not in self._open[step.who]:
            assert set(producer.add([place]).values()) == {ErrorCode.NONE}
        batch = producer.batch(place, self._values(step), timestamp_ms=self._time_ms)
        code, offset = producer.produce(batch, version=12 if is_new else 11)
        self._open[step.who].add(place)
        self.notes.append(f"  {code.name} @{offset}")

    def _end(self, who: str, *, commit: bool) -> None:
        if not self._open[who]:
            return
        producer = self._producers[who]
        code = producer.end(commit=commit, version=5 if who.startswith("new") else 4)
        self._names[producer.producer_id] = who
        self._open[who] = set()
        # The answer comes before the markers are in the logs.
        self.notes.append(f"  {code.name} {producer.settle()} epoch {producer.epoch}")

    # --- what readers are shown ---------------------------------------------------------------------------

    def _look(self, place: Place) -> None:
        """The whole partition in one fetch of each kind, and its ends."""
        start = raw_log.list_offset(self._wire, place, EARLIEST, isolation=UNCOMMITTED)[1]
        for name, isolation in ISOLATIONS.items():
            view = raw_log.fetch(self._wire, place, start, isolation=isolation)
            self.notes.append(f"  {place.partition} {name}: {self._told(view)}")
            asked = {"latest": LATEST, "now": self._time_ms, "before": self._time_ms - 5_000}
            if isolation == UNCOMMITTED or view.last_stable_offset == view.high_watermark:
                # While a transaction is open Kafka knows no greatest time for readers of what is committed; Ottla
                # tells that of the records that they may read.
                asked["greatest"] = MAX_TIMESTAMP
            found = {
                key: raw_log.list_offset(self._wire, place, at, isolation=isolation)[:2] for key, at in asked.items()
            }
            self.notes.append(f"  {place.partition} {name}: {_offsets(found)}")

        told = (
            f"{self._names[each.producer_id]} {each.epoch}/{each.last_sequence} open since {each.open_since}"
            for each in raw_admin.producers(self._wire, place)
        )
        self.notes.append(f"  {place.partition} producers: {'; '.join(told)}")

    def _look_at_coordinator(self) -> None:
        """What tools are told of all the transactions."""
        for name, producer in self._producers.items():
            told = raw_admin.describe(self._wire, producer.transactional_id)
            parts = sorted(partition for topic in told.topics for partition in topic.partitions)
            self.notes.append(f"  {name}: {told.transaction_state} epoch {told.producer_epoch} in {parts}")
        pattern = f"{self.topic}-.*"
        for states in ((), ("Ongoing",), ("CompleteAbort", "Empty")):
            found = [name.rpartition("-")[2] for name, _ in raw_admin.listed(self._wire, pattern, *states)]
            self.notes.append(f"  listed {states}: {found}")

    def _look_everywhere(self, place: Place) -> None:
        """A fetch at every offset, with room for one batch, for some, and for everything."""
        end = raw_log.list_offset(self._wire, place, LATEST, isolation=UNCOMMITTED)[1]
        for offset in range(end + 2):
            for name, isolation in ISOLATIONS.items():
                for bytes_max in (1, 10 * SIZE_STEP, raw_log.BYTES_MAX):
                    view = raw_log.fetch(self._wire, place, offset, isolation=isolation, bytes_max=bytes_max)
                    self.notes.append(f"  at {offset} {name} {bytes_max}: {self._told(view)}")

    def _told(self, view: View) -> str:
        # Kafka lists transactions behind what it sends, too; of those a reader makes nothing.
        sent = view.entries[-1].last if view.entries else -1
        aborted = sorted((first, self._names[producer]) for producer, first in view.aborted if first <= sent)
        entries = (
            f"{each.first}-{each.last} {self._names.get(each.producer_id, 'nobody')} {each.epoch}/{each.sequence} "
            f"{each.kind} {','.join(f'{value[:6]!r}x{len(value)}' for value in each.values if value)}"
            for each in view.entries
        )
        return (
            f"{view.code.name} start {view.log_start_offset} stable {view.last_stable_offset} "
            f"high {view.high_watermark} aborted {aborted} [{'; '.join(entries)}]"
        )


def _offsets(found: Mapping[str, tuple[ErrorCode, int]]) -> str:
    return ", ".join(f"{name} {code.name} {offset}" for name, (code, offset) in found.items())

"""A coordinator at run time: which shard looks after a key, and the reading back of all shards at a start.

A shard belongs to one partition of an internal topic; `runtime_shard` runs it. Here keys find their shards as
Kafka's tools expect them to, and shards are loaded one after the other, in pieces, so that the owner's thread is
never held up for long. What the state machines decide is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import unpack
from typing import Generic

from ottla.clock import Clock
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.runtime_shard import Decision, Done, M, Recipe, ShardRuntime
from ottla.coordinators.turns import Turns
from ottla.errors import CoordinatorNotAvailable
from ottla.scheduler import Scheduler

KEYS_REMEMBERED_MAX = 10_000
NO_TICKET: Ticket = 0

_SHORT_CHARACTERS_MAX = 256
"""The codes of longer keys are not remembered: thousands of such keys would fill the memory."""
_LANES = 256
_LANE_MASKS = int.from_bytes(b"\0\0\0\0\xff\xff\xff\xff" * _LANES)
_ROW_FACTOR = pow(31, _LANES, 1 << 32)


def java_hash(text: str) -> int:
    """What Java's `String.hashCode` gives: Kafka places groups by it."""
    return _java_hash_of_short(text) if len(text) <= _SHORT_CHARACTERS_MAX else _java_hash_of_long(text)


@lru_cache(KEYS_REMEMBERED_MAX)
def _java_hash_of_short(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    return _folded(high << 8 | low for high, low in zip(units[::2], units[1::2], strict=True))


def _java_hash_of_long(text: str) -> int:
    """The same for keys of thousands of letters, a row at a time: a large integer holds its letters in 64-bit lanes."""
    units = text.encode("utf-16-be", "surrogatepass")
    # Zeros in front do not change the code.
    units = bytes(-len(units) % (2 * _LANES)) + units
    spread = bytearray(4 * len(units))
    spread[6::8], spread[7::8] = units[0::2], units[1::2]
    row_bytes = 8 * _LANES
    lanes = 0
    for start in range(0, len(spread), row_bytes):
        # No lane runs over into the next one: it holds 32 bits before it is multiplied by 32 bits.
        lanes = (lanes & _LANE_MASKS) * _ROW_FACTOR + int.from_bytes(spread[start : start + row_bytes])
    return _folded(unpack(f">{_LANES}Q", lanes.to_bytes(row_bytes)))


def _folded(units: Iterable[int]) -> int:
    code = 0
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


def shard_index(key: str, shard_count: int) -> int:
    """The partition of the internal topic that a key belongs to."""
    return (java_hash(key) & 0x7FFFFFFF) % shard_count


class Runtime(Generic[M]):
    """All shards of one coordinator; none before `start`."""

    def __init__(self, recipe: Recipe[M], *, scheduler: Scheduler, clock: Clock) -> None:
        self._recipe = recipe
        self._scheduler = scheduler
        self._clock = clock
        self._turns = Turns(scheduler, clock)
        self._shards: Sequence[ShardRuntime[M]] = ()
        self._to_load: deque[ShardRuntime[M]] = deque()
        self._is_loading = False
        self._is_stopped = False

    @property
    def is_started(self) -> bool:
        return bool(self._shards)

    def start(self, shard_count: int) -> None:
        """The internal topic is there: begin to read back what it holds."""
        assert not self._shards, "a coordinator is started once"
        self._shards = [
            ShardRuntime(
                index,
                self._recipe,
                scheduler=self._scheduler,
                clock=self._clock,
                turns=self._turns,
                ask_load=self._load,
            )
            for index in range(shard_count)
        ]
        for shard in self._shards:
            self._load(shard)

    def stop(self) -> None:
        """No more work of its own; requests are still served."""
        self._is_stopped = True
        self._to_load.clear()
        for shard in self._shards:
            shard.stop()

    def drop(self, reason: str) -> None:
        """The internal topic is gone, and all state with it. It may be started anew."""
        shards, self._shards = self._shards, ()
        self._to_load.clear()
        for shard in shards:
            shard.drop(reason)

    def submit(self, key: str, decide: Decision[M], done: Done) -> Ticket:
        """Have the shard of this key decide; `done` is told once the reply may be sent."""
        if not self._shards:
            done(CoordinatorNotAvailable("there is no coordinator yet; try again"))
            return NO_TICKET
        return self._shard_of(key).submit(decide, done)

    def submit_to(self, index: int, decide: Decision[M], done: Done) -> None:
        """Have one shard decide, by its number: for those who know a partition of the internal topic and no key."""
        if not self._shards:
            done(CoordinatorNotAvailable("there is no coordinator yet; try again"))
        elif not 0 <= index < len(self._shards):
            done(CoordinatorNotAvailable(f"there is no shard {index}, there are {len(self._shards)}"))
        else:
            self._shards[index].submit(decide, done)

    def submit_to_all(self, decide: Decision[M], done: Done) -> int:
        """Have every shard decide; `done` is called once for each. Returns how many there are."""
        for shard in self._shards:
            shard.submit(decide, done)
        return len(self._shards)

    def tell(self, decide: Callable[[M, Outcome, int], None]) -> None:
        """Let every shard that has its state see to something."""
        for shard in self._shards:
            shard.tell(decide)

    def tell_shard_of(self, key: str, decide: Callable[[M, Outcome, int], None]) -> None:
        """The same for one shard only."""
        if self._shards:
            self._shard_of(key).tell(decide)

    def abandon(self, key: str, ticket: Ticket) -> None:
        """Whoever holds this ticket waits no more."""
        if self._shards:
            self._shard_of(key).abandon(ticket)

    def hurry(self, key: str, ticket: Ticket) -> None:
        """Refuse whoever holds this ticket, unless only the disk is waited for."""
        if self._shards:
            self._shard_of(key).hurry(ticket)

    def machine_of(self, key: str) -> M:
        """The state of the shard of this key, to look at; raises a Refusal while it is not there."""
        if not self._shards:
            raise CoordinatorNotAvailable("there is no coordinator yet; try again")
        return self._shard_of(key).require()

    def all_machines(self) -> list[M]:
        """The state of all shards, to look at; raises a Refusal while one of them is not there."""
        return [shard.require() for shard in self._shards]

    def index_of(self, key: str) -> int:
        """The number of the shard of this key."""
        assert self._shards, "nothing has a shard before the start"
        return shard_index(key, len(self._shards))

    def machines(self) -> Iterator[M]:
        """The state of the shards that have it."""
        return (shard.machine for shard in self._shards if shard.machine is not None)

    def _shard_of(self, key: str) -> ShardRuntime[M]:
        return self._shards[shard_index(key, len(self._shards))]

    def _load(self, shard: ShardRuntime[M]) -> None:
        if self._is_stopped:
            return
        self._to_load.append(shard)
        if not self._is_loading:
            self._is_loading = True
            self._scheduler.call_soon(self._load_piece)

    def _load_piece(self) -> None:
        """One piece in each pass, so that requests come in between."""
        self._is_loading = False
        if not self._to_load:
            return
        shard = self._to_load.popleft()
        is_done = True
        try:
            is_done = shard.load_piece()
        finally:
            if not is_done:
                self._to_load.appendleft(shard)
            if self._to_load:
                self._is_loading = True
                self._scheduler.call_soon(self._load_piece)

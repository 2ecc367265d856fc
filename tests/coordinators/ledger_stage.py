"""A coordinator of the simplest kind, moved by hand: a ledger of amounts by name, with partitions in memory.

It decides what the tests of the runtime need: to write, to look, to refuse, to park, to ask for a timer, to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ottla.clock import ManualClock
from ottla.config import Settings
from ottla.coordinators.groups import records
from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket, TimerKey
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.runtime_shard import Recipe
from ottla.errors import InvalidRequest, Refusal
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs import BrokerConfigs, topic_config
from ottla.partitions.partition import Partition
from ottla.partitions.sync_pool import InlineSyncs, SyncRunner
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.schema import Message
from ottla.scheduler import ManualScheduler
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from tests.broker.stage import HeldSyncs
from tests.storage.workbench import NOW_MS

CONFIG = topic_config({"cleanup.policy": "compact"}, BrokerConfigs(Settings.resolve(BROKER_CONFIGS)))


class Ledger:
    """Amounts by name. A reply carries the amount as its throttle time."""

    def __init__(self, on_loaded: Callable[[], None]) -> None:
        self._on_loaded = on_loaded
        self.amounts: dict[str, int] = {}
        self.parked: list[Ticket] = []
        self.timers_seen: list[TimerKey] = []
        self.loaded_at_ms: int | None = None

    def put(self, name: str, amount: int, ticket: Ticket, outcome: Outcome) -> None:
        outcome.write(OffsetCommitKey(group=name), OffsetCommitValue(offset=amount))
        outcome.reply(ticket, HeartbeatResponse(throttle_time_ms=self.amounts[name]))

    def take_away(self, name: str, ticket: Ticket, outcome: Outcome) -> None:
        outcome.write(OffsetCommitKey(group=name), None)
        outcome.reply(ticket, HeartbeatResponse())

    def look(self, name: str, ticket: Ticket, outcome: Outcome) -> None:
        if name not in self.amounts:
            raise InvalidRequest(f"no {name}")
        outcome.reply(ticket, HeartbeatResponse(throttle_time_ms=self.amounts[name]))

    def replay(self, key: Message, value: Message | None) -> None:
        assert isinstance(key, OffsetCommitKey)
        if isinstance(value, OffsetCommitValue):
            assert value.offset >= 0, "there are no debts in this ledger"
            self.amounts[key.group] = value.offset
        else:
            self.amounts.pop(key.group, None)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        self.loaded_at_ms = now_ms
        self._on_loaded()

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        self.timers_seen.append(key)


@dataclass
class Stage:
    """A runtime of ledgers on one disk."""

    shards: int = 1
    held: bool = False
    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(seed=1))
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    loaded: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self, *, settled: bool = True) -> None:
        """Begin a life on what the disk holds."""
        self.scheduler = ManualScheduler(self.clock)
        self.syncs: SyncRunner = HeldSyncs(self.scheduler) if self.held else InlineSyncs(self.scheduler)
        self.partitions: dict[int, Partition] = {}
        self.runtime: Runtime[Ledger] = Runtime(
            Recipe(
                partition=self.partition,
                machine=lambda index: Ledger(partial(self.loaded.append, index)),
                encode=_encode,
                decode=records.decode,
            ),
            scheduler=self.scheduler,
            clock=self.clock,
        )
        self.runtime.start(self.shards)
        if settled:
            self.scheduler.run()

    def partition(self, index: int) -> Partition:
        """As a broker does it: opened once, and again after it went offline."""
        found = self.partitions.get(index)
        if found is None or found.offline is not None:
            log = Log.open(self.disk, f"/data/state-{index}", config=CONFIG.log, clock=self.clock)
            found = self.partitions[index] = Partition(
                log,
                leader_epoch=0,
                config=CONFIG,
                scheduler=self.scheduler,
                syncs=self.syncs,
                clock=self.clock,
                unsynced=UnsyncedBytes(),
            )
        return found

    def crash(self) -> None:
        """Lose the power, and begin anew."""
        self.disk.crash()
        self.start()

    @property
    def jobs(self) -> HeldSyncs:
        assert isinstance(self.syncs, HeldSyncs)
        return self.syncs

    @property
    def ledger(self) -> Ledger:
        (ledger,) = self.runtime.machines()
        return ledger

    def put(self, name: str, amount: int) -> Replies:
        replies = Replies()
        replies.ticket = self.runtime.submit(
            name, lambda ledger, ticket, outcome, now_ms: ledger.put(name, amount, ticket, outcome), replies
        )
        return replies

    def look(self, name: str) -> Replies:
        replies = Replies()
        replies.ticket = self.runtime.submit(
            name, lambda ledger, ticket, outcome, now_ms: ledger.look(name, ticket, outcome), replies
        )
        return replies

    def park(self, name: str) -> Replies:
        """A request that the ledger answers when somebody else asks it to."""
        replies = Replies()
        replies.ticket = self.runtime.submit(
            name, lambda ledger, ticket, outcome, now_ms: ledger.parked.append(ticket), replies
        )
        return replies


class Replies:
    """What a request was answered, if it was."""

    def __init__(self) -> None:
        self.ticket: Ticket = 0
        self.all: list[Message | Refusal] = []

    def __call__(self, reply: Message | Refusal) -> None:
        self.all.append(reply)

    @property
    def amount(self) -> int:
        (reply,) = self.all
        assert isinstance(reply, HeartbeatResponse), reply
        return reply.throttle_time_ms

    @property
    def refusal(self) -> type[Refusal]:
        (reply,) = self.all
        assert isinstance(reply, Refusal), reply
        return type(reply)


def _encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    return records.encode_key(record.key), None if value is None else records.encode_value(value)

"""Members of a group that is large, moved by hand, and the coordinator's runtime that they speak to.

The runtime, the shard, the records and the log are the real ones; the disk is in memory and time stands still.
Members do what clients do, one request at a time, as quickly as they are let.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.client.assignors import ASSIGNORS
from ottla.client.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_previous,
    encode_subscription,
)
from ottla.client.values import TopicPartition
from ottla.clock import ManualClock
from ottla.config import Settings
from ottla.coordinators.groups import records
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.runtime_shard import Recipe
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs import BrokerConfigs, topic_config
from ottla.partitions.partition import Partition
from ottla.partitions.sync_pool import InlineSyncs
from ottla.partitions.unsynced import UnsyncedBytes
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Message
from ottla.scheduler import ManualScheduler
from ottla.storage.log import Log
from ottla.storage.memory_disk import MemoryDisk
from tests.coordinators.groups.shard_stage import GROUP, Topics
from tests.storage.workbench import NOW_MS

CLIENT = ClientFacts("client", "/host")
SESSION_MS = 45_000
REBALANCE_MS = 300_000
STICKY = ASSIGNORS["sticky"]
CONFIG = topic_config({"cleanup.policy": "compact"}, BrokerConfigs(Settings.resolve(BROKER_CONFIGS)))

Decide = Callable[[GroupShard, Ticket, Outcome, int], None]


class Coordinator:
    """A runtime of one shard, over its lives."""

    def __init__(self, partition_counts: dict[str, int]) -> None:
        self.topics = Topics(partition_counts)
        self.clock = ManualClock(NOW_MS)
        self._disk = MemoryDisk(seed=1)
        self._members = iter(range(1, 2**31))
        self.start()

    def start(self) -> None:
        """Begin a life with what the disk holds."""
        self.scheduler = ManualScheduler(self.clock)
        self._runtime: Runtime[GroupShard] = Runtime(
            Recipe(partition=self._partition, machine=self._shard, encode=_encode, decode=records.decode),
            scheduler=self.scheduler,
            clock=self.clock,
        )
        self._runtime.start(1)
        self.scheduler.run()

    def crash(self) -> None:
        """Lose the power, and begin anew."""
        self._disk.crash()
        self.start()

    def submit(self, decide: Decide, hear: Callable[[Any], None]) -> None:
        """Have a request decided; the answer comes later."""

        def done(reply: Message | Refusal) -> None:
            assert not isinstance(reply, Refusal), reply
            hear(reply)

        self._runtime.submit(GROUP, decide, done)

    def _shard(self, index: int) -> GroupShard:
        return GroupShard(GroupSettings(), lambda: self.topics, lambda prefix: f"{prefix}-{next(self._members):05}")

    def _partition(self, index: int) -> Partition:
        log = Log.open(self._disk, f"/data/state-{index}", config=CONFIG.log, clock=self.clock)
        return Partition(
            log,
            leader_epoch=0,
            config=CONFIG,
            scheduler=self.scheduler,
            syncs=InlineSyncs(self.scheduler),
            clock=self.clock,
            unsynced=UnsyncedBytes(),
        )


class Member(Protocol):
    """What the tests need of a member of either protocol."""

    owned: frozenset[TopicPartition]
    generation: int

    def turn(self) -> None:
        """Say what is to be said next, unless an answer is still awaited."""
        ...

    def leave(self) -> None: ...


class ClassicMember:
    """Joins, syncs, beats; the leader assigns with the sticky assignor."""

    def __init__(self, coordinator: Coordinator, number: int) -> None:
        self._coordinator = coordinator
        self._member_id = ""
        self._next: Callable[[], None] = self._join
        self._is_waiting = False
        self._joined: JoinGroupResponse | None = None
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()

    def turn(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._next()

    def _join(self) -> None:
        told = encode_previous(self.owned, generation=self.generation)
        counts = self._coordinator.topics.counts
        metadata = encode_subscription(counts, owned=(), generation=self.generation, user_data=told)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=STICKY.name, metadata=metadata)],
        )
        self._coordinator.submit(
            lambda shard, ticket, outcome, now_ms: shard.join(request, 9, CLIENT, ticket, outcome, now_ms),
            self._hear_join,
        )

    def _hear_join(self, answer: JoinGroupResponse) -> None:
        self._is_waiting = False
        self._member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self._joined, self._next = answer, self._sync

    def _sync(self) -> None:
        joined = self._joined
        assert joined is not None
        assignments = []
        if joined.leader == self._member_id:
            members = [
                decode_subscription(each.metadata, each.member_id, None, previous_in_user_data=True)
                for each in joined.members
            ]
            shares = STICKY.assign(members, self._coordinator.topics.counts)
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in shares.items()
            ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=STICKY.name,
            assignments=assignments,
        )
        self._coordinator.submit(
            lambda shard, ticket, outcome, now_ms: shard.sync(request, ticket, outcome, now_ms), self._hear_sync
        )

    def _hear_sync(self, answer: Any) -> None:
        self._is_waiting = False
        self._next = self._join
        if answer.error_code == ErrorCode.NONE:
            assert self._joined is not None
            self.generation = self._joined.generation_id
            self.owned = decode_assignment(answer.assignment)
            self._next = self._beat

    def _beat(self) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self._member_id)
        self._coordinator.submit(
            lambda shard, ticket, outcome, now_ms: shard.heartbeat(request, ticket, outcome, now_ms), self._hear_beat
        )

    def _hear_beat(self, answer: Any) -> None:
        self._is_waiting = False
        if answer.error_code != ErrorCode.NONE:
            assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            self._next = self._join

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self._member_id)])
        self._coordinator.submit(
            lambda shard, ticket, outcome, now_ms: shard.leave(request, 5, ticket, outcome, now_ms), lambda reply: None
        )


class ConsumerMember:
    """Beats; gives back what it is told to, and says so with the next beat."""

    def __init__(self, coordinator: Coordinator, number: int) -> None:
        self._coordinator = coordinator
        self._member_id = f"member-{number:05}"
        self._tells_owned = True
        self.generation = 0
        self.owned: frozenset[TopicPartition] = frozenset()

    def turn(self) -> None:
        is_new = self.generation == 0
        self._send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self._member_id,
                member_epoch=self.generation,
                rebalance_timeout_ms=REBALANCE_MS if is_new else -1,
                subscribed_topic_names=sorted(self._coordinator.topics.counts) if is_new else None,
                topic_partitions=self._parts() if self._tells_owned else None,
            )
        )

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        self._coordinator.submit(
            lambda shard, ticket, outcome, now_ms: shard.heartbeat_consumer(
                request, 1, CLIENT, ticket, outcome, now_ms
            ),
            self._hear,
        )

    def _parts(self) -> list[TopicPartitions]:
        topics = self._coordinator.topics
        by_id: dict[bytes, list[int]] = {}
        for topic, number in sorted(self.owned):
            by_id.setdefault(topics.topic_id(topic) or b"", []).append(number)
        return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_id.items()]

    def _hear(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE
        before = self.owned
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            self.owned = frozenset(
                TopicPartition(self._coordinator.topics.topic_name(each.topic_id) or "", number)
                for each in answer.assignment.topic_partitions
                for number in each.partitions
            )
        self._tells_owned = self.owned != before

    def leave(self) -> None:
        self._send(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self._member_id, member_epoch=-1))


def _encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    return records.encode_key(record.key), None if value is None else records.encode_value(value)

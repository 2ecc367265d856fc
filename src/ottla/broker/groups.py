"""The group coordinator as handlers see it: `Coordinator` with what groups need beside.

Groups hear of topics that come and go, and of transactions that hold offsets of theirs. What groups decide is in
`ottla.coordinators.groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from ottla.broker.caller import Caller
from ottla.broker.coordinator import Coordinator
from ottla.clock import Clock
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.offsets_record import OffsetRecords
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.groups.topics_view import ImageTopics, TopicsView
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.runtime_shard import Decision, Recipe
from ottla.errors import PartitionNotFound, Refusal
from ottla.metadata.broker_configs import MINUTE_MS
from ottla.metadata.catalog import Catalog
from ottla.metadata.changes import Change, PutTopic, RemoveTopic
from ottla.metadata.configs import BrokerConfigs
from ottla.metadata.image import Image
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, INTERNAL_TOPICS
from ottla.metadata.topics import NewTopic
from ottla.partitions.hosted import HostedPartitions
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.records.control import MarkerType
from ottla.scheduler import Scheduler

PREFIX_CHARACTERS_MAX = 5_000
"""What of a client's id goes into the member ids that are made for it: the whole must still be a string."""
GroupDecision = Decision[GroupShard]

_ENDED = HeartbeatResponse()
"""What a shard replies that has ended a transaction: any message does, nobody reads it."""


class GroupCoordinator(Coordinator[GroupShard]):
    """All groups of this broker."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        partitions: HostedPartitions,
        scheduler: Scheduler,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._new_id = new_id
        self._settings = group_settings(catalog.broker_configs())
        self._begun: set[int] = set()
        """Shards that have been read back in this process, or begun to be."""
        self._change_is_told = False
        self._is_any_deleted = False
        offset_records = OffsetRecords(partitions.by_id, self._leader_epoch)
        super().__init__(
            lambda: offsets_topic(catalog.broker_configs()),
            Recipe(
                partition=partial(partitions.by_name, CONSUMER_OFFSETS),
                machine=self._shard,
                encode=offset_records.encode,
                decode=offset_records.decode,
            ),
            catalog=catalog,
            partitions=partitions,
            scheduler=scheduler,
            clock=clock,
        )
        catalog.listen(self._follow)

    # --- transactions ------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that stands for a group's offsets in a transaction. Once ready."""
        return self._runtime.index_of(group_id)

    def end_transaction(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        marker_type: MarkerType,
        done: Callable[[Refusal | None], None],
    ) -> None:
        """End a transaction for the groups of one partition; `done` is told when that is durable, or why it is not."""

        def decide(shard: GroupShard, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
            shard.end_transaction(
                _ENDED,
                ticket,
                outcome,
                now_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                marker_type=marker_type,
            )

        self._runtime.submit_to(partition, decide, lambda reply: done(reply if isinstance(reply, Refusal) else None))

    # --- topics ------------------------------------------------------------------------------------------

    def _shard(self, index: int) -> GroupShard:
        is_first_life = index not in self._begun
        self._begun.add(index)
        return GroupShard(self._settings, self._topics, self._new_member_id, is_first_life=is_first_life)

    def _leader_epoch(self, topic_id: bytes, partition: int) -> int:
        topic = self._catalog.image.topic_by_id(UUID(bytes=topic_id))
        if not 0 <= partition < len(topic.partitions):
            raise PartitionNotFound(topic.name, partition)
        return self._partitions.leader_epoch(topic, partition)

    def _topics(self) -> TopicsView:
        return ImageTopics(self._catalog.image)

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix[:PREFIX_CHARACTERS_MAX]}-{self._new_id()}"

    def _follow(self, image: Image, changes: Sequence[Change]) -> None:
        is_changed = False
        for change in changes:
            match change:
                case RemoveTopic():
                    is_changed = self._is_any_deleted = True
                case PutTopic():
                    is_changed = True
        if is_changed and not self._change_is_told:
            # Once for all that changes in this pass.
            self._change_is_told = True
            self._scheduler.call_soon(self._tell_change)

    def _tell_change(self) -> None:
        is_any_deleted, self._is_any_deleted = self._is_any_deleted, False
        self._change_is_told = False

        def tell(shard: GroupShard, outcome: Outcome, now_ms: int) -> None:
            shard.topics_changed(outcome, now_ms, is_any_deleted=is_any_deleted)

        self._runtime.tell(tell)


def client_facts(caller: Caller) -> ClientFacts:
    """What groups remember of whoever sends a request."""
    return ClientFacts(caller.client_id or "", f"/{caller.host}")


def offsets_topic(configs: BrokerConfigs) -> NewTopic:
    """The topic that keeps groups and their offsets, as it is made."""
    return NewTopic(
        CONSUMER_OFFSETS,
        partition_count=configs.integer("offsets.topic.num.partitions"),
        replication_factor=configs.integer("offsets.topic.replication.factor"),
        configs={
            **INTERNAL_TOPICS[CONSUMER_OFFSETS],
            "segment.bytes": str(configs.integer("offsets.topic.segment.bytes")),
        },
    )


def group_settings(configs: BrokerConfigs) -> GroupSettings:
    """The settings of groups, as the broker was started with them."""
    policy = configs.value("group.consumer.migration.policy")
    assignors = configs.value("group.consumer.assignors")
    assert isinstance(assignors, tuple)
    return GroupSettings(
        session_timeout_ms_min=configs.integer("group.min.session.timeout.ms"),
        session_timeout_ms_max=configs.integer("group.max.session.timeout.ms"),
        members_max=configs.integer("group.max.size"),
        initial_rebalance_delay_ms=configs.integer("group.initial.rebalance.delay.ms"),
        consumer_session_timeout_ms=configs.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=configs.integer("group.consumer.heartbeat.interval.ms"),
        consumer_members_max=configs.integer("group.consumer.max.size"),
        consumer_assignors=assignors,
        consumer_migration_upgrade=policy in ("bidirectional", "upgrade"),
        consumer_migration_downgrade=policy in ("bidirectional", "downgrade"),
        offset_metadata_bytes_max=configs.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=configs.integer("offsets.retention.minutes") * MINUTE_MS,
        offsets_check_interval_ms=configs.integer("offsets.retention.check.interval.ms"),
    )

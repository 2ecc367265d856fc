"""The group coordinator as handlers see it: its internal topic, its runtime, and the way of a request through both.

A request waits until `__consumer_offsets` is there, goes to the shard of its group, and is answered when the shard
says so. What groups decide is in `ottla.coordinators.groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from ottla.broker.caller import Caller
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.pending import Pending
from ottla.clock import Clock
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.offsets_record import OffsetRecords
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.groups.topics_view import ImageTopics, TopicsView
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.runtime_shard import Decision, Recipe
from ottla.errors import CoordinatorNotAvailable, PartitionNotFound, Refusal
from ottla.metadata.broker_configs import MINUTE_MS
from ottla.metadata.catalog import Catalog
from ottla.metadata.changes import Change, PutTopic, RemoveTopic, Topic
from ottla.metadata.configs import BrokerConfigs
from ottla.metadata.image import Image
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, INTERNAL_TOPICS
from ottla.metadata.topics import NewTopic
from ottla.partitions.hosted import HostedPartitions
from ottla.protocol.schema import Message
from ottla.scheduler import Scheduler

TOLD_CHARACTERS_MAX = 1_000
PREFIX_CHARACTERS_MAX = 5_000
"""What of a client's id goes into the member ids that are made for it: the whole must still be a string."""
GroupDecision = Decision[GroupShard]
Refuse = Callable[[Refusal], Message]
"""Makes the response that says so: each API has its own place for an error."""


class GroupCoordinator:
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
        self._catalog = catalog
        self._partitions = partitions
        self._scheduler = scheduler
        self._new_id = new_id
        self._settings = group_settings(catalog.broker_configs())
        self._topic = InternalTopic(
            lambda: offsets_topic(catalog.broker_configs()),
            catalog=catalog,
            partitions=partitions,
            scheduler=scheduler,
        )
        offset_records = OffsetRecords(partitions.by_id, self._leader_epoch)
        self._runtime: Runtime[GroupShard] = Runtime(
            Recipe(
                partition=partial(partitions.by_name, CONSUMER_OFFSETS),
                machine=self._shard,
                encode=offset_records.encode,
                decode=offset_records.decode,
            ),
            scheduler=scheduler,
            clock=clock,
        )
        self._begun: set[int] = set()
        """Shards that have been read back in this process, or begun to be."""
        self._change_is_told = False
        self._is_any_deleted = False
        catalog.listen(self._follow)

    # --- its life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the groups back, if there ever were any."""
        topic = self._catalog.image.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            self._start(topic)

    def stop(self) -> None:
        """No more rebalances, timeouts and expiries of its own accord; requests are still served."""
        self._runtime.stop()

    def when_ready(self, told: Callable[[CoordinatorNotAvailable | None], None]) -> None:
        """Call back once groups can be coordinated, or cannot."""
        if self._runtime.is_started:
            told(None)
            return

        def found(outcome: Topic | CoordinatorNotAvailable) -> None:
            if isinstance(outcome, CoordinatorNotAvailable):
                told(outcome)
                return
            if not self._runtime.is_started:
                self._start(outcome)
            told(None)

        self._topic.when_there(found)

    @property
    def is_started(self) -> bool:
        """Whether there is, or ever was, a group."""
        return self._runtime.is_started

    def _start(self, topic: Topic) -> None:
        self._runtime.start(len(topic.partitions))

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
                case RemoveTopic(name=name):
                    is_changed = self._is_any_deleted = True
                    if name == CONSUMER_OFFSETS:
                        self._runtime.drop(f"topic {CONSUMER_OFFSETS} was deleted")
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

    # --- requests ----------------------------------------------------------------------------------------

    def submit(self, group_id: str, decide: GroupDecision, refused: Refuse) -> Message | Pending:
        """The response to a request about one group, or the promise of one."""
        return _Request(self._runtime, group_id, decide, refused).begin(self)

    def submit_each(
        self,
        decisions: Sequence[tuple[str, GroupDecision]],
        refused: Callable[[int, Refusal], Message],
        respond: Callable[[list[Message]], Message],
    ) -> Message | Pending:
        """The response to a request about several groups: each is decided for itself, by its own shard."""
        gathering = _Gathering(len(decisions), respond)
        for place, (group_id, decide) in enumerate(decisions):
            gathering.take(place, self.submit(group_id, decide, partial(refused, place)))
        return gathering.response()

    def submit_to_all(
        self, decide: GroupDecision, refused: Refuse, respond: Callable[[list[Message]], Message]
    ) -> Message | Pending:
        """The response to a request about all groups there are; refused as a whole if one shard cannot answer."""
        parts: list[Message | Refusal] = []
        pending = Pending()

        def done(part: Message | Refusal) -> None:
            parts.append(part)
            if len(parts) == count:
                pending.complete(response())

        def response() -> Message:
            for part in parts:
                if isinstance(part, Refusal):
                    return refused(part)
            return respond([part for part in parts if not isinstance(part, Refusal)])

        count = -1
        count = self._runtime.submit_to_all(decide, done)
        return response() if len(parts) == count else pending


class _Request:
    """One request about one group, from its coming to its answer."""

    __slots__ = ("_decide", "_group_id", "_is_over", "_pending", "_refused", "_response", "_runtime", "_ticket")

    def __init__(self, runtime: Runtime[GroupShard], group_id: str, decide: GroupDecision, refused: Refuse) -> None:
        self._runtime = runtime
        self._group_id = group_id
        self._decide = decide
        self._refused = refused
        self._ticket: Ticket | None = None
        self._response: Message | None = None
        self._pending: Pending | None = None
        self._is_over = False

    def begin(self, coordinator: GroupCoordinator) -> Message | Pending:
        coordinator.when_ready(self._submit)
        if self._response is not None:
            return self._response
        self._pending = Pending(self._cancel, on_hurry=self._hurry)
        return self._pending

    def _submit(self, error: CoordinatorNotAvailable | None) -> None:
        if self._is_over:
            return
        if error is not None:
            self._settle(error)
        else:
            self._ticket = self._runtime.submit(self._group_id, self._decide, self._settle)

    def _settle(self, reply: Message | Refusal) -> None:
        if self._is_over:
            return
        self._is_over = True
        response = self._refused(reply) if isinstance(reply, Refusal) else reply
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(response)

    def _cancel(self) -> None:
        self._is_over = True
        if self._ticket is not None:
            self._runtime.abandon(self._group_id, self._ticket)

    def _hurry(self) -> None:
        if self._ticket is not None:
            self._runtime.hurry(self._group_id, self._ticket)
        else:
            self._settle(CoordinatorNotAvailable("the broker stops"))


class _Gathering:
    """A response that is made of several, in the order of the request."""

    __slots__ = ("_open", "_parts", "_pending", "_respond", "_waiting")

    def __init__(self, count: int, respond: Callable[[list[Message]], Message]) -> None:
        self._parts: list[Message | None] = [None] * count
        self._open = count
        self._respond = respond
        self._waiting: list[Pending] = []
        self._pending: Pending | None = None

    def take(self, place: int, part: Message | Pending) -> None:
        if isinstance(part, Pending):
            self._waiting.append(part)
            part.then(partial(self._settle, place))
        else:
            self._settle(place, part)

    def response(self) -> Message | Pending:
        if not self._open:
            return self._respond(self._complete())
        self._pending = Pending(
            lambda: self._each(Pending.cancel),
            on_hurry=lambda: self._each(Pending.hurry),
        )
        return self._pending

    def _settle(self, place: int, part: Message) -> None:
        self._parts[place] = part
        self._open -= 1
        if not self._open and self._pending is not None:
            self._pending.complete(self._respond(self._complete()))

    def _complete(self) -> list[Message]:
        return [part for part in self._parts if part is not None]

    def _each(self, do: Callable[[Pending], None]) -> None:
        for pending in tuple(self._waiting):
            do(pending)


def told(error: Refusal) -> str:
    """What a response says of a refusal. It may quote what the client sent, which fills a string by itself."""
    return str(error)[:TOLD_CHARACTERS_MAX]


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

"""Clients of a simulated group, of both protocols, with all that goes wrong with clients.

Each knows only what it was told. `owned` is what it reads from right now; it gives up before it takes, some of them
slowly, and says so in its next request. Answers may be lost on the way. What the coordinator thinks is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from struct import pack, unpack_from

from ottla.coordinators.groups.consumer_embedded import read_assignment, read_subscription
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.error_codes import ErrorCode
from ottla.protocol.codec import encode_bytes
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema import Message

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 8_000

Partition = tuple[bytes, int]
Send = Callable[["Client", Message], None]


class Client:
    """What clients of both protocols have in common."""

    def __init__(self, name: str, random: Random, topics: TopicsView) -> None:
        self.name = name
        self.random = random
        self.view = topics
        self.member_id = ""
        self.instance_id: str | None = None
        self.owned: set[Partition] = set()
        self.topic_names: set[str] = set()
        self.pattern = ""
        self.is_gone = False
        self.is_slow = False
        """It takes its time to give partitions back."""

    def turn(self, send: Send) -> None:
        """Do what is next."""
        raise NotImplementedError

    def hear(self, response: Message) -> None:
        """An answer has arrived."""
        raise NotImplementedError

    def miss(self) -> None:
        """An answer was lost, or the coordinator went away with it."""
        raise NotImplementedError

    def leave(self, send: Send) -> None:
        """Say good-bye."""
        raise NotImplementedError


class ConsumerClient(Client):
    """One of the consumer protocol, as Java's and librdkafka's are."""

    def __init__(self, name: str, random: Random, topics: TopicsView) -> None:
        super().__init__(name, random, topics)
        self.member_id = name
        self.epoch = 0
        self.assigned: set[Partition] = set()
        self.tells_all = True
        self.tells_owned = False
        self.changed_wishes = False
        self.owned_said: Sequence[TopicPartitions] | None = None
        self.is_hasty = random.random() < 0.3
        """It may say all, with what it owns, and take over what it was told before the broker hears of that."""
        self.is_forgetful = random.random() < 0.3
        """After a lost answer it says the same once more, and not all that it could."""

    def turn(self, send: Send) -> None:
        said: ConsumerGroupHeartbeatRequest | None = None
        if self.is_hasty and self.random.random() < 0.5:
            self.tells_all = True
            said = self._request()
        if self.owned != self.assigned and not (self.is_slow and self.random.random() < 0.8):
            self.owned = set(self.assigned)
            self.tells_owned = True
        request = said or self._request()
        self.owned_said = request.topic_partitions
        send(self, request)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        joining = self.epoch == 0
        everything = joining or self.tells_all
        wishes = everything or self.changed_wishes
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if everything else -1,
            subscribed_topic_names=sorted(self.topic_names) if wishes else None,
            subscribed_topic_regex=self.pattern if wishes else None,
            topic_partitions=_parts(self.owned) if everything or self.tells_owned else None,
        )

    def hear(self, response: Message) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._begin_anew()
        elif response.error_code == ErrorCode.NONE:
            self.tells_all = self.changed_wishes = False
            self.tells_owned = self.tells_owned and self.owned_said != _parts(self.owned)
            self.member_id = response.member_id or self.member_id
            self.epoch = response.member_epoch
            if response.assignment is not None:
                parts = response.assignment.topic_partitions
                self.assigned = {(part.topic_id, number) for part in parts for number in part.partitions}

    def _begin_anew(self) -> None:
        self.owned, self.assigned = set(), set()
        self.epoch = 0
        self.tells_all = True

    def miss(self) -> None:
        self.tells_all = self.tells_all or not self.is_forgetful

    def subscribe(self, topic_names: set[str], pattern: str) -> None:
        """Want something else from the next heartbeat on."""
        self.topic_names, self.pattern = topic_names, pattern
        self.changed_wishes = True

    def leave(self, send: Send) -> None:
        self.owned = set()
        self.is_gone = True
        epoch = -1 if self.instance_id is None or self.random.random() < 0.3 else -2
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        send(self, request)


class ClassicClient(Client):
    """One of the classic protocol; cooperative ones keep what they own while they join again."""

    def __init__(self, name: str, random: Random, topics: TopicsView, *, is_cooperative: bool) -> None:
        super().__init__(name, random, topics)
        self.is_cooperative = is_cooperative
        self.generation = -1
        self.step = "join"
        self.leads: JoinGroupResponse | None = None
        self.assigned_counts: list[int] = []
        self.is_waiting = False

    def turn(self, send: Send) -> None:
        if self.is_waiting:
            return
        if self.step == "heartbeat" and self.leads is not None and self.counts() != self.assigned_counts:
            self.step = "join"  # What it has assigned as the leader is not all that there is any longer.
        if self.step == "join" and self.is_slow and self.random.random() < 0.8:
            return
        self.is_waiting = True
        if self.step == "join":
            if not self.is_cooperative:
                self.owned = set()
            send(self, self._join())
        elif self.step == "sync":
            send(self, self._sync())
        else:
            request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
            send(self, request)

    def _join(self) -> JoinGroupRequest:
        by_topic: dict[str, list[int]] = {}
        for topic_id, number in sorted(self.owned):
            name = self.view.topic_name(topic_id)
            if name is not None:
                by_topic.setdefault(name, []).append(number)
        owned = tuple(OwnedPartitions(topic=name, partitions=numbers) for name, numbers in by_topic.items())
        version = 1 if self.is_cooperative else 0
        message = ConsumerProtocolSubscription(topics=sorted(self.topic_names), owned_partitions=owned)
        metadata = pack(">h", version) + encode_bytes(message, version)
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.is_cooperative else "range"

    def counts(self) -> list[int]:
        """How large the topics are, of which a leader assigns the partitions."""
        return [self.view.partition_count(name) for name in sorted(self.view.names())]

    def _sync(self) -> SyncGroupRequest:
        self.assigned_counts = self.counts()
        return SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=() if self.leads is None else _leaders_assignment(self.leads, self.view),
        )

    def hear(self, response: Message) -> None:
        self.is_waiting = False
        if isinstance(response, JoinGroupResponse):
            self._hear_join(response)
        elif isinstance(response, SyncGroupResponse):
            self._hear_sync(response)
        elif isinstance(response, HeartbeatResponse):
            self._hear_error(response.error_code)

    def _hear_join(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.leads = response if response.leader == response.member_id else None
            self.step = "sync"
        else:
            self._hear_error(response.error_code)

    def _hear_sync(self, response: SyncGroupResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self._hear_error(response.error_code)
            return
        ids = {name: self.view.topic_id(name) for name in read_assignment(response.assignment).partitions}
        assigned = {
            (topic_id, number)
            for name, numbers in read_assignment(response.assignment).partitions.items()
            for number in numbers
            if (topic_id := ids[name]) is not None
        }
        gave_back = bool(self.owned - assigned)
        self.owned = assigned
        # What it gave back can go to others only after it has joined without it.
        self.step = "join" if self.is_cooperative and gave_back else "heartbeat"

    def _hear_error(self, error_code: int) -> None:
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.step = "join"
        elif error_code == ErrorCode.ILLEGAL_GENERATION:
            self.owned = set()
            self.step = "join"
        elif error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
            self.owned = set()
            self.step = "join"

    def miss(self) -> None:
        self.is_waiting = False
        if self.step == "sync":
            self.step = "join"

    def leave(self, send: Send) -> None:
        self.owned = set()
        self.is_gone = True
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
        send(self, request)


def _parts(partitions: set[Partition]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return tuple(TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items())


def _leaders_assignment(joined: JoinGroupResponse, view: TopicsView) -> list[SyncGroupRequestAssignment]:
    """In turn among those who want a topic; what another member still owns is not given away yet."""
    wants = {member.member_id: read_subscription(member.metadata) for member in joined.members}
    owner = {
        (name, number): member_id
        for member_id, subscription in wants.items()
        for name, numbers in subscription.owned.items()
        for number in numbers
    }
    given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wants}
    for name in sorted({name for subscription in wants.values() for name in subscription.topics}):
        takers = sorted(member_id for member_id, subscription in wants.items() if name in subscription.topics)
        for number in range(view.partition_count(name)):
            taker = takers[number % len(takers)]
            if owner.get((name, number), taker) == taker:
                given[taker].setdefault(name, []).append(number)
    answers = []
    for member in joined.members:
        (version,) = unpack_from(">h", member.metadata)
        message = ConsumerProtocolAssignment(
            assigned_partitions=[
                AssignedPartitions(topic=name, partitions=numbers) for name, numbers in given[member.member_id].items()
            ]
        )
        bytes_of_it = pack(">h", version) + encode_bytes(message, version)
        answers.append(SyncGroupRequestAssignment(member_id=member.member_id, assignment=bytes_of_it))
    return answers

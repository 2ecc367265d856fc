"""What consumer groups bring to the stage: topics, and clients that only ever send heartbeats.

    topics t=3 u=2            there are these topics; 0 partitions means that there is no such topic any more
    remake t=3                the topic was deleted and made again: it has another id
    enter a topics=t regex= assignor= instance= rack= rebalance=60000 group=g version=1 id=
                              join (epoch 0), owning nothing
    beat a ...                a heartbeat that tells only what the options say; `owns=t:0+1,u:0` (`owns=-`: nothing)
    own a                     a heartbeat that tells that the client owns what it was last assigned, no more
    full a                    a heartbeat that tells everything, as after an answer that never came
    exit a                    leave for good (epoch -1)
    pause a                   leave for a while (epoch -2)
    cojoin a topics=t owns=t:0
                              as `join` of a classic member that speaks cooperative-sticky: it keeps what it owns
    lead a a=t:0+1 b=t:2      as `sync` of the leader of a classic group, with assignments as consumers write them
    save a epoch= id=         a commit of offsets, as far as the group has a say in it
    look a epoch= id=         a question for offsets (`id=-` is an admin's)
    consumer g                the group, as it stands
    described g               the group, as ConsumerGroupDescribe tells it

A client remembers its member id and epoch, and what it was told to have; `id=` and `epoch=` send something else. The
first id that a client makes for itself is its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import pack

from ottla.coordinators.groups.classic import ClassicProtocol
from ottla.coordinators.groups.consumer import ConsumerProtocol
from ottla.coordinators.groups.consumer_embedded import read_assignment, write_assignment
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_replay import RECORD_KEYS
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.protocol.codec import encode_bytes
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, OwnedPartitions
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema import Message
from tests.coordinators.groups.classic_stage import ClassicMachine, ClassicPlay, Client
from tests.coordinators.groups.stage import Command, Line, Stage, shown

NOTHING = "-"
Numbers = dict[str, frozenset[int]]


class StageTopics:
    """The topics of a story. Their ids can be read: `t...............`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lives: dict[str, int] = {}

    def put(self, name: str, count: int) -> None:
        """Make a topic, let it grow, or take it away."""
        if count == 0:
            self._counts.pop(name, None)
            self._lives[name] = self._lives.get(name, 0) + 1
        else:
            self._counts[name] = count

    def names(self) -> Iterable[str]:
        return [name for name in self._counts if not name.startswith("__")]

    def topic_id(self, name: str) -> bytes | None:
        if name not in self._counts:
            return None
        life = self._lives.get(name, 0)
        return (f"{name}#{life + 1}" if life else name).ljust(16, ".").encode()

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name in self._counts if self.topic_id(name) == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self._counts.get(name, 0)


@dataclass
class Consumer:
    """What a client knows and wants."""

    member_id: str
    epoch: int = 0
    options: dict[str, str] = field(default_factory=dict)
    assigned: tuple[TopicPartitions, ...] = ()


class ConsumerPlay:
    """Consumer groups on the stage."""

    timer_prefix = "consumer"
    record_keys: tuple[type[Message], ...] = tuple(RECORD_KEYS)

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.topics = StageTopics()
        self.consumers: dict[str, Consumer] = {}
        self.commands: Mapping[str, Command] = {
            "topics": self._put_topics,
            "remake": self._remake_topics,
            "enter": self._enter,
            "beat": self._beat,
            "own": self._own,
            "full": self._full,
            "exit": lambda line: self._send(line, epoch=-1),
            "pause": lambda line: self._send(line, epoch=-2),
            "cojoin": self._cojoin,
            "lead": self._lead,
            "save": self._save,
            "look": self._look,
            "consumer": self._tell_group,
            "described": self._tell_described,
        }

    def begin(self) -> None:
        stage = self._stage
        (self._classic,) = [play for play in stage.plays if isinstance(play, ClassicPlay)]
        self._classic.machine_for = self._machine_for
        self.protocol = ConsumerProtocol(stage.groups, stage.settings, lambda: self.topics, stage.new_member_id)

    def replay(self, key: Message, value: Message | None) -> None:
        self.protocol.replay(key, value)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        self.protocol.on_timer(key, outcome, now_ms)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        self.protocol.loaded(outcome, now_ms)

    def hear(self, who: str, response: Message) -> None:
        is_ours = isinstance(self._stage.groups.get("g"), ConsumerGroup)
        if isinstance(response, SyncGroupResponse) and is_ours and not response.error_code:
            self._stage.say(f"  {who} may have {_spelled(read_assignment(response.assignment).partitions)}")
        if isinstance(response, ConsumerGroupHeartbeatResponse) and who in self.consumers:
            consumer = self.consumers[who]
            consumer.member_id = response.member_id or consumer.member_id
            consumer.epoch = response.member_epoch
            if response.assignment is not None:
                consumer.assigned = tuple(response.assignment.topic_partitions)

    # --- commands ----------------------------------------------------------------------------------------------

    def _put_topics(self, line: Line) -> None:
        for name, count in line.options.items():
            self.topics.put(name, int(count))
        self._topics_changed()

    def _remake_topics(self, line: Line) -> None:
        for name, count in line.options.items():
            self.topics.put(name, 0)
            self.topics.put(name, int(count))
        self._topics_changed()

    def _topics_changed(self) -> None:
        outcome = self._stage.outcome()
        self.protocol.topics_changed(outcome, self._stage.now_ms())
        self._stage.carry_out(outcome)

    def _enter(self, line: Line) -> None:
        consumer = self._consumer(line)
        consumer.options = dict(line.options)
        self._send(line, epoch=0, options={"topics": "t", "rebalance": "60000", "owns": NOTHING, **line.options})

    def _beat(self, line: Line) -> None:
        self._send(line, epoch=self._consumer(line).epoch, options=line.options)

    def _own(self, line: Line) -> None:
        consumer = self._consumer(line)
        self._send(line, epoch=consumer.epoch, owned=consumer.assigned, options=line.options)

    def _full(self, line: Line) -> None:
        consumer = self._consumer(line)
        options = {"topics": "t", "rebalance": "60000", **consumer.options, **line.options}
        self._send(line, epoch=consumer.epoch, owned=consumer.assigned, options=options)

    def _send(
        self,
        line: Line,
        *,
        epoch: int,
        owned: tuple[TopicPartitions, ...] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        who, stage = line.words[0], self._stage
        asked = {**line.options, **(options or {})}
        consumer = self._consumer(line)
        if "owns" in asked:
            owned = self._parts(asked["owns"])
        member_id = asked.get("id", consumer.member_id)
        regex, version = asked.get("regex"), int(asked.get("version", 1))
        names = asked.get("topics")
        request = ConsumerGroupHeartbeatRequest(
            group_id="" if asked.get("group") == NOTHING else asked.get("group", "g"),
            member_id="" if member_id == NOTHING else member_id,
            member_epoch=int(asked.get("epoch", epoch)),
            instance_id=_text(asked.get("instance", consumer.options.get("instance"))),
            rack_id=_text(asked.get("rack")),
            rebalance_timeout_ms=int(asked.get("rebalance", -1)),
            subscribed_topic_names=None if names in (None, "null") else [n for n in names.split(",") if n != NOTHING],
            subscribed_topic_regex=_text(regex),
            server_assignor=asked.get("assignor"),
            topic_partitions=owned,
        )
        facts = ClientFacts(who, "/10.0.0.1")
        stage.ask(
            who, lambda ticket, out: self.protocol.heartbeat(request, version, facts, ticket, out, stage.now_ms())
        )

    def _cojoin(self, line: Line) -> None:
        who, stage, options = line.words[0], self._stage, line.options
        message = ConsumerProtocolSubscription(
            topics=options.get("topics", "t").split(","),
            owned_partitions=[
                OwnedPartitions(topic=name, partitions=sorted(numbers))
                for name, numbers in _numbers(options.get("owns", NOTHING)).items()
            ],
        )
        metadata = pack(">h", 1) + encode_bytes(message, 1)
        client = self._classic.clients.setdefault(who, Client())
        request = JoinGroupRequest(
            group_id=options.get("group", "g"),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=client.member_id,
            group_instance_id=options.get("instance"),
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)],
        )
        machine, facts = self._machine_for(request.group_id), ClientFacts(who, "/10.0.0.1")
        stage.ask(who, lambda ticket, out: machine.join(request, 9, facts, ticket, out, stage.now_ms()))

    def _lead(self, line: Line) -> None:
        who, stage, clients = line.words[0], self._stage, self._classic.clients
        request = SyncGroupRequest(
            group_id="g",
            generation_id=clients[who].generation,
            member_id=clients[who].member_id,
            group_instance_id=clients[who].instance_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=clients[name].member_id, assignment=write_assignment(_numbers(numbers), version=1)
                )
                for name, numbers in line.options.items()
            ],
        )
        machine = self._machine_for("g")
        stage.ask(who, lambda ticket, out: machine.sync(request, ticket, out, stage.now_ms()))

    def _save(self, line: Line) -> None:
        who, group, consumer = line.words[0], self._stage.groups.get("g"), self._consumer(line)
        assert group is not None
        member_id, epoch = line.options.get("id", consumer.member_id), line.number("epoch", consumer.epoch)

        def decide(ticket: Ticket, outcome: Outcome) -> None:
            group.check_commit("" if member_id == NOTHING else member_id, None, epoch)
            group.note_commit(member_id, outcome, self._stage.now_ms())
            del self._stage.waiting[ticket]
            self._stage.say(f"saved {who}")

        self._stage.ask(who, decide)

    def _look(self, line: Line) -> None:
        who, group, consumer = line.words[0], self._stage.groups.get("g"), self._consumer(line)
        assert group is not None
        member_id, epoch = line.options.get("id", consumer.member_id), line.number("epoch", consumer.epoch)

        def decide(ticket: Ticket, outcome: Outcome) -> None:
            group.check_fetch(None if member_id == NOTHING else member_id, epoch)
            del self._stage.waiting[ticket]
            self._stage.say(f"seen {who}")

        self._stage.ask(who, decide)

    def _tell_group(self, line: Line) -> None:
        group = self._stage.groups.get(line.words[0])
        if not isinstance(group, ConsumerGroup):
            self._stage.say("no such consumer group")
            return
        topics = ",".join(sorted(group.subscribed_topics()))
        self._stage.say(f"{group.state_name} epoch={group.epoch} target={group.target_epoch} topics={topics}")
        for member in group.members.values():
            kind = " classic" if member.is_classic else ""
            instance = f" instance={member.facts.instance_id}" if member.facts.instance_id else ""
            revoking = f" gives back {self._named(member.revoking)}" if member.revoking else ""
            target = group.target_of(member.member_id)
            shall = f" shall have {self._named(target)}" if target != member.assigned else ""
            self._stage.say(
                f"  {member.member_id}{kind}{instance} epoch={member.epoch} {member.state.name} "
                f"has {self._named(member.assigned)}{revoking}{shall}"
            )

    def _tell_described(self, line: Line) -> None:
        described = self.protocol.described(line.words[0])
        self._stage.say(shown(described))

    # --- odds and ends -------------------------------------------------------------------------------------------

    def _consumer(self, line: Line) -> Consumer:
        who = line.words[0]
        if who not in self.consumers:
            self.consumers[who] = Consumer(who)
        return self.consumers[who]

    def _named(self, assignment: Mapping[bytes, Iterable[int]]) -> str:
        named = {self.topics.topic_name(key) or key.decode().strip("."): value for key, value in assignment.items()}
        return _spelled(named)

    def _parts(self, text: str) -> tuple[TopicPartitions, ...]:
        return tuple(
            TopicPartitions(topic_id=self.topics.topic_id(name) or bytes(16), partitions=sorted(numbers))
            for name, numbers in _numbers(text).items()
        )

    def _machine_for(self, group_id: str) -> ClassicMachine:
        group = self._stage.groups.of_kind(group_id, ConsumerGroup)
        return self._classic.protocol if group is None else _ClassicDoor(self.protocol, group, self._classic.protocol)


class _ClassicDoor:
    """A consumer group as classic members see it, through a shard: if nobody is in it, it begins anew."""

    def __init__(self, protocol: ConsumerProtocol, group: ConsumerGroup, classic: ClassicProtocol) -> None:
        self._protocol = protocol
        self._group = group
        self._classic = classic

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        if self._group.members:
            self._protocol.join(request, version, client, ticket, outcome, now_ms)
        else:
            self._classic.join(request, version, client, ticket, outcome, now_ms)
            self._group.delete(outcome)

    def sync(self, request: SyncGroupRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._protocol.sync(request, ticket, outcome, now_ms)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._protocol.heartbeat_classic(request, ticket, outcome, now_ms)

    def leave(self, request: LeaveGroupRequest, version: int, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._protocol.leave(request, version, ticket, outcome, now_ms)


def _numbers(text: str) -> Numbers:
    """`t:0+1,u:2` taken apart."""
    if text == NOTHING:
        return {}
    parts = (part.split(":", 1) for part in text.split(","))
    return {name: frozenset(int(number) for number in numbers.split("+")) for name, numbers in parts}


def _spelled(partitions: Mapping[str, Iterable[int]]) -> str:
    parts = [f"{name}:{'+'.join(map(str, sorted(numbers)))}" for name, numbers in sorted(partitions.items())]
    return ",".join(parts) or "nothing"


def _text(value: str | None) -> str | None:
    """An option's text, where a dash stands for an empty one."""
    return "" if value == NOTHING else value

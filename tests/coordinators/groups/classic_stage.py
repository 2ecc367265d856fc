"""What classic groups bring to the stage: clients that join, sync, send heartbeats and leave.

    join a group=g version=9 session=10000 rebalance=60000 type=consumer protocols=range topics=t instance= id= reason=
    sync a group=g generation= id= instance= type= protocol= give=a:0+1,b:2
    heartbeat a group=g generation= id= instance=
    leave a b ... group=g version=5 instance= id=
    commit a group=g generation= id= instance=
    group g                   the group, as it stands

The options are shown with what they are by default, where that is not empty. A client remembers the member id and the
generation that it was told, and sends them; `id=` and `generation=` send something else (`id=-` sends none). What a
leader gives is text, by client or by member id: `give=a:0+1,b:2`; whom it leaves out gets nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.coordinators.groups.classic import ClassicProtocol
from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.classic_member import ApiVersion
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import GroupMetadataKey, GroupMetadataValue
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.error_codes import ErrorCode
from ottla.protocol.codec import encode_bytes
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Message
from tests.coordinators.groups.stage import Command, Line, Stage, shown_bytes

NOTHING = "-"


class ClassicMachine(Protocol):
    """Whatever answers the requests of classic members: the classic protocol, or a consumer group that has some."""

    def join(
        self,
        request: JoinGroupRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None: ...

    def sync(self, request: SyncGroupRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None: ...

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None: ...

    def leave(
        self, request: LeaveGroupRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None: ...


@dataclass
class Client:
    """What a client has been told."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


def subscription(topics: str) -> bytes:
    """The metadata of a consumer that reads these topics, with commas between them."""
    message = ConsumerProtocolSubscription(topics=[topic for topic in topics.split(",") if topic])
    return bytes(2) + encode_bytes(message, 0)


class ClassicPlay:
    """Classic groups on the stage."""

    timer_prefix = "classic"
    record_keys: tuple[type[Message], ...] = (GroupMetadataKey,)

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.clients: dict[str, Client] = {}
        self.commands: Mapping[str, Command] = {
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "commit": self._commit,
            "group": self._tell_group,
        }
        self.machine_for: Callable[[str], ClassicMachine] = lambda group_id: self.protocol
        """Which machine answers for a group; the play of another protocol may put itself in between."""
        self.begin()

    def begin(self) -> None:
        stage = self._stage
        self.protocol = ClassicProtocol(stage.groups, stage.settings, stage.new_member_id)

    def replay(self, key: Message, value: Message | None) -> None:
        assert isinstance(key, GroupMetadataKey)
        assert value is None or isinstance(value, GroupMetadataValue)
        self.protocol.replay(key, value)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        self.protocol.on_timer(key, outcome, now_ms)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        self.protocol.loaded(outcome, now_ms)

    def hear(self, who: str, response: Message) -> None:
        if isinstance(response, JoinGroupResponse) and who in self.clients:
            client = self.clients[who]
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = response.member_id
            elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            elif response.error_code == ErrorCode.NONE:
                client.member_id, client.generation = response.member_id, response.generation_id

    def _join(self, line: Line) -> None:
        who, options, stage = line.words[0], line.options, self._stage
        client = self._client(line)
        topics = subscription(options.get("topics", "t"))
        names = [name for name in options.get("protocols", "range").split(",") if name]
        request = JoinGroupRequest(
            group_id=self._group_id(line),
            session_timeout_ms=line.number("session", 10_000),
            rebalance_timeout_ms=line.number("rebalance", 60_000),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=topics) for name in names],
            reason=options.get("reason"),
        )
        machine, facts = self.machine_for(request.group_id), ClientFacts(who, "/10.0.0.1")
        version = line.number("version", 9)
        stage.ask(who, lambda ticket, out: machine.join(request, version, facts, ticket, out, stage.now_ms()))

    def _sync(self, line: Line) -> None:
        who, options, stage = line.words[0], line.options, self._stage
        client = self._client(line)
        given = dict(part.split(":", 1) for part in options["give"].split(",")) if "give" in options else {}
        request = SyncGroupRequest(
            group_id=self._group_id(line),
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self.clients[name].member_id if name in self.clients else name, assignment=what.encode()
                )
                for name, what in given.items()
            ],
        )
        machine = self.machine_for(request.group_id)
        stage.ask(who, lambda ticket, out: machine.sync(request, ticket, out, stage.now_ms()))

    def _heartbeat(self, line: Line) -> None:
        who, stage = line.words[0], self._stage
        client = self._client(line)
        request = HeartbeatRequest(
            group_id=self._group_id(line),
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        machine = self.machine_for(request.group_id)
        stage.ask(who, lambda ticket, out: machine.heartbeat(request, ticket, out, stage.now_ms()))

    def _leave(self, line: Line) -> None:
        stage, version, group_id = self._stage, line.number("version", 5), self._group_id(line)
        leaving = [self._client(Line("leave", [who], line.options)) for who in line.words]
        members = [
            MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id, reason="done")
            for each in leaving
        ]
        request = (
            LeaveGroupRequest(group_id=group_id, members=members)
            if version >= 3
            else LeaveGroupRequest(group_id=group_id, member_id=leaving[0].member_id)
        )
        machine = self.machine_for(group_id)
        stage.ask(line.words[0], lambda ticket, out: machine.leave(request, version, ticket, out, stage.now_ms()))

    def _commit(self, line: Line) -> None:
        who, stage = line.words[0], self._stage
        client = self._client(line)
        group = stage.groups.get(self._group_id(line))
        assert group is not None, "offsets of groups that do not exist are no business of the group"

        def decide(ticket: Ticket, outcome: Outcome) -> None:
            group.check_commit(client.member_id, client.instance_id, client.generation)
            group.note_commit(client.member_id, outcome, stage.now_ms())
            del stage.waiting[ticket]
            stage.say(f"committed {who}")

        stage.ask(who, decide)

    def _tell_group(self, line: Line) -> None:
        group = self._stage.groups.get(line.words[0])
        if not isinstance(group, ClassicGroup):
            self._stage.say("no such classic group")
            return
        topics = group.subscribed_topics()
        self._stage.say(
            f"{group.state_name} generation={group.generation} protocol={group.protocol_name or NOTHING} "
            f"leader={group.leader_id or NOTHING} topics={NOTHING if topics is None else ','.join(sorted(topics))}"
        )
        for member in group.described().members:
            given = shown_bytes(member.member_assignment)
            instance = f" instance={member.group_instance_id}" if member.group_instance_id else ""
            self._stage.say(f"  member {member.member_id}{instance} has {given}")
        for member_id in group.pending:
            self._stage.say(f"  expected {member_id}")

    @staticmethod
    def _group_id(line: Line) -> str:
        return line.options.get("group", "g")

    def _client(self, line: Line) -> Client:
        """The client as it speaks in this command: as it knows itself, and as the options say."""
        known = self.clients.setdefault(line.words[0], Client())
        if line.name == "join" and "instance" in line.options:
            known.instance_id = line.options["instance"]
        member_id = line.options.get("id", known.member_id)
        return Client(
            member_id="" if member_id == NOTHING else member_id,
            instance_id=line.options.get("instance", known.instance_id),
            generation=line.number("generation", known.generation),
        )

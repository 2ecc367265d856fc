"""Clients of classic groups, as a simulation needs them: they follow the protocol as real ones do, and nothing more.

A client has at most one request under way. Whoever leads assigns the partitions of each topic in ranges. What a client
does next, and whether its connection breaks meanwhile, is the simulation's to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ottla.coordinators.groups.classic_subscription import EMPTY_ASSIGNMENT, subscribed_topics
from ottla.coordinators.outcome import Ticket
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema import Message
from tests.coordinators.groups.classic_stage import subscription

Partition = tuple[str, int]

GROUP = "g"
PARTITIONS = {"t": 4, "u": 3}
"""The topics that there are."""
KNOWN_PROTOCOLS = {"range", "sticky"}


class Phase(Enum):
    """What a client has to do next."""

    JOIN = "join"
    SYNC = "sync"
    READ = "read"
    GONE = "gone"


@dataclass(eq=False)
class Client:
    """One process that wants to be in the group."""

    name: str
    version: int
    instance_id: str | None
    protocols: list[str]
    topics: list[str]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    phase: Phase = Phase.JOIN
    member_id: str = ""
    generation: int = -1
    ticket: Ticket | None = None
    """The answer that it waits for."""
    to_assign: JoinGroupResponse | None = None
    """As the leader of its generation: whom to assign what."""
    assigned: frozenset[Partition] = field(default_factory=frozenset)

    @property
    def identity(self) -> str:
        """Who it is over its restarts."""
        return self.instance_id or self.member_id

    def join_request(self) -> JoinGroupRequest:
        metadata = subscription(",".join(self.topics))
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols],
        )

    def sync_request(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_name=None if set(self.protocols) <= KNOWN_PROTOCOLS else self.protocols[0],
            assignments=_ranges(self.to_assign) if self.to_assign is not None else (),
        )

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def hear(self, response: Message) -> None:
        """An answer has come."""
        self.ticket = None
        if isinstance(response, JoinGroupResponse):
            self._hear_join(response)
        elif isinstance(response, SyncGroupResponse):
            if self._goes_on(response.error_code):
                self.phase = Phase.READ
                self.assigned = _partitions(response.assignment)
        elif isinstance(response, HeartbeatResponse):
            self._goes_on(response.error_code)

    def refused(self, code: ErrorCode) -> None:
        """A request was turned down."""
        self.ticket = None
        self._goes_on(code)

    def _hear_join(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif self._goes_on(response.error_code):
            self.phase = Phase.SYNC
            self.member_id, self.generation = response.member_id, response.generation_id
            leads = response.leader == response.member_id and not response.skip_assignment
            self.to_assign = response if leads else None

    def _goes_on(self, code: int) -> bool:
        """Whether all is well; if not, do as clients do."""
        if code == ErrorCode.NONE:
            return True
        self.assigned = frozenset()
        if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.phase = Phase.JOIN
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.phase = Phase.JOIN
            self.member_id = ""
        else:
            self.phase = Phase.GONE
        return False


def _ranges(generation: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
    """Each topic's partitions in ranges over those who want it. As text: nobody but these clients reads it."""
    given: dict[str, list[str]] = {member.member_id: [] for member in generation.members}
    wanted = {member.member_id: subscribed_topics(member.metadata) or frozenset() for member in generation.members}
    for topic, count in PARTITIONS.items():
        readers = sorted(member_id for member_id, topics in wanted.items() if topic in topics)
        for number in range(count if readers else 0):
            given[readers[number * len(readers) // count]].append(f"{topic}{number}")
    return [
        SyncGroupRequestAssignment(member_id=member_id, assignment=" ".join(partitions).encode())
        for member_id, partitions in given.items()
    ]


def _partitions(assignment: bytes) -> frozenset[Partition]:
    if assignment == EMPTY_ASSIGNMENT:
        return frozenset()
    return frozenset((name[0], int(name[1:])) for name in assignment.decode().split())

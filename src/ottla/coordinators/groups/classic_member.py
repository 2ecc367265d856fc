"""A member of a classic group: who it is, what it speaks, what it was assigned, and what it waits for.

Knows nothing of the other members: see `classic_group`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import MemberMetadata
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.errors import InvalidRequest
from ottla.protocol.messages.join_group import JoinGroupRequest

ApiVersion = int
"""The version of a request, which some answers depend on."""

JOIN_VERSION_REBALANCE_TIMEOUT = 1
"""Before it, the session timeout is also how long a rebalance waits for the member."""
REASON_CHARACTERS_MAX = 255
PROTOCOLS_MAX = 100
"""Protocols that a member may speak; clients are known to speak four. Each costs time whenever somebody joins."""


def check_protocols(request: JoinGroupRequest) -> None:
    """Raise InvalidRequest for a member that speaks more protocols than anybody needs."""
    if len(request.protocols) > PROTOCOLS_MAX:
        raise InvalidRequest(f"a member may speak {PROTOCOLS_MAX} protocols, not {len(request.protocols)}")


class JoinCall(NamedTuple):
    """A JoinGroup request, with what belongs to it."""

    request: JoinGroupRequest
    version: ApiVersion
    client: ClientFacts
    ticket: Ticket

    def protocols(self) -> dict[str, bytes]:
        """What the member speaks, what it likes best first. Of two entries of one name the first counts."""
        spoken: dict[str, bytes] = {}
        for protocol in self.request.protocols:
            spoken.setdefault(protocol.name, protocol.metadata)
        return spoken

    @property
    def rebalance_timeout_ms(self) -> int:
        asked_ms = self.request.rebalance_timeout_ms
        if self.version < JOIN_VERSION_REBALANCE_TIMEOUT or asked_ms < 0:
            return self.request.session_timeout_ms
        return asked_ms

    @property
    def size_bytes(self) -> int:
        """What the member would add to its group's record, roughly; all of it is the client's to choose."""
        names = 2 * len(self.request.group_instance_id or "") + 2 * len(self.client.client_id)
        return names + sum(len(protocol.name) + len(protocol.metadata) for protocol in self.request.protocols)

    def because(self, what: str) -> str:
        """Why the group rebalances, for the log: what the broker saw, and what the client says of it."""
        said = self.request.reason
        return f"{what} (the client says {said[:REASON_CHARACTERS_MAX]!r})" if said else what


class ParkedJoin(NamedTuple):
    """A JoinGroup request that waits for the others to join."""

    ticket: Ticket
    version: ApiVersion


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member. The last four fields are soft: gone after a restart, and changed by decisions as they go."""

    member_id: str
    group_instance_id: str | None
    client: ClientFacts
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """Name to metadata, what it likes best first. After a restart only the one that the group had chosen."""
    session_key: TimerKey
    size_bytes: int = 0
    """See `JoinCall.size_bytes`."""
    assignment: bytes = b""
    parked_join: ParkedJoin | None = None
    parked_sync: Ticket | None = None
    session_deadline_ms: int = 0
    is_new: bool = False
    """It has never been answered, so it may not know its own id and cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the broker owes it an answer; until then it need not send heartbeats."""
        return self.parked_join is not None or self.parked_sync is not None

    def speaks_as_before(self, protocols: dict[str, bytes]) -> bool:
        """Whether these are its protocols already, in the same order and with the same metadata."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """Of the protocols that everybody speaks, the one that it likes best."""
        return next(name for name in self.protocols if name in candidates)

    def expect_heartbeat(self, outcome: Outcome, now_ms: int) -> None:
        """It is alive: from now on it has another session timeout to say so again."""
        self.expect_sign_of_life(outcome, at_ms=now_ms + self.session_timeout_ms)

    def expect_sign_of_life(self, outcome: Outcome, *, at_ms: int) -> None:
        """Give it until then."""
        self.session_deadline_ms = at_ms
        outcome.set_timer(self.session_key, at_ms=at_ms)

    def recorded(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """As the group's record holds it."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.protocols.get(protocol, b"") if protocol is not None else b"",
            assignment=assignment,
        )


def session_key(group_id: str, member_id: str) -> TimerKey:
    """The timer that ends a session, of a member or of one that has been asked to come back with its id."""
    return ("classic", "session", group_id, member_id)


def restored(group_id: str, value: MemberMetadata, protocol: str | None) -> ClassicMember:
    """A member as its group's record tells it."""
    # Records of version 0 have no rebalance timeout; then the session's holds, as in the requests of that time.
    rebalance_timeout_ms = value.rebalance_timeout if value.rebalance_timeout >= 0 else value.session_timeout
    return ClassicMember(
        member_id=value.member_id,
        group_instance_id=value.group_instance_id,
        client=ClientFacts(value.client_id, value.client_host),
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=value.session_timeout,
        protocols={protocol or "": value.subscription},
        session_key=session_key(group_id, value.member_id),
        size_bytes=len(value.subscription) + 2 * len(value.group_instance_id or "") + 2 * len(value.client_id),
        assignment=value.assignment,
    )

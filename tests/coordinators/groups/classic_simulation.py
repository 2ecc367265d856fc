"""One seeded life of a classic group: clients come, go, crash and come back; so does the coordinator.

Records become durable some time after they were decided, and replies wait for that, as in a broker. When the
coordinator dies, a part of what was not durable is lost, with every reply that waited. After each step the promises
are checked:

- nobody gets two answers, and in the end everybody has got one;
- in one generation a partition has one owner;
- after a restart the group is what its last record says;
- whoever is waited for has a timer, so that no wait is for ever;
- when all is calm, the group is stable, everybody is in it, and every partition that somebody wants is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from ottla.clock import ManualClock
from ottla.coordinators.groups.classic import ClassicProtocol
from ottla.coordinators.groups.classic_group import ClassicGroup, GroupState
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import GroupMetadataKey, GroupMetadataValue, decode, encode_key, encode_value
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket, TimerKey
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.protocol.schema import Message
from tests.coordinators.groups.classic_clients import GROUP, PARTITIONS, Client, Partition, Phase

STEPS = 300
CLIENTS_MAX = 7
CALM_ROUNDS = 150
CALM_ROUND_MS = 1_000
AT_REST = (GroupState.EMPTY, GroupState.STABLE)

Decide = Callable[[Ticket, Outcome], None]


class Simulation:
    """The life of one group."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self._random = Random(seed)
        self._counts = counts
        self._clock = ManualClock(0)
        self._settings = GroupSettings(
            initial_rebalance_delay_ms=self._random.choice((0, 500, 3_000)),
            members_max=self._random.choice((2, 4, 100, 100)),
        )
        self._trouble = self._random.choice((0.2, 0.5, 1.0))
        """How much happens that should not; with less of it a group comes further."""
        self._durable: list[tuple[bytes, bytes | None]] = []
        self._unsynced: list[CoordinatorRecord] = []
        self._held: list[tuple[Ticket, Message, int]] = []
        """Replies that wait, and in which life of the group they were decided."""
        self._timers: dict[TimerKey, int] = {}
        self._waiting: dict[Ticket, Client | None] = {}
        self._tickets = 0
        self._names = 0
        self._clients: list[Client] = []
        self._lives = 0
        """How many groups of this name there have been; each begins with its first generation again."""
        self._owners: dict[tuple[int, int, Partition], str] = {}
        self._begin()

    # --- one life -------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Live it; returns what is left, so that two runs of a seed can be compared."""
        for _ in range(STEPS):
            self._step()
            self._check()
        self._calm_down()
        self._end()
        return f"{self._durable!r} {self._clock.now_ms()}"

    def _step(self) -> None:
        usual: list[tuple[float, Callable[[], None]]] = [
            (60, self._let_somebody_act),
            (40, self._sync),
            (20, self._tick),
            (6, self._start_a_client),
        ]
        unusual: list[tuple[float, Callable[[], None]]] = [
            (4, self._break_a_connection),
            (3, self._change_wishes),
            (2, self._crash_a_client),
            (4, self._restart_a_static_client),
            (2, self._leave),
            (1, self._leave_by_admin),
            (4, self._send_nonsense),
            (2, self._delete),
            (2, self._restart),
        ]
        actions = [*usual, *((weight * self._trouble, action) for weight, action in unusual)]
        (action,) = self._random.choices([each for _, each in actions], [weight for weight, _ in actions])
        action()

    def _calm_down(self) -> None:
        """Nothing goes wrong any more."""
        for round_number in range(CALM_ROUNDS):
            for client in self._clients:
                if client.ticket is None and (client.phase is not Phase.READ or round_number % 3 == 0):
                    self._act(client)
                self._sync()
            self._advance(CALM_ROUND_MS)
            self._sync()
            self._check()
        alive = [client for client in self._clients if client.phase is not Phase.GONE]
        group = self._group()
        if not alive:
            assert group is None or group.state is GroupState.EMPTY
            return
        assert group is not None, "there are members, and no group"
        assert group.state is GroupState.STABLE, group.state_name
        assert {client.member_id for client in alive} == set(group.members)
        assert {client.generation for client in alive} == {group.generation}
        wanted = {topic for client in alive for topic in client.topics}
        read = [partition for client in alive for partition in client.assigned]
        assert sorted(read) == sorted((topic, number) for topic in wanted for number in range(PARTITIONS[topic]))
        self._counts["came to rest with members"] += 1

    def _end(self) -> None:
        """Everybody is silent from now on: what is still waited for ends by itself."""
        self._clients.clear()
        for _ in range(20):
            self._advance(100_000)
            self._sync()
        assert self._waiting == {}, "somebody was never answered"
        assert self._timers == {}, f"a timer that nobody needs: {self._timers}"
        group = self._group()
        assert group is None or group.is_empty

    # --- what can happen ------------------------------------------------------------------------------------

    def _let_somebody_act(self) -> None:
        idle = [client for client in self._clients if client.ticket is None]
        if idle:
            self._act(self._random.choice(idle))

    def _act(self, client: Client) -> None:
        if client.phase is Phase.JOIN:
            request, facts = client.join_request(), ClientFacts(client.name, "/h")
            now_ms = self._clock.now_ms()
            self._ask(
                client,
                "JoinGroup",
                lambda ticket, out: self._protocol.join(request, client.version, facts, ticket, out, now_ms),
            )
        elif client.phase is Phase.SYNC:
            sync = client.sync_request()
            self._ask(
                client, "SyncGroup", lambda ticket, out: self._protocol.sync(sync, ticket, out, self._clock.now_ms())
            )
        elif client.phase is Phase.READ:
            heartbeat = client.heartbeat_request()
            self._ask(
                client,
                "Heartbeat",
                lambda ticket, out: self._protocol.heartbeat(heartbeat, ticket, out, self._clock.now_ms()),
            )

    def _sync(self) -> None:
        """The disk has caught up: records are durable, and replies go out."""
        for key, value in self._unsynced:
            self._durable.append((encode_key(key), None if value is None else encode_value(value)))
        self._unsynced.clear()
        held, self._held = self._held, []
        for ticket, response, life in held:
            client = self._waiting.pop(ticket)
            self._count_answer(response)
            if client is not None and client.ticket == ticket:
                client.hear(response)
                if isinstance(response, SyncGroupResponse) and client.phase is Phase.READ:
                    self._check_owner(client, life)

    def _tick(self) -> None:
        self._advance(self._random.choice((1, 100, 100, 1_000, 1_000, 3_000, 7_000, 20_000)))

    def _advance(self, ms: int) -> None:
        end_ms = self._clock.now_ms() + ms
        while due := [(at_ms, key) for key, at_ms in self._timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due)
            self._clock.advance(max(at_ms - self._clock.now_ms(), 0))
            del self._timers[key]
            self._counts[f"timer {key[1]}"] += 1
            outcome = Outcome(self._replay)
            self._protocol.on_timer(key, outcome, self._clock.now_ms())
            self._carry_out(outcome)
        self._clock.advance(end_ms - self._clock.now_ms())

    def _break_a_connection(self) -> None:
        """The client never hears the answer that it waits for, and asks again."""
        waiting = [client for client in self._clients if client.ticket is not None]
        if waiting:
            self._random.choice(waiting).ticket = None

    def _start_a_client(self) -> None:
        if len(self._clients) < CLIENTS_MAX:
            is_static = self._random.random() < 0.4
            taken = {client.instance_id for client in self._clients}
            free = [instance for instance in ("one", "two", "three") if instance not in taken]
            self._clients.append(self._new_client(self._random.choice(free) if is_static and free else None))

    def _new_client(self, instance_id: str | None) -> Client:
        self._names += 1
        return Client(
            name=f"c{self._names}",
            version=self._random.randint(5 if instance_id else 0, 9),
            instance_id=instance_id,
            protocols=self._random.choice((["range", "sticky"], ["sticky", "range"], ["sticky", "range"], ["range"])),
            topics=self._random.choice((["t"], ["t", "u"], ["u"])),
            session_timeout_ms=self._random.choice((6_000, 10_000, 30_000)),
            rebalance_timeout_ms=self._random.choice((5_000, 20_000, 60_000)),
        )

    def _change_wishes(self) -> None:
        """A member subscribes to something else, or just wants another assignment, and joins again."""
        readers = [client for client in self._clients if client.phase is Phase.READ and client.ticket is None]
        if readers:
            client = self._random.choice(readers)
            client.topics = self._random.choice((client.topics, ["t", "u"]))
            client.phase = Phase.JOIN

    def _crash_a_client(self) -> None:
        if self._clients:
            self._clients.remove(self._random.choice(self._clients))

    def _restart_a_static_client(self) -> None:
        """A new process with the instance id of another, which may still be alive and think it is a member."""
        static = [client for client in self._clients if client.instance_id is not None]
        if static:
            former = self._random.choice(static)
            new = self._new_client(former.instance_id)
            new.protocols, new.topics = former.protocols, self._random.choice((former.topics, former.topics, ["t"]))
            self._clients.remove(former)
            self._clients.append(new)
            if self._random.random() < 0.5 and former.ticket is None and former.member_id:
                self._act(new)
                if self._random.random() < 0.2:
                    self._send_leave([MemberIdentity(member_id=former.member_id, group_instance_id=new.instance_id)], 5)
                else:
                    self._act(former)

    def _leave(self) -> None:
        members = [client for client in self._clients if client.member_id and client.ticket is None]
        if members:
            leaving = self._random.sample(members, self._random.randint(1, min(2, len(members))))
            for client in leaving:
                self._clients.remove(client)
            identities = [
                MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id) for client in leaving
            ]
            self._send_leave(identities, self._random.choice((2, 5)))

    def _leave_by_admin(self) -> None:
        instance_id = self._random.choice(("one", "two"))
        self._send_leave([MemberIdentity(member_id="", group_instance_id=instance_id)], 5)

    def _send_leave(self, identities: list[MemberIdentity], version: int) -> None:
        if version < 3:
            request = LeaveGroupRequest(group_id=GROUP, member_id=identities[0].member_id)
        else:
            request = LeaveGroupRequest(group_id=GROUP, members=identities)
        self._ask(
            None,
            "LeaveGroup",
            lambda ticket, out: self._protocol.leave(request, version, ticket, out, self._clock.now_ms()),
        )

    def _send_nonsense(self) -> None:
        """What a client may send that is broken, or has slept for long."""
        stranger = self._new_client(self._random.choice((None, "one")))
        group = self._group()
        known = [*group.members, *group.pending] if group is not None else []
        stranger.member_id = self._random.choice(["nobody", *known])
        generation = group.generation if group is not None else 7
        stranger.generation = self._random.choice((-1, 0, generation - 1, generation))
        stranger.phase = self._random.choice((Phase.JOIN, Phase.SYNC, Phase.READ))
        if self._random.random() < 0.3:
            stranger.protocols = ["unheard-of"]
        if self._random.random() < 0.2:
            stranger.session_timeout_ms = 1
        is_current = stranger.member_id in known and stranger.generation == generation
        if is_current and (stranger.phase is Phase.SYNC) != (stranger.protocols == ["unheard-of"]):
            return  # It would be the member itself, as far as anybody can tell.
        self._act(stranger)

    def _delete(self) -> None:
        group = self._group()
        if group is not None and group.is_empty:
            outcome = Outcome(self._replay)
            group.delete(outcome)
            self._carry_out(outcome)

    def _restart(self) -> None:
        """The coordinator dies. What was not durable may be lost from some record on; replies that waited are."""
        group = self._group()
        self._counts[f"restart in {group.state_name if group is not None else 'nothing'}"] += 1
        is_at_rest = group is not None and group.state in AT_REST and group.is_recorded and not self._unsynced
        before = _snapshot(group) if group is not None and is_at_rest else None
        kept = self._random.randint(0, len(self._unsynced))
        self._counts["records lost in a restart"] += len(self._unsynced) - kept
        self._held.clear()
        del self._unsynced[kept:]
        self._sync()
        for ticket, client in self._waiting.items():
            if client is not None and client.ticket == ticket:
                client.ticket = None
        self._waiting.clear()
        self._timers.clear()
        self._begin()
        self._check_restored(self._load())
        restored = self._group()
        assert before is None or (restored is not None and _snapshot(restored) == before), (
            "it was not recorded as it was"
        )
        outcome = Outcome(self._replay)
        self._protocol.loaded(outcome, self._clock.now_ms())
        self._carry_out(outcome)

    # --- the coordinator around the machine -----------------------------------------------------------------

    def _begin(self) -> None:
        self._groups = Groups()
        self._protocol = ClassicProtocol(self._groups, self._settings, self._new_member_id)

    def _load(self) -> GroupMetadataValue | None:
        last: GroupMetadataValue | None = None
        self._lives = 0
        for key, value in self._durable:
            record = decode(key, value)
            assert record is not None
            self._replay(record.key, record.value)
            last = record.value if isinstance(record.value, GroupMetadataValue) else None
        return last

    def _new_member_id(self, client_id: str) -> str:
        return f"{client_id}-{self._random.getrandbits(64):x}"

    def _replay(self, key: Message, value: Message | None) -> None:
        assert isinstance(key, GroupMetadataKey)
        assert value is None or isinstance(value, GroupMetadataValue)
        self._lives += value is None
        self._protocol.replay(key, value)

    def _ask(self, client: Client | None, api: str, decide: Decide) -> None:
        self._tickets += 1
        ticket = self._tickets
        self._waiting[ticket] = client
        if client is not None:
            client.ticket = ticket
        outcome = Outcome(self._replay)
        try:
            decide(ticket, outcome)
        except Refusal as refusal:
            assert [*outcome.records, *outcome.replies, *outcome.timers] == [], "refused after it was decided"
            del self._waiting[ticket]
            self._counts[f"{api} {refusal.code.name}"] += 1
            if client is not None:
                client.refused(refusal.code)
        self._carry_out(outcome)

    def _carry_out(self, outcome: Outcome) -> None:
        self._unsynced += outcome.records
        for ticket, response in outcome.replies:
            assert ticket in self._waiting, "nobody waits for this"
            assert ticket not in {held for held, *_ in self._held}, "two answers for one request"
            assert not isinstance(response, Refusal), "no request is refused late here"
            self._held.append((ticket, response, self._lives))
        for key, at_ms in outcome.timers.items():
            if at_ms is None:
                self._timers.pop(key, None)
            else:
                self._timers[key] = at_ms
        for (before, after), count in self._protocol.transitions.items():
            self._counts[f"{before.value} -> {after.value}"] += count
        self._protocol.transitions.clear()

    def _count_answer(self, response: Message) -> None:
        api = type(response).__name__.removesuffix("Response")
        codes = [
            member.error_code for member in getattr(response, "members", ()) if isinstance(response, LeaveGroupResponse)
        ]
        for code in codes or [getattr(response, "error_code", 0)]:
            self._counts[f"{api} {ErrorCode(code).name}"] += 1
        if isinstance(response, JoinGroupResponse) and response.skip_assignment:
            self._counts["a static leader skips the assignment"] += 1

    def _group(self) -> ClassicGroup | None:
        return self._groups.of_kind(GROUP, ClassicGroup)

    # --- promises -------------------------------------------------------------------------------------------

    def _check(self) -> None:
        group = self._group()
        if group is None:
            return
        members = group.members.values()
        assert group.joined_count == sum(member.parked_join is not None for member in members)
        for member in members:
            if not member.is_waiting:
                assert self._timers.get(member.session_key) == member.session_deadline_ms, "nobody watches this session"
        for member_id in group.pending:
            assert ("classic", "session", GROUP, member_id) in self._timers
        preparing = group.state is GroupState.PREPARING_REBALANCE
        assert (group.join_key in self._timers) == preparing
        assert (group.sync_key in self._timers) == bool(group.pending_sync)
        if group.state is GroupState.EMPTY:
            assert not group.members
        elif not preparing:
            assert group.leader_id in group.members
            assert group.protocol_name is not None
        parked = {member.parked_join.ticket for member in members if member.parked_join is not None}
        parked |= {member.parked_sync for member in members if member.parked_sync is not None}
        answered = {ticket for ticket, *_ in self._held}
        assert parked | answered == set(self._waiting), "a request that nobody remembers"

    def _check_owner(self, client: Client, life: int) -> None:
        for partition in client.assigned:
            owner = self._owners.setdefault((life, client.generation, partition), client.identity)
            assert owner == client.identity, f"{partition} has two owners in generation {client.generation}"

    def _check_restored(self, last: GroupMetadataValue | None) -> None:
        group = self._group()
        if last is None:
            assert group is None, "a group that was never recorded"
            return
        assert group is not None, "a group that was lost"
        assert _snapshot(group) == last
        assert group.state is (GroupState.STABLE if last.members else GroupState.EMPTY)


def _snapshot(group: ClassicGroup) -> GroupMetadataValue:
    """The group as a record would hold it."""
    assignments = {member.member_id: member.assignment for member in group.members.values()}
    return group.snapshot(assignments, since_ms=group.state_since_ms)

"""One seeded life of a consumer group: members of both protocols come, go, stall and change their minds, topics come,
grow and go, answers are lost, and the coordinator restarts from its records.

After every decision no partition may have two owners among the members that the coordinator has, and a new target may
move no more than it must. In the end, when everybody is well, everything must be assigned, evenly, and known to all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from ottla.clock import ManualClock
from ottla.coordinators.groups.assignors import Assignment
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import MemberState
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.records import decode, encode_key, encode_value
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.shard import GroupShard
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.errors import Refusal
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.schema import Message
from tests.coordinators.groups.consumer_clients import (
    GROUP,
    SESSION_MS,
    ClassicClient,
    Client,
    ConsumerClient,
    Partition,
)
from tests.coordinators.groups.consumer_stage import StageTopics

STEPS = 250
CLIENTS_MAX = 8
QUIET_ROUNDS = 60
NAMES = ("orders", "orders-eu", "payments", "logs")

Snapshot = dict[str, tuple[MemberState, int, Assignment, Assignment]]


class Simulation:
    """A shard, its log and its timers, the topics, the clients, and the chance that drives them all."""

    def __init__(self, seed: int, transitions: Counter[str]) -> None:
        self.random = Random(seed)
        self.transitions = transitions
        self.clock = ManualClock(1_000_000)
        self.topics = StageTopics()
        self.settings = self._choose_settings()
        self.is_cooperative = self.random.random() < 0.5
        self.speaks_classic = self.random.choice((0.0, 0.0, 0.3, 0.6, 0.85))
        self.wishes_are_equal = self.random.random() < 0.5
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.waiting: dict[Ticket, Client] = {}
        self.clients: list[Client] = []
        self._tickets = 0
        self._ids = 0
        self._is_quiet = False
        for name in self.random.sample(NAMES, 2):
            self.topics.put(name, self.random.randint(1, 6))
        self.shard = self._new_shard()

    def _choose_settings(self) -> GroupSettings:
        return GroupSettings(
            consumer_session_timeout_ms=SESSION_MS,
            consumer_members_max=self.random.choice((CLIENTS_MAX - 2, 100)),
            consumer_assignors=self.random.choice((("uniform", "range"), ("range", "uniform"), ("uniform",))),
            initial_rebalance_delay_ms=self.random.choice((0, 1_000)),
            consumer_migration_downgrade=self.random.random() < 0.8,
        )

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, lambda: self.topics, self._new_member_id)

    def _new_member_id(self, client_id: str) -> str:
        self._ids += 1
        return f"{client_id}-{self._ids}"

    @property
    def group(self) -> ConsumerGroup | None:
        return self.shard.groups.of_kind(GROUP, ConsumerGroup)

    # --- the run -----------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Live through it; returns the state that it ended in."""
        events: list[tuple[Callable[[], None], int]] = [
            (self.somebody_acts, 60),
            (self.time_passes, 12),
            (self.somebody_comes, 6),
            (self.somebody_leaves, 3),
            (self.somebody_crashes, 2),
            (self.somebody_wants_something_else, 4),
            (self.topics_change, 3),
            (self.restart, 2),
        ]
        for _ in range(STEPS):
            (event,) = self.random.choices([event for event, _ in events], [weight for _, weight in events])
            event()
        self.calm_down()
        self.check_converged()
        return repr((sorted(self.owners().items()), len(self.log)))

    def somebody_acts(self) -> None:
        if self.clients:
            self.random.choice(self.clients).turn(self.send)

    def time_passes(self) -> None:
        # Mostly too little for a timeout, so that those who stall long enough are the exception.
        self.pass_time(self.random.choice((100, 500, 1_000, 2_000, 3_000)))

    def somebody_comes(self) -> None:
        if len(self.clients) >= CLIENTS_MAX:
            return
        self._ids += 1
        name = f"c{self._ids}"
        client: Client
        if self.random.random() < self.speaks_classic:
            client = ClassicClient(name, self.random, self.topics, is_cooperative=self.is_cooperative)
            client.topic_names = set(NAMES[:2]) if self.wishes_are_equal else self.some_names()
        else:
            client = ConsumerClient(name, self.random, self.topics)
            self.choose_wishes(client)
            if self.random.random() < 0.3:
                client.instance_id = self.random.choice(("i1", "i2", "i3"))
        client.is_slow = self.random.random() < 0.2
        self.clients.append(client)
        client.turn(self.send)

    def some_names(self) -> set[str]:
        return set(self.random.sample(NAMES, self.random.randint(1, 3)))

    def choose_wishes(self, client: ConsumerClient) -> None:
        if self.wishes_are_equal:
            client.subscribe(set(NAMES[:2]), "")
        elif self.random.random() < 0.3:
            client.subscribe(set(), self.random.choice(("orders.*", ".*s")))
        else:
            client.subscribe(self.some_names(), "")

    def somebody_leaves(self) -> None:
        if self.clients:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            client.leave(self.send)

    def somebody_crashes(self) -> None:
        if self.clients:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            client.is_gone = True
            client.owned = set()

    def somebody_wants_something_else(self) -> None:
        consumers = [client for client in self.clients if isinstance(client, ConsumerClient)]
        if consumers and not self.wishes_are_equal:
            self.choose_wishes(self.random.choice(consumers))

    def topics_change(self) -> None:
        name = self.random.choice(NAMES)
        count = self.topics.partition_count(name)
        self.topics.put(name, 0 if count and self.random.random() < 0.2 else count + self.random.randint(1, 3))
        outcome = Outcome(self.shard.replay)
        self.shard.topics_changed(outcome, self.clock.now_ms(), is_any_deleted=False)
        self.carry_out(outcome)

    def restart(self, before: Snapshot | None = None) -> None:
        """The coordinator dies. What was not answered never will be; all else is in the records.

        `before` is what the records tell, where the last decision did not make it into them.
        """
        self.transitions["the coordinator restarts"] += 1
        before = self.snapshot() if before is None else before
        if self.random.random() < 0.5:
            self.compact()
        shard = self._new_shard()
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            shard.replay(record.key, record.value)
        self.shard = shard
        assert self.snapshot() == before, "a restart brings back what was promised"
        self.timers.clear()
        for client in self.waiting.values():
            client.miss()
        self.waiting.clear()
        outcome = Outcome(shard.replay)
        shard.loaded(outcome, self.clock.now_ms())
        self.carry_out(outcome)
        self.check_owners()

    def compact(self) -> None:
        """Of each key the last record stays, where it is, and in the end not even that of what was deleted."""
        self.transitions["the log is compacted"] += 1
        last = {key: number for number, (key, _) in enumerate(self.log)}
        forgets = self.random.random() < 0.5
        self.log = [
            (key, value)
            for number, (key, value) in enumerate(self.log)
            if last[key] == number and not (forgets and value is None)
        ]

    def calm_down(self) -> None:
        """No more trouble: everybody is quick, nothing is lost, time passes in small steps."""
        self._is_quiet = True
        for client in self.clients:
            client.is_slow = False
        for _ in range(QUIET_ROUNDS):
            for client in self.clients:
                client.turn(self.send)
            self.pass_time(500)

    # --- what a broker does --------------------------------------------------------------------------------------

    def send(self, client: Client, request: Message) -> None:
        """A request arrives; the answer comes at once, later, or never."""
        self._tickets += 1
        ticket, outcome = self._tickets, Outcome(self.shard.replay)
        self.waiting[ticket] = client
        before, state = self.snapshot(), self.state()
        targets, target_epoch = self.targets()
        try:
            self.decide(request, ClientFacts(client.name, "/"), ticket, outcome)
        except Refusal as refusal:
            done = [*outcome.records, *outcome.replies, *outcome.timers]
            assert done == [], "refused after it was decided"
            self.transitions[f"refused: {refusal.code.name}"] += 1
            outcome.reply(ticket, _refused(request, refusal))
        if outcome.records and not self._is_quiet and self.random.random() < 0.02:
            # The power goes before the records are on disk: nobody was answered, and nothing of it ever happened.
            self.transitions["a decision is lost"] += 1
            self.restart(before)
            return
        self.count(before, state)
        self.check_target(targets, target_epoch)
        self.carry_out(outcome)
        self.check_owners()

    def decide(self, request: Message, client: ClientFacts, ticket: Ticket, outcome: Outcome) -> None:
        now_ms = self.clock.now_ms()
        match request:
            case ConsumerGroupHeartbeatRequest():
                self.shard.heartbeat_consumer(request, 1, client, ticket, outcome, now_ms)
            case JoinGroupRequest():
                self.shard.join(request, 9, client, ticket, outcome, now_ms)
            case SyncGroupRequest():
                self.shard.sync(request, ticket, outcome, now_ms)
            case HeartbeatRequest():
                self.shard.heartbeat(request, ticket, outcome, now_ms)
            case LeaveGroupRequest():
                self.shard.leave(request, 5, ticket, outcome, now_ms)

    def carry_out(self, outcome: Outcome) -> None:
        for key, value in outcome.records:
            self.log.append((encode_key(key), None if value is None else encode_value(value)))
        for timer, at_ms in outcome.timers.items():
            if at_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = at_ms
        for ticket, response in outcome.replies:
            client = self.waiting.pop(ticket)
            assert not isinstance(response, Refusal), "no request is refused late here"
            if client.is_gone:
                continue
            if not self._is_quiet and self.random.random() < 0.05:
                self.transitions["an answer is lost"] += 1
                client.miss()
            else:
                client.hear(response)

    def pass_time(self, ms: int) -> None:
        end_ms = self.clock.now_ms() + ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due)
            self.clock.advance(max(0, at_ms - self.clock.now_ms()))
            del self.timers[key]
            outcome = Outcome(self.shard.replay)
            before, state = self.snapshot(), self.state()
            self.shard.on_timer(key, outcome, self.clock.now_ms())
            if outcome.records and key[0] == "consumer":
                self.transitions[f"too late: {key[1]}"] += 1
            self.count(before, state)
            self.carry_out(outcome)
            self.check_owners()
        self.clock.advance(end_ms - self.clock.now_ms())

    # --- what must hold --------------------------------------------------------------------------------------------

    def owners(self) -> dict[Partition, list[str]]:
        """Who reads from each partition, of those whom the coordinator has as members."""
        group = self.shard.groups.get(GROUP)
        members = getattr(group, "members", {})
        found: dict[Partition, list[str]] = {}
        for client in self.clients:
            if client.member_id in members:
                for partition in client.owned:
                    found.setdefault(partition, []).append(client.name)
        return found

    def check_owners(self) -> None:
        twice = {partition: names for partition, names in self.owners().items() if len(names) > 1}
        assert not twice, f"two owners: {twice}"

    def targets(self) -> tuple[dict[str, Assignment], int]:
        return ({}, 0) if self.group is None else (dict(self.group.targets), self.group.target_epoch)

    def check_target(self, before: dict[str, Assignment], epoch_before: int) -> None:
        """A new target of equal wishes is even, and keeps as much as it can."""
        group = self.group
        if group is None or group.target_epoch == epoch_before or self.settings.consumer_assignors[0] != "uniform":
            return
        if not self.wishes_are_equal or not group.members:
            return
        there = {
            (topic_id, number)
            for name in NAMES[:2]
            if (topic_id := self.topics.topic_id(name)) is not None
            for number in range(self.topics.partition_count(name))
        }
        shares = [_partitions(group.target_of(member_id)) for member_id in group.members]
        assert sum(map(len, shares)) == len(there)
        assert set().union(*shares) == there
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        had = [_partitions(before.get(member_id, {})) & there for member_id in group.members]
        share, larger_shares = divmod(len(there), len(group.members))
        may_keep = sum(min(len(part), share) for part in had)
        may_keep += min(larger_shares, sum(len(part) > share for part in had))
        replaced = any(member_id not in before for member_id in group.members) and len(before) == len(group.members)
        kept = sum(len(new & old) for new, old in zip(shares, had, strict=True))
        assert kept == may_keep or replaced, f"kept {kept} of {may_keep}"

    def check_converged(self) -> None:
        owners = self.owners()
        members = getattr(self.shard.groups.get(GROUP), "members", {})
        wanted = {
            (topic_id, number)
            for client in self.clients
            if client.member_id in members
            for name in self.topics.names()
            if name in client.topic_names or _matches(client.pattern, name)
            if (topic_id := self.topics.topic_id(name)) is not None
            for number in range(self.topics.partition_count(name))
        }
        assert set(owners) == wanted, "everything that somebody wants is read"
        # The group may be full, or the instance id in use; of all others, everybody is in.
        instances = [client.instance_id for client in self.clients if client.instance_id]
        kept_out = len(instances) - len(set(instances))
        assert len(members) >= min(len(self.clients) - kept_out, self.settings.consumer_members_max)
        group = self.group
        if group is None:
            return
        assert group.state_name in ("Stable", "Empty"), group.state_name
        for client in self.clients:
            if client.member_id in group.members:
                assert client.owned == _partitions(group.members[client.member_id].assigned)
        if self.wishes_are_equal and self.settings.consumer_assignors[0] == "uniform" and group.members:
            loads = [len(_partitions(member.assigned)) for member in group.members.values()]
            assert max(loads) - min(loads) <= 1, loads

    # --- what is counted ---------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        if self.group is None:
            return {}
        return {
            member_id: (member.state, member.epoch, member.assigned, member.revoking)
            for member_id, member in self.group.members.items()
        }

    def state(self) -> str:
        if self.group is not None:
            return self.group.state_name
        return "classic" if GROUP in self.shard.groups else "none"

    def count(self, before: Snapshot, state: str) -> None:
        after = self.snapshot()
        for member_id in before.keys() | after.keys():
            old, new = before.get(member_id), after.get(member_id)
            if old != new:
                names = [each[0].name if each is not None else "-" for each in (old, new)]
                self.transitions[f"member: {names[0]} > {names[1]}"] += 1
        if self.state() != state:
            self.transitions[f"group: {state} > {self.state()}"] += 1


def _partitions(assignment: Assignment) -> set[Partition]:
    return {(topic_id, number) for topic_id, numbers in assignment.items() for number in numbers}


def _matches(pattern: str, name: str) -> bool:
    return {"orders.*": name.startswith("orders"), ".*s": name.endswith("s")}.get(pattern, False)


def _refused(request: Message, refusal: Refusal) -> Message:
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=refusal.code)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=refusal.code)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=refusal.code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=refusal.code)
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code)

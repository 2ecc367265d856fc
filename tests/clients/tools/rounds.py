"""Rounds of churn in a group of clients in other languages: members join, leave, are killed and return, by a seed.

Alone, or beside Python clients in one group. There is one topic: VerifiableConsumer reads no more than one, and knows
no patterns. Whoever else subscribes by pattern does so in a test of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.clients.groups import churn_checks
from tests.clients.groups.churn_members import Life, MemberProcess, News
from tests.clients.groups.churn_topics import Topics
from tests.clients.groups.members import Spec
from tests.clients.server_process import ServerProcess
from tests.clients.tools.group_history import History, history
from tests.clients.tools.listened import ListenedMember

SETTLE_SECONDS_MAX = 90
MEMBERS_MAX = 4
PARTITIONS = 6
RECORDS_EACH_ROUND = 60
SESSION_MS = 4_000
HEARTBEAT_MS = 500
SHARDS = 4
BROKER_SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "offsets.topic.num.partitions": str(SHARDS),
}

Member = ListenedMember | MemberProcess
Begin = Callable[[Spec, News, Path], Member]
"""Starts a member of one client."""


def python_member(spec: Spec, news: News, directory: Path) -> Member:
    """Start a member of a Python client."""
    return MemberProcess(spec, news, directory)


class Rounds:
    """One group under churn."""

    def __init__(
        self,
        name: str,
        address: str,
        clients: Mapping[str, Begin],
        *,
        topics: Topics,
        directory: Path,
        chance: random.Random,
        has_static: bool = True,
    ) -> None:
        self.group = f"group.{name}"
        self.members: list[Member] = []
        self.done: list[str] = []
        """What happened, round by round."""
        self._clients = clients
        """By their names; the first one is in the group from the beginning to the end."""
        self._has_static = has_static
        """Whether that one has an instance id, and so returns as itself."""
        self._topic = f"{name}.orders"
        self._address = address
        self._topics = topics
        self._directory = directory
        self._chance = chance
        self._news = News()
        self._actions: list[Callable[[], str]] = []
        self._ends = ExitStack()

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def lives(self) -> list[Life]:
        return [member.life for member in self.members]

    @property
    def living(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    # --- the whole -------------------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        self._topics.make(self._topic, partitions=PARTITIONS)
        clients = list(self._clients)
        self._start(clients[0], instance="a" if self._has_static else None)
        self._start(clients[1 % len(clients)])
        self._settle()
        for _ in range(rounds):
            self._topics.send([self._topic], RECORDS_EACH_ROUND)
            self.done.append(self._action()())
            self._settle()
        self._topics.send([self._topic], RECORDS_EACH_ROUND)
        self._topics.finish()
        self._finish()

    def _finish(self) -> None:
        """Everything gets processed and committed by the members that are left; then they leave."""
        self._news.wait_until(lambda: not self._unprocessed(), seconds=SETTLE_SECONDS_MAX, what=self._account)
        ends = self._topics.ends()
        self._news.wait_for_answer(
            lambda: self._topics.committed(self.group) == ends,
            seconds=SETTLE_SECONDS_MAX,
            what=lambda: f"ends {ends}, committed {self._topics.committed(self.group)}\n{self._account()}",
        )
        living = self.living
        for member in living:
            member.ask_to_leave()
        for member in living:
            assert member.join() == 0, member.last_words()

    # --- what happens ----------------------------------------------------------------------------------

    def _action(self) -> Callable[[], str]:
        """The next thing that happens: in each cycle everything once, in another order."""
        if not self._actions:
            self._actions = [self._join, self._leave, self._kill]
            if self._has_static:
                self._actions.append(self._return)
            self._chance.shuffle(self._actions)
        return self._actions.pop()

    def _join(self) -> str:
        while len(self.living) >= MEMBERS_MAX:
            self.done.append(self._leave())
        # Whoever has not been in the group comes first.
        client = min(self._clients, key=lambda name: sum(member.spec.client == name for member in self.members))
        return f"{self._start(client).spec.name} joins"

    def _leave(self) -> str:
        member = self._some_member()
        member.ask_to_leave()
        assert member.join() == 0, member.last_words()
        return f"{member.spec.name} leaves"

    def _kill(self) -> str:
        member = self._some_member()
        member.kill()
        return f"{member.spec.name} is killed"

    def _return(self) -> str:
        """A static member ends, one way or the other, and is there again before anybody misses it."""
        (member,) = (each for each in self.living if each.spec.instance is not None)
        how = self._chance.choice(["is killed", "stops"])
        if how == "is killed":
            member.kill()
        else:
            member.ask_to_leave()
            assert member.join() == 0, member.last_words()
        self._start(member.spec.client, instance=member.spec.instance)
        return f"{member.spec.name} {how} and returns"

    def _some_member(self) -> Member:
        """One that runs; the first one stays, so the group is never empty."""
        found = [member for member in self.living if member.spec.instance is None]
        if not self._has_static:
            found = found[1:]
        if not found:
            found = [self._start(self._chance.choice(list(self._clients)))]
            self._settle()
        return self._chance.choice(found)

    def _start(self, client: str, *, instance: str | None = None) -> Member:
        spec = Spec(
            name=f"m{len(self.members):02}-{client}",
            client=client,
            address=self._address,
            group=self.group,
            topics=(self._topic,),
            instance=instance,
            session_ms=SESSION_MS,
            heartbeat_ms=HEARTBEAT_MS,
        )
        member = self._clients[client](spec, self._news, self._directory)
        self._ends.callback(member.end)
        self.members.append(member)
        return member

    # --- when a round is over --------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until the living own everything, each partition once, and each of them is there."""

        def is_settled() -> bool:
            self._revive_the_fallen()
            held = [place for member in self.living for place in member.life.held]
            return (
                len(held) == PARTITIONS
                and len(set(held)) == PARTITIONS
                # kafka-python's range assignor may leave a member with nothing where static and other members mix.
                and all(member.is_started and member.life.tally["assigned"] for member in self.living)
            )

        self._news.wait_until(is_settled, seconds=SETTLE_SECONDS_MAX, what=self._account)

    def _revive_the_fallen(self) -> None:
        """Do what a service manager does: start a static member anew that was refused.

        Kafka's consumer gives up when its instance id has not been released: by the new protocol, that is until the
        session of its killed predecessor is over.
        """
        for member in list(self.members):
            life = member.life
            is_refused = not member.is_alive and not life.was_killed and not life.tally["assigned"]
            if is_refused and member.spec.instance is not None and not life.tally["revived"]:
                life.tally["revived"] += 1
                self._start(member.spec.client, instance=member.spec.instance)

    def _unprocessed(self) -> set[churn_checks.Spot]:
        return self._topics.produced.keys() - {spot for spot, _ in churn_checks.processed(self.lives)}

    def _account(self) -> str:
        lines = [f"group {self.group}: {'; '.join(self.done)}", f"{len(self._unprocessed())} records unprocessed"]
        for member in self.living:
            last = [f"{event.kind} {event.facts.get('what', '')}".strip() for event in member.life.events[-3:]]
            lines.append(f"  {member.spec.name}: holds {sorted(member.life.held)}, said last {last}")
        return "\n".join(lines)


def examined(churn: Rounds, topics: Topics, server: ServerProcess) -> tuple[History, str]:
    """Hold a group against what must be so after the churn; what it wrote down, and what there is to report."""
    seen = churn_checks.processed(churn.lives)
    assert set(seen) == set(topics.produced.items())
    assert churn_checks.overlapping_tenures(churn.lives) == []
    written = history(server, churn.group, shard_count=SHARDS)
    assert written.doubles == []
    counts = churn_checks.counts(churn.lives)
    generations = " and ".join(f"{count} {protocol}" for protocol, count in sorted(written.generations.items()))
    return written, (
        f"{churn.group}: {len(churn.done)} events, {len(churn.lives)} members, {counts['assigned']} assignments, "
        f"{generations} generations, {len(topics.produced)} records, {seen.total() - len(seen)} of them again, "
        f"{counts['committed']} commits"
    )

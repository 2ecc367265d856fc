"""Rounds of churn in one group: members join, leave, are killed, return and subscribe by pattern, by a seed.

Says what happens to the group, and when a round is over. What must hold afterwards is in `churn_checks`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.clients.groups import churn_checks
from tests.clients.groups.churn_members import Company, MemberProcess
from tests.clients.groups.churn_topics import Topics
from tests.clients.groups.members import Spec

SETTLE_SECONDS_MAX = 60
MEMBERS_MAX = 5
RECORDS_EACH_ROUND = 60
SESSION_MS = 3_000
BROKER_SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
}
CONSUMER_PROTOCOL = frozenset({"confluent-consumer"})
"""The clients that use the new protocol."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Which clients are in a group."""

    name: str
    clients: tuple[str, ...]
    """The first ones are in it from the beginning."""

    @property
    def is_cooperative(self) -> bool:
        return any(client.endswith("-cooperative") for client in self.clients)

    @property
    def is_of_both_protocols(self) -> bool:
        return bool(CONSUMER_PROTOCOL & set(self.clients)) and not CONSUMER_PROTOCOL.issuperset(self.clients)


KINDS = (
    Kind("confluent-range", ("confluent-range",)),
    Kind("confluent-cooperative", ("confluent-cooperative",)),
    Kind("confluent-consumer", ("confluent-consumer",)),
    Kind("kafka-python-range", ("kafka-python-range",)),
    Kind("kafka-python-cooperative", ("kafka-python-cooperative",)),
    Kind("aiokafka-roundrobin", ("aiokafka-roundrobin",)),
    Kind("mixed-range", ("confluent-range", "kafka-python-range", "aiokafka-range")),
    Kind("mixed-cooperative", ("confluent-cooperative", "kafka-python-cooperative")),
    Kind("mixed-protocols", ("confluent-range", "kafka-python-range", "aiokafka-range", "confluent-consumer")),
)


class Churn:
    """One group under churn."""

    def __init__(self, address: str, kind: Kind, *, company: Company, topics: Topics, chance: random.Random) -> None:
        self.group = f"group.{kind.name}"
        self.topics = topics
        self.company = company
        self.done: list[str] = []
        """What happened, round by round."""
        self._address = address
        self._kind = kind
        self._chance = chance
        self._named = (f"{kind.name}.orders", f"{kind.name}.extra-early")
        self._midway = f"{kind.name}.extra-midway"
        self._pattern = f"^{re.escape(kind.name)}[.].*"
        self._started = 0
        self._left_of_cycle: list[Callable[[], str]] = []

    # --- the whole -------------------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        for name in self._named:
            self.topics.make(name, partitions=4)
        self._start("static", client=self._kind.clients[0], instance="a")
        self._start("pattern", client=self._kind.clients[-2 if self._kind.is_of_both_protocols else -1])
        self._settle()
        for number in range(rounds):
            if number == rounds // 2:
                self.topics.make(self._midway, partitions=3)
            self.topics.send(tuple(self.topics.partition_counts), RECORDS_EACH_ROUND)
            self.done.append(self._action()())
            # Half of the time the next thing happens while the group is still busy with this one.
            if self._chance.random() < 0.5:
                self._settle()
            else:
                self._wait_until_one_is_given_something()
        self.topics.send(tuple(self.topics.partition_counts), RECORDS_EACH_ROUND)
        self.topics.finish()
        self._finish()

    @property
    def action_count(self) -> int:
        """How many rounds it takes until everything has happened once."""
        return len(self._actions())

    def _finish(self) -> None:
        """Everything gets processed and committed by the members that are left."""
        if not any(member.spec.pattern for member in self.company.living):
            self._start("pattern")
        self._settle()
        news = self.company.news
        news.wait_for_answer(lambda: not self.unprocessed(), seconds=SETTLE_SECONDS_MAX, what=self._account)
        ends = self.topics.ends()
        news.wait_for_answer(
            lambda: self.topics.committed(self.group) == ends,
            seconds=SETTLE_SECONDS_MAX,
            what=lambda: f"ends {ends}, committed {self.topics.committed(self.group)}\n{self._account()}",
        )
        living = self.company.living
        for member in living:
            member.ask_to_leave()
        for member in living:
            assert member.join() == 0, member.last_words()

    # --- what happens ----------------------------------------------------------------------------------

    def _action(self) -> Callable[[], str]:
        """The next thing that happens: in each cycle everything once, in another order."""
        if not self._left_of_cycle:
            self._left_of_cycle = self._actions()
            self._chance.shuffle(self._left_of_cycle)
        return self._left_of_cycle.pop()

    def _actions(self) -> list[Callable[[], str]]:
        usual = [self._join, self._join_by_pattern, self._leave, self._kill, self._return]
        return [*usual, self._upgrade, self._downgrade] if self._kind.is_of_both_protocols else usual

    def _join(self) -> str:
        return f"{self._start('named').spec.name} joins"

    def _join_by_pattern(self) -> str:
        return f"{self._start('pattern').spec.name} joins by pattern"

    def _leave(self) -> str:
        member = self._some_member(is_static=False)
        member.ask_to_leave()
        assert member.join() == 0, member.last_words()
        return f"{member.spec.name} leaves"

    def _kill(self) -> str:
        member = self._some_member(is_static=False)
        member.kill()
        return f"{member.spec.name} is killed"

    def _return(self) -> str:
        """A static member ends, one way or the other, and is there again before anybody misses it."""
        if self._kind.is_cooperative:
            # If it ends between the two rebalances of a move, nobody asks for the second one, also with Kafka's own
            # broker: what it was to give up has no owner until something else happens.
            self._settle()
        member = self._some_member(is_static=True)
        if self._chance.random() < 0.5:
            member.kill()
            how = "is killed and returns"
        else:
            member.ask_to_leave()
            assert member.join() == 0, member.last_words()
            how = "stops and returns"
        self.company.start(member.spec.again(self._name(member.spec.client)))
        return f"{member.spec.name} {how}"

    def _upgrade(self) -> str:
        member = self._start("named", client=self._chance.choice(sorted(CONSUMER_PROTOCOL)))
        self._wait_for_protocol("CONSUMER")
        return f"{member.spec.name} joins by the new protocol"

    def _downgrade(self) -> str:
        """All members of the new protocol leave, and somebody of the old one is there."""
        if all(member.spec.client in CONSUMER_PROTOCOL for member in self.company.living):
            self._start("named", client=self._kind.clients[0])
            self._settle()
        leaving = [member for member in self.company.living if member.spec.client in CONSUMER_PROTOCOL]
        for member in leaving:
            member.ask_to_leave()
        for member in leaving:
            assert member.join() == 0, member.last_words()
        self._wait_for_protocol("CLASSIC")
        return f"all {len(leaving)} of the new protocol leave"

    def _some_member(self, *, is_static: bool) -> MemberProcess:
        """One that runs; somebody else is there as well."""
        found = [each for each in self.company.living if (each.spec.instance is not None) is is_static]
        if is_static and not found:
            found = [self._start("static", instance=self._chance.choice("bc"))]
        elif not found or len(self.company.living) < 2:
            found = [self._start("named")]
        member = self._chance.choice(found)
        self.company.news.wait_until(
            lambda: member.is_started, seconds=SETTLE_SECONDS_MAX, what=lambda: f"{member.spec.name} does not start"
        )
        return member

    def _start(self, how: str, *, client: str | None = None, instance: str | None = None) -> MemberProcess:
        while len(self.company.living) >= MEMBERS_MAX:
            self.done.append(self._leave())
        client = client or self._chance.choice(self._kind.clients)
        return self.company.start(
            Spec(
                name=self._name(client),
                client=client,
                address=self._address,
                group=self.group,
                topics=() if how == "pattern" else self._named,
                pattern=self._pattern if how == "pattern" else None,
                instance=instance,
                session_ms=SESSION_MS,
            )
        )

    def _name(self, client: str) -> str:
        self._started += 1
        return f"m{self._started:02}-{client}"

    # --- when a round is over --------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until the living own everything that they subscribe to, and each of them is there."""

        def is_settled() -> bool:
            self.company.revive_the_fallen()
            living = self.company.living
            is_all = any(member.spec.pattern for member in living)
            wanted = {place for place in self.topics.places if is_all or place[0] in self._named}
            held = [place for member in living for place in member.life.held]
            return len(held) == len(wanted) and set(held) == wanted and all(member.is_started for member in living)

        self.company.news.wait_until(is_settled, seconds=SETTLE_SECONDS_MAX, what=self._account)

    def _wait_for_protocol(self, name: str) -> None:
        self.company.news.wait_for_answer(
            lambda: self.topics.protocol(self.group) == name, seconds=SETTLE_SECONDS_MAX, what=self._account
        )

    def _wait_until_one_is_given_something(self) -> None:
        before = churn_checks.counts(self.company.lives)["assigned"]

        def is_so() -> bool:
            self.company.revive_the_fallen()
            now = churn_checks.counts(self.company.lives)["assigned"]
            living = self.company.living
            return now > before or (len(living) > 0 and all(member.life.held for member in living))

        self.company.news.wait_until(is_so, seconds=SETTLE_SECONDS_MAX, what=self._account)

    def unprocessed(self) -> set[churn_checks.Spot]:
        seen = {spot for spot, _ in churn_checks.processed(self.company.lives)}
        return self.topics.produced.keys() - seen

    def _account(self) -> str:
        """Everything that helps to see why a group does not get on."""
        lines = [
            f"group {self.group}: {'; '.join(self.done)}",
            f"{len(self.unprocessed())} records unprocessed",
            f"the broker says: {self.topics.described(self.group)}",
        ]
        for member in self.company.living:
            last = [f"{event.kind} {event.facts.get('what', '')}".strip() for event in member.life.events[-3:]]
            lines.append(f"  {member.spec.name}: holds {sorted(member.life.held)}, said last {last}")
        return "\n".join(lines)

"""Copiers at work: groups of them, started anew when they are killed or give up, and the kills themselves.

Says what happens, and when. What must hold is in the test and in `copy_reader`.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.clients.groups.churn_members import Event, Life, News, RunningMember, parse
from tests.clients.groups.members import Spec
from tests.clients.server_process import ROOT, ServerProcess
from tests.clients.transactions import kill_files
from tests.clients.transactions.copy_copier import Errand
from tests.clients.transactions.copy_reader import Follower
from tests.clients.transactions.kill_producer import pause
from tests.server.wire import Wire

LIST_TRANSACTIONS_VERSION = 1
ONGOING = "Ongoing"
OPEN_SECONDS_MAX = 60
KILL_SECONDS_MAX = 0.02
"""How long after a transaction was seen to be open a kill comes, at most."""
SESSION_MS = 3_000

AROUND = frozenset({"begun", "committed", "aborted", "fenced", "trouble"})
"""What a copier says at the two ends of a transaction."""

Command = Callable[[Errand], Sequence[str]]
"""How a copier that is another program is started."""
Understand = Callable[[bytes, Life], Event | None]


class Copier:
    """One copier in all its lives."""

    def __init__(self, errand: Errand, news: News, directory: Path, command: Command, understand: Understand) -> None:
        self.errand = errand
        self.lives: list[RunningMember] = []
        self._news = news
        self._directory = directory
        self._command = command
        self._understand = understand
        self.start()

    def start(self) -> None:
        errand = replace(self.errand, name=f"{self.errand.name}.{len(self.lives)}")
        spec = Spec(errand.name, errand.client, errand.address, errand.group, topics=(errand.source,))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self.lives.append(
            RunningMember(
                spec,
                self._command(errand),
                self._understand,
                self._news,
                self._directory,
                environment=environment,
                cwd=ROOT,
            )
        )

    @property
    def process(self) -> RunningMember:
        return self.lives[-1]

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive

    @property
    def has_finished(self) -> bool:
        """Whether it has ended in order: what it was given is copied. Kafka's own copier does that."""
        return not self.is_alive and self.process.join() == 0 and not self.process.life.tally["fatal"]

    def has_open(self, open_ids: Sequence[str]) -> bool:
        """Whether one of these transactions is its own; by what it says itself where the ids do not tell."""
        if self.errand.transactional_id in open_ids:
            return True
        if not any(each.startswith(f"{self.errand.group}.") for each in open_ids):
            return False
        ends = (event.kind for event in reversed(self.process.life.events) if event.kind in AROUND)
        return next(ends, None) == "begun"


def python_command(errand: Errand) -> list[str]:
    return [sys.executable, "-m", "tests.clients.transactions.copy_copier", errand.to_json()]


def python_understand(line: bytes, life: Life) -> Event | None:
    # A kill may leave half a line.
    return parse(line) if line.endswith(b"}\n") else None


class Group:
    """Copiers that share the work, and the reader of what they write."""

    def __init__(self, name: str, copiers: Sequence[Copier], follower: Follower, *, records: int) -> None:
        self.name = name
        self.copiers = copiers
        self.follower = follower
        self._records = records

    @property
    def progress(self) -> float:
        """How much of the source is to be seen in the target."""
        return self.follower.seen.count / self._records

    @property
    def is_done(self) -> bool:
        return self.follower.seen.count >= self._records

    @property
    def copiers_are_started(self) -> bool:
        """Whether all are at work, or have done theirs."""
        return all(copier.process.is_started or not copier.is_alive for copier in self.copiers)

    @property
    def lives(self) -> Iterator[Life]:
        for copier in self.copiers:
            for process in copier.lives:
                yield process.life

    def said(self, kind: str) -> list[Event]:
        return [event for life in self.lives for event in list(life.events) if event.kind == kind]

    def tally(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for life in self.lives:
            total += life.tally
        return total

    def revive(self) -> None:
        """Do what a service manager does, as long as there is something to copy."""
        if self.is_done:
            return
        for copier in self.copiers:
            if copier.is_alive:
                continue
            if copier.has_finished and any(each.is_alive for each in self.copiers):
                # It had nothing more to do, and would have nothing to do again.
                continue
            life = copier.process.life
            has_reason = life.was_killed or life.tally.keys() & {"fatal", "fenced", "words", "left"}
            assert has_reason, copier.process.last_words()
            copier.start()


class Kills:
    """What is killed, when, and what that has hit."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._server = server
        self._chance = chance

    def kill_server(self, group: Group) -> None:
        """While a transaction of this group is open, and whatever others do; then start it again."""
        self._copier_with_open(group)
        pause(self._chance.uniform(0, KILL_SECONDS_MAX))
        self._server.kill()
        hit = kill_files.Hit.of(self._server.data)
        self.counts["kills of the server"] += 1
        self.counts["transactions open at kills of the server"] += len(hit.open_ids)
        self.counts["decisions without all markers at kills of the server"] += hit.unmarked_count
        self._server.start()

    def kill_copier(self, group: Group) -> None:
        """One that has a transaction open; then start it again."""
        victim = self._copier_with_open(group)
        victim.process.kill()
        # Nobody else can have ended it: it is still there, if it was when the kill came.
        self.counts["kills of copiers with an open transaction"] += victim.has_open(self._open_ids())
        self.counts["kills of copiers"] += 1
        victim.start()

    def make_zombie(self, group: Group) -> RunningMember:
        """Freeze a copier that has a transaction open, and start another in its place."""
        victim = self._copier_with_open(group)
        zombie = victim.process
        zombie.freeze()
        self.counts["zombies with an open transaction"] += victim.has_open(self._open_ids())
        self.counts["zombies"] += 1
        victim.start()
        return zombie

    def _copier_with_open(self, group: Group) -> Copier:
        """One that has a transaction open now; any, if the group has nothing left to do."""
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        candidates = [copier for copier in group.copiers if copier.is_alive] or list(group.copiers)
        self._chance.shuffle(candidates)
        while not group.is_done:
            open_ids = self._open_ids()
            for copier in candidates:
                if copier.has_open(open_ids):
                    return copier
            assert time.monotonic() < deadline, f"no copier of {group.name} has a transaction open: {open_ids}"
        return candidates[0]

    def _open_ids(self) -> list[str]:
        with Wire(self._server) as wire:
            response = wire.call(
                ApiKey.LIST_TRANSACTIONS, LIST_TRANSACTIONS_VERSION, ListTransactionsRequest(state_filters=[ONGOING])
            )
        assert isinstance(response, ListTransactionsResponse)
        return [each.transactional_id for each in response.transaction_states]


class Stage:
    """All groups of a test."""

    def __init__(self, server: ServerProcess, source: str, directory: Path, *, partitions: int, records: int) -> None:
        self.news = News()
        self.groups: list[Group] = []
        self._server = server
        self._source = source
        self._directory = directory
        self._partitions = partitions
        self._records = records
        self._ends = ExitStack()

    def target(self, group: str) -> str:
        return f"{self._source}.{group}"

    def add_group(
        self,
        name: str,
        clients: Sequence[str],
        foreign: Mapping[str, tuple[Command, Understand]],
        *,
        transaction_records_max: int,
    ) -> None:
        """Start copiers by these clients, and a reader of their target."""
        follower = Follower(self._server.address, self.target(name), partitions=self._partitions, news=self.news)
        self._ends.enter_context(follower)
        copiers = []
        for index, client in enumerate(clients):
            errand = Errand(
                name=f"{name}-{index}-{client}",
                client=client,
                address=self._server.address,
                group=name,
                source=self._source,
                target=self.target(name),
                transactional_id=f"{name}-{index}",
                partitions=self._partitions,
                transaction_records_max=transaction_records_max,
                session_ms=SESSION_MS,
            )
            command, understand = foreign.get(client, (python_command, python_understand))
            copiers.append(Copier(errand, self.news, self._directory, command, understand))
        self.groups.append(Group(name, copiers, follower, records=self._records))

    def wait(self, is_so: Callable[[], bool], *, seconds: float) -> None:
        """Keep the copiers alive until something is so."""

        def account() -> str:
            return "\n".join(
                f"{group.name}: {group.progress:.1%}, {dict(group.tally())}, wrong: {group.follower.seen.wrong[:3]}, "
                f"reader: {group.follower.failures[:3]}"
                for group in self.groups
            )

        def kept_alive() -> bool:
            for group in self.groups:
                group.revive()
                assert not group.follower.seen.wrong, account()
            return is_so()

        self.news.wait_for_answer(kept_alive, seconds=seconds, what=account)

    def end(self) -> None:
        for group in self.groups:
            for copier in group.copiers:
                for process in copier.lives:
                    process.end()
        self._ends.close()


@contextmanager
def stage(server: ServerProcess, source: str, directory: Path, *, partitions: int, records: int) -> Iterator[Stage]:
    """Copiers and readers that are gone when the block ends."""
    made = Stage(server, source, directory, partitions=partitions, records=records)
    try:
        yield made
    finally:
        made.end()

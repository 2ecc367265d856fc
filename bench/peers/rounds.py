"""Takes the rounds of a session: A B A B A B, one broker at a time, each on a wiped directory.

Tells its progress and stores each figure as it comes. Knows no peer and no workload.
"""

from __future__ import annotations

import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.append import file_system, workplace
from bench.neighbours import Neighbours, Speed
from bench.peers import free_memory
from bench.peers.contract import Broker, Pace, Session, Task, Unmeasured
from bench.peers.store import Store, pick
from tests.peers.maven import PeerMissing

UNEXPECTED_TURNS_MAX = 2
"""Of a task nothing is expected of: on a host that is busy for hours the rows that decide something come first."""
UNEXPECTED_RULE = (
    f"Where nothing is expected, and no other row's load hangs on it, at most {UNEXPECTED_TURNS_MAX} turns are taken,",
    "since 19 November 2026; what the host did meanwhile is in the spread.",
)


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def end_in_order() -> None:
    """Whoever ends this program by a signal ends the broker that it has started too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def chosen(sessions: Sequence[Session], wanted: Sequence[str]) -> list[Session]:
    """The sessions with those tasks only of which a row is wanted."""
    kept = [replace(session, tasks=[task for task in session.tasks if pick(task.rows, wanted)]) for session in sessions]
    return [session for session in kept if session.tasks]


def take(
    session: Session,
    store: Store,
    directory: Path,
    *,
    pace: Pace,
    is_resumed: bool = False,
    settle: Callable[[], None] | None = None,
    neighbours: Neighbours | None = None,
) -> None:
    """All rounds of one session; a side that cannot be had or a task that fails leaves a note, the rest goes on.

    What is left to be written to the disk would slow down what comes next, and so would memory that has to be got from
    the machine's host, so both settle before each task.
    Tasks that neighbours disturbed are taken again, in another turn.
    """
    settle = settle or partial(free_memory.settle, is_quick=pace.is_quick)
    neighbours = neighbours or Neighbours.of_run(pace.rounds, speed=Speed())
    directory.mkdir(parents=True, exist_ok=True)
    if file_system(directory) == "tmpfs":
        raise SystemExit(f"{directory} lies in memory (tmpfs); name a directory on a real disk with --directory")
    for task in session.tasks:
        for row in task.rows:
            store.begin(row, is_resumed=is_resumed)
    # A place of its own, so that two runs that should not be under way at once do not wipe each other's data.
    with workplace(directory) as place:
        for number in range(pace.rounds):
            for side in session.sides:
                tasks = [task for task in session.tasks if side in task.take and _is_due(task, store, side, number)]
                if not tasks:
                    continue
                for attempt, is_last in enumerate(neighbours.turns(), 1):
                    say(f"{session.name}: round {number + 1} of {pace.rounds}, {side}")
                    turn = _Turn(replace(session, tasks=tasks), side, store, settle, neighbours, attempt, is_last)
                    tasks = turn.take(place / side)
                    if not tasks:
                        break
    for task in session.tasks:
        for row in task.rows:
            store.finish(row)


def _is_due(task: Task, store: Store, side: str, number: int) -> bool:
    return any(store.taken(row, side) <= number for row in task.rows)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One side at its tasks, with a broker of its own."""

    session: Session
    side: str
    store: Store
    settle: Callable[[], None]
    neighbours: Neighbours
    attempt: int
    is_last: bool

    def take(self, directory: Path) -> list[Task]:
        """Stores what came of the tasks; returns those that are to be taken again."""
        again: list[Task] = []
        directory.mkdir()
        self.settle()
        try:
            with self.session.sides[self.side](directory) as broker:
                if self.session.warm_up is not None:
                    self.session.warm_up[self.side](broker)
                again += [task for task in self.session.tasks if not self._is_done(task, broker)]
        except (PeerMissing, Unmeasured) as reason:
            for task in self.session.tasks:
                _miss(task, self.side, self.store, str(reason))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return again

    def _is_done(self, task: Task, broker: Broker) -> bool:
        self.settle()
        try:
            turns, is_disturbed = self.neighbours.watched(
                lambda: task.take[self.side](broker), stolen_max=task.stolen_max
            )
        except PeerMissing:
            raise
        except Exception as reason:
            # One row that fails, for whatever reason, must not cost the hours of all others.
            if not isinstance(reason, Unmeasured):
                traceback.print_exc()
            _miss(task, self.side, self.store, str(reason) or type(reason).__name__)
            if broker.process.poll() is not None:
                raise Unmeasured(f"the broker has ended: {reason}") from reason
            return True
        if is_disturbed and not self._counts_disturbed(task):
            say(f"  to be taken again: {', '.join(row.id for row in task.rows if row.id in turns)}")
            return False
        for row in task.rows:
            if row.id in turns:
                self.store.add(row, self.side, turns[row.id])
                say(f"  {row.id}: {turns[row.id].value:,.4g} {row.unit}")
        return True

    def _counts_disturbed(self, task: Task) -> bool:
        """Whether a disturbed turn counts as it is, because there is no other."""
        return self.is_last or (not task.decides and self.attempt >= UNEXPECTED_TURNS_MAX)


def _miss(task: Task, side: str, store: Store, why: str) -> None:
    for row in task.rows:
        say(f"  {row.id}: {side} not measured: {why}")
        store.miss(row, side, why)

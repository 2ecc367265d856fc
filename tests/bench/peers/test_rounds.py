"""The order of the rounds, and what becomes of a side that cannot be had, with brokers that only stand in for some."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.neighbours import TURNS_MAX, Neighbours, Reading
from bench.peers.contract import KAFKA, NOT_PRODUCED, OURS, Broker, Pace, Row, Session, Task, Turn, Unmeasured
from bench.peers.rounds import UNEXPECTED_TURNS_MAX, chosen
from bench.peers.rounds import take as take_rounds
from bench.peers.store import Store
from tests.peers.maven import PeerMissing

ROW = Row(id="raw", group="g", what="w", settings="s", fsync=NOT_PRODUCED, unit="records/s")
PACE = Pace(rounds=3)
take = partial(take_rounds, settle=lambda: None, neighbours=Neighbours(lambda: Reading(0, 0)))


class Stage:
    """Notes what happens."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def start(self, directory: Path) -> Iterator[Broker]:
        assert not list(directory.iterdir())
        (directory / "data").touch()
        self.events.append(f"start {directory.name}")
        # Any process will do, and the one that ends at the end of its input ends when this one does.
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            yield Broker(side=directory.name, host="h", port=1, process=process, directory=directory, started_s=0.0)
            self.events.append(f"stop {directory.name}")
            process.kill()

    def work(self, broker: Broker) -> Mapping[str, Turn]:
        self.events.append(f"work {broker.side}")
        return {ROW.id: Turn(value=1.0)}

    def session(self, work: Callable[[Broker], Mapping[str, Turn]] | None = None) -> Session:
        task = Task(rows=(ROW,), take={OURS: self.work, KAFKA: work or self.work})
        return Session(name="s", sides={OURS: self.start, KAFKA: self.start}, tasks=[task])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def values(store: Store) -> dict[str, int]:
    kept = store.result(ROW.id)
    assert kept is not None
    return {side: len(turns) for side, turns in kept.turns.items()}


def test_sides_take_turns_and_one_has_ended_before_the_other_starts(stage: Stage, tmp_path: Path) -> None:
    take(stage.session(), Store(tmp_path / "store"), tmp_path / "data", pace=replace(PACE, rounds=2))

    once = [f"{event} {side}" for side in (OURS, KAFKA) for event in ("start", "work", "stop")]
    assert stage.events == once * 2


def test_a_resumed_run_takes_the_missing_rounds_only(stage: Stage, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for side in (OURS, OURS, KAFKA):
        store.add(ROW, side, Turn(value=1.0))

    take(stage.session(), store, tmp_path / "data", pace=PACE, is_resumed=True)

    worked = [event.removeprefix("work ") for event in stage.events if event.startswith("work")]
    assert worked == [KAFKA, OURS, KAFKA]
    assert values(store) == {OURS: 3, KAFKA: 3}


def test_a_task_that_neighbours_disturbed_is_taken_again_with_a_broker_of_its_own(stage: Stage, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    disturbed = iter([True, True, False, *[True] * TURNS_MAX])
    ticks = [0, 0]

    def read() -> Reading:
        return Reading(*ticks)

    def work(broker: Broker) -> Mapping[str, Turn]:
        ticks[0], ticks[1] = ticks[0] + 100 * next(disturbed), ticks[1] + 100
        return stage.work(broker)

    row = replace(ROW, expected=1.0)
    session = replace(stage.session(), tasks=[Task(rows=(row,), take={OURS: work, KAFKA: work})])
    take(session, store, tmp_path / "data", pace=replace(PACE, rounds=1), neighbours=Neighbours(read, lambda s: None))

    # Ours was quiet in its third turn; Kafka never was, and its last one counts as it is.
    starts = [event for event in stage.events if event.startswith("start")]
    assert starts == ["start ottla"] * 3 + ["start kafka"] * TURNS_MAX
    assert values(store) == {OURS: 1, KAFKA: 1}


@pytest.mark.parametrize(("sets_load", "turns"), [(False, UNEXPECTED_TURNS_MAX), (True, TURNS_MAX)])
def test_a_task_of_which_nothing_is_expected_is_taken_again_once_unless_others_hang_on_it(
    sets_load: bool, turns: int, stage: Stage, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    ticks = [0, 0]

    def read() -> Reading:
        return Reading(*ticks)

    def work(broker: Broker) -> Mapping[str, Turn]:
        ticks[0], ticks[1] = ticks[0] + 100, ticks[1] + 100
        return stage.work(broker)

    task = Task(rows=(ROW,), take={OURS: work, KAFKA: work}, sets_load=sets_load)
    session = replace(stage.session(), tasks=[task])
    take(session, store, tmp_path / "data", pace=replace(PACE, rounds=1), neighbours=Neighbours(read, lambda s: None))

    starts = [event for event in stage.events if event.startswith("start")]
    assert starts == ["start ottla"] * turns + ["start kafka"] * turns
    assert values(store) == {OURS: 1, KAFKA: 1}


def test_a_peer_that_cannot_be_had_leaves_a_note_and_the_other_side_is_measured(stage: Stage, tmp_path: Path) -> None:
    def absent(directory: Path) -> AbstractContextManager[Broker]:
        raise PeerMissing("no Java")

    store = Store(tmp_path / "store")
    session = replace(stage.session(), sides={OURS: stage.start, KAFKA: absent})

    take(session, store, tmp_path / "data", pace=PACE)

    kept = store.result(ROW.id)
    assert kept is not None
    assert (values(store), kept.missing) == ({OURS: 3}, {KAFKA: "no Java"})


@pytest.mark.parametrize("failure", [Unmeasured("records are missing"), ValueError("records are missing")])
def test_a_task_that_fails_on_one_side_is_told_with_its_reason(
    stage: Stage, tmp_path: Path, failure: Exception
) -> None:
    def fail(broker: Broker) -> Mapping[str, Turn]:
        raise failure

    store = Store(tmp_path / "store")

    take(stage.session(fail), store, tmp_path / "data", pace=PACE)

    kept = store.result(ROW.id)
    assert kept is not None
    assert (values(store), kept.missing) == ({OURS: 3}, {KAFKA: "records are missing"})


def test_nothing_is_left_of_a_broker_after_its_turn(stage: Stage, tmp_path: Path) -> None:
    take(stage.session(), Store(tmp_path / "store"), tmp_path / "data", pace=replace(PACE, rounds=1))

    assert list((tmp_path / "data").iterdir()) == []


def test_a_session_keeps_the_tasks_only_of_which_a_row_is_wanted(stage: Stage) -> None:
    session = stage.session()
    other = replace(session.tasks[0], rows=(replace(ROW, id="startup"),))

    kept = chosen([replace(session, tasks=[*session.tasks, other])], ["startup"])

    assert [task.rows[0].id for session in kept for task in session.tasks] == ["startup"]
    assert chosen([session], ["startup"]) == []

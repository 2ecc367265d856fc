"""Runs that tell of themselves at a real broker: how they stand, who was first, and how they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.values import NewRecord
from ottla.clock import ManualClock, SystemClock
from ottla.errors import OttlaError
from ottla.pipelines import progress_topics
from ottla.pipelines.claims import (
    LISTEN_MS,
    REFUSED,
    AlreadyRunning,
    Whereabouts,
    claim,
    is_gone,
    whereabouts,
)
from ottla.pipelines.progress import (
    CONTROL_TOPIC,
    PROGRESS_TOPIC,
    Command,
    QueryProgress,
    RunProgress,
    State,
    decoded,
    moment,
)
from ottla.pipelines.progress_link import QUIET_MS_MAX, ProgressLink
from ottla.pipelines.progress_topics import end_of, make_topics, record_of, records_between, standing
from ottla.pipelines.stopping import NotRunning, StillRunning, stopped
from ottla.testing.server_thread import ServerThread

WAIT_S = 60.0


@pytest.fixture
def ottla_broker(tmp_path: Path) -> Iterator[ServerThread]:
    """Each test has its own, since all runs share one topic."""
    server = ServerThread(str(tmp_path / "data"), None)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(ottla_broker: ServerThread) -> Iterator[Client]:
    with ottla.connect(ottla_broker.bootstrap) as made:
        make_topics(made)
        yield made


def told_run(name: str = "p", *, run: str = "r1", state: State = "running", process: int = 0) -> RunProgress:
    return RunProgress(pipeline=name, run=run, state=state, at="", place="there/1", process=process, queries=("a", "b"))


def told_query(query: str, *, run: str = "r1", batch_id: int = 1, state: State = "running") -> QueryProgress:
    return QueryProgress(pipeline="p", query=query, run=run, state=state, at="", batch_id=batch_id)


def tell(client: Client, *told: QueryProgress | RunProgress) -> None:
    with client.producer() as producer:
        producer.send_batch(PROGRESS_TOPIC, [record_of(one) for one in told])


# --- how a pipeline stands ----------------------------------------------------------------------------


def test_the_last_word_of_the_run_and_of_each_query_counts(client: Client) -> None:
    tell(client, told_run(), told_query("a", batch_id=1), told_query("b"), told_query("a", batch_id=2))

    found = standing(client, "p")

    assert found.run == told_run()
    assert {name: one.batch_id for name, one in found.queries.items()} == {"a": 2, "b": 1}


def test_a_pipeline_that_never_ran_is_not_known(client: Client) -> None:
    tell(client, told_run("other"))

    assert standing(client, "p").run is None


def test_a_pipeline_whose_name_begins_alike_is_another_one(client: Client) -> None:
    tell(client, told_run("p2"), replace(told_query("a"), pipeline="p2"))

    assert standing(client, "p").queries == {}


def test_queries_of_an_earlier_run_are_not_those_of_the_last(client: Client) -> None:
    tell(client, told_run(run="r0"), told_query("gone", run="r0"), told_run(run="r1"), told_query("a"))

    assert standing(client, "p").queries.keys() == {"a"}


def test_a_pipeline_that_was_heard_long_ago_is_found_further_back(client: Client) -> None:
    tell(client, told_run(), told_query("a"), told_query("b"))
    for _ in range(2):
        tell(client, *[told_run("busy")] * progress_topics.LOOK_BACK_RECORDS)

    assert standing(client, "p").run == told_run()


def test_records_of_others_in_the_topic_do_no_harm(client: Client) -> None:
    with client.producer() as producer:
        producer.send_batch(PROGRESS_TOPIC, [NewRecord(b"nonsense", key=b"p"), NewRecord(None, key=b"p")])
    tell(client, told_run())

    assert standing(client, "p").run == told_run()


def test_there_is_nothing_to_find_where_there_is_no_topic(ottla_broker: ServerThread) -> None:
    with ottla.connect(ottla_broker.bootstrap) as made:
        assert standing(made, "p").run is None


# --- one run at a time --------------------------------------------------------------------------------


def claimed(
    client: Client,
    run: str,
    *,
    gone: Callable[[RunProgress], bool] = lambda other: False,
    meanwhile: Callable[[], None] = lambda: None,
    force: bool = False,
) -> int:
    """Claim the pipeline; how long that took, by a clock that moves only while it is waited for."""
    clock = ManualClock(SystemClock().now_ms())
    began_ms = clock.now_ms()

    def pause(delay_ms: int) -> None:
        clock.advance(delay_ms)
        meanwhile()

    claim(client, told_run(run=run, state="starting"), clock=clock, pause=pause, gone=gone, force=force)
    return clock.now_ms() - began_ms


def test_the_first_run_goes_on_at_once(client: Client) -> None:
    assert claimed(client, "r1") == 0


def test_a_run_after_one_that_ended_goes_on_at_once(client: Client) -> None:
    tell(client, told_run(), told_run(state="stopped"))

    assert claimed(client, "r2") == 0


def test_a_second_run_is_refused_while_the_first_goes_on(client: Client) -> None:
    tell(client, told_run(process=77))

    with pytest.raises(AlreadyRunning, match="process 77 on there, run r1") as refused:
        claimed(client, "r2", meanwhile=lambda: tell(client, told_run(process=77)))
    assert refused.value.other.run == "r1"


def test_after_a_refusal_the_first_run_is_still_the_one_that_is_known(client: Client) -> None:
    tell(client, told_run())
    with pytest.raises(AlreadyRunning):
        claimed(client, "r2", meanwhile=lambda: tell(client, told_run()))

    assert standing(client, "p").run == told_run()


def test_a_run_that_was_killed_is_waited_for_and_then_followed(client: Client) -> None:
    tell(client, told_run())

    assert LISTEN_MS <= claimed(client, "r2") < LISTEN_MS + 1_000


def test_a_run_whose_process_is_known_to_be_gone_is_not_waited_for(client: Client) -> None:
    tell(client, told_run())

    assert claimed(client, "r2", gone=lambda other: True) == 0


def test_a_run_that_ends_while_it_is_waited_for_makes_way(client: Client) -> None:
    tell(client, told_run())

    assert claimed(client, "r2", meanwhile=lambda: tell(client, told_run(state="stopped"))) < LISTEN_MS


def test_of_two_that_start_together_the_first_goes_on(client: Client) -> None:
    assert claimed(client, "r1") == 0
    with pytest.raises(AlreadyRunning):
        claimed(client, "r2", meanwhile=lambda: tell(client, told_run(run="r1")))


def test_a_run_that_is_forced_asks_nobody(client: Client) -> None:
    tell(client, told_run())

    assert claimed(client, "r2", force=True) == 0


def test_a_process_of_another_machine_is_never_known_to_be_gone() -> None:
    assert not is_gone(told_run(process=2**22 + 1), whereabouts())


def test_a_process_that_is_not_there_is_gone() -> None:
    here = whereabouts()

    assert is_gone(replace(told_run(process=2**22 + 1), place=here.place), here)


def test_a_process_that_is_there_is_not_gone() -> None:
    here = whereabouts()
    other = Whereabouts(here.place, here.process + 1)

    assert not is_gone(replace(told_run(process=here.process), place=here.place), other)


# --- the link -----------------------------------------------------------------------------------------


@pytest.fixture
def link(client: Client, ottla_broker: ServerThread) -> Iterator[ProgressLink]:
    made = ProgressLink(lambda: ottla.connect(ottla_broker.bootstrap), told_run(state="starting"), control_start=0)
    yield made
    made.close()


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    clock = SystemClock()
    until_ms = clock.now_ms() + round(WAIT_S * 1_000)
    while not holds():
        assert clock.now_ms() < until_ms, "it did not come to pass"
        pause.wait(0.02)


def command(client: Client, pipeline: str = "p", *, run: str | None = None) -> None:
    with client.producer() as producer:
        producer.send_batch(CONTROL_TOPIC, [record_of(Command(pipeline=pipeline, do="stop", at="", run=run))])


def test_what_is_told_is_in_the_topic_once_the_link_is_closed(link: ProgressLink, client: Client) -> None:
    for number in range(10):
        link.tell(told_query("a", batch_id=number))
    link.tell(told_run(state="stopped"))
    link.close()

    assert end_of(client, PROGRESS_TOPIC) == 11
    assert standing(client, "p").run == told_run(state="stopped")


@pytest.mark.parametrize("run", [None, "r1"])
def test_a_run_hears_that_it_is_to_stop(link: ProgressLink, client: Client, run: str | None) -> None:
    command(client, run=run)

    wait_until(lambda: link.is_asked_to_stop)


def test_what_is_asked_of_others_is_not_heard(link: ProgressLink, client: Client) -> None:
    command(client, "other")
    command(client, run="r0")
    wait_until(lambda: link._control_offset == 2)

    assert not link.is_asked_to_stop


def test_what_was_asked_before_the_run_began_is_not_heard(client: Client, ottla_broker: ServerThread) -> None:
    command(client)
    made = ProgressLink(lambda: ottla.connect(ottla_broker.bootstrap), told_run(state="starting"), control_start=1)
    command(client, "other")
    wait_until(lambda: made._control_offset == 2)
    made.close()

    assert not made.is_asked_to_stop


def test_a_broker_that_is_away_neither_fails_nor_holds_up_who_tells() -> None:
    def nowhere() -> Client:
        raise OttlaError("nobody is there")

    link = ProgressLink(nowhere, told_run(state="starting"), control_start=0)
    for number in range(10_000):
        link.tell(told_query("a", batch_id=number))
    link.close()

    assert not link.is_asked_to_stop


def test_what_was_told_while_the_broker_was_away_is_told_when_it_is_back(
    client: Client, ottla_broker: ServerThread
) -> None:
    tries = iter([OttlaError("away"), None])

    def connect() -> Client:
        if (error := next(tries, None)) is not None:
            raise error
        return ottla.connect(ottla_broker.bootstrap)

    link = ProgressLink(connect, told_run(state="starting"), control_start=0)
    link.tell(told_run())
    wait_until(lambda: standing(client, "p").run is not None)
    link.close()

    assert standing(client, "p").run == told_run()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def quiet(client: Client, ottla_broker: ServerThread, clock: ManualClock) -> Iterator[ProgressLink]:
    """The link of a run that tells nothing: its Spark is being started."""
    made = ProgressLink(
        lambda: ottla.connect(ottla_broker.bootstrap), told_run(state="starting"), control_start=0, clock=clock
    )
    yield made
    made.close()


def test_a_second_run_is_refused_while_the_first_is_still_being_started(
    quiet: ProgressLink, client: Client, clock: ManualClock
) -> None:
    assert claimed(client, "r1") == 0

    def time_passes() -> None:
        clock.advance(QUIET_MS_MAX)
        wait_until(lambda: heard(client, "r1") > 1)

    with pytest.raises(AlreadyRunning):
        claimed(client, "r2", meanwhile=time_passes)


def heard(client: Client, run: str) -> int:
    """How often a run told of itself."""
    records = records_between(client, PROGRESS_TOPIC, start=0, end=end_of(client, PROGRESS_TOPIC))
    told = [decoded(record.key, record.value) for record in records]
    return sum(isinstance(one, RunProgress) and one.run == run for one in told)


def test_a_run_that_is_held_up_is_told_to_be_as_it_was(quiet: ProgressLink, client: Client, clock: ManualClock) -> None:
    quiet.tell(told_run(state="stopping"))
    wait_until(lambda: heard(client, "r1") == 1)
    clock.advance(QUIET_MS_MAX)

    wait_until(lambda: heard(client, "r1") == 2)
    found = standing(client, "p").run
    assert found == replace(told_run(state="stopping"), at=moment(clock.now_ms()))


def _has_heard(link: ProgressLink, control_end: int) -> bool:
    return link._control_offset == control_end


def test_of_a_run_that_has_ended_nothing_is_told_any_more(
    quiet: ProgressLink, client: Client, clock: ManualClock
) -> None:
    quiet.tell(told_run(state="stopped"))
    wait_until(lambda: heard(client, "r1") == 1)
    clock.advance(QUIET_MS_MAX)
    # What is asked after that is heard when the link has come round again.
    for _ in range(2):
        command(client, "other")
        asked = end_of(client, CONTROL_TOPIC)
        wait_until(partial(_has_heard, quiet, asked))
    quiet.close()

    assert heard(client, "r1") == 1


# --- stopping -----------------------------------------------------------------------------------------


def test_a_pipeline_that_runs_is_stopped(link: ProgressLink, client: Client, ottla_broker: ServerThread) -> None:
    tell(client, told_run())

    def run() -> None:
        wait_until(lambda: link.is_asked_to_stop)
        link.tell(told_run(state="stopping"))
        link.tell(told_run(state="stopped"))

    running = threading.Thread(target=run)
    running.start()
    last = stopped(client, "p", clock=SystemClock(), timeout_ms=30_000)
    running.join()

    assert last == told_run(state="stopped")


def test_a_run_is_stopped_also_while_a_second_one_is_about_to_be_refused(link: ProgressLink, client: Client) -> None:
    """The second is the one that was heard last, and its end is not what was asked for."""
    second = told_run(run="r2", state="starting")
    tell(client, told_run(), second)

    def run() -> None:
        wait_until(lambda: end_of(client, CONTROL_TOPIC) == 1)
        tell(client, replace(second, state="stopped", error=REFUSED), told_run())
        wait_until(lambda: link.is_asked_to_stop)
        link.tell(told_run(state="stopped"))

    running = threading.Thread(target=run)
    running.start()
    last = stopped(client, "p", clock=SystemClock(), timeout_ms=30_000)
    running.join()

    assert last == told_run(state="stopped")


def test_a_pipeline_that_never_ran_cannot_be_stopped(client: Client) -> None:
    with pytest.raises(NotRunning, match="it has not run against this server"):
        stopped(client, "p", clock=SystemClock(), timeout_ms=1_000)


def test_a_pipeline_that_has_ended_cannot_be_stopped(client: Client) -> None:
    tell(client, replace(told_run(state="failed"), at="then", error="why"))

    with pytest.raises(NotRunning, match=r"its last run has failed at then \(why\)"):
        stopped(client, "p", clock=SystemClock(), timeout_ms=1_000)


class Hasty:
    """A clock by which each look at it takes two seconds."""

    def __init__(self) -> None:
        self._now_ms = SystemClock().now_ms()

    def now_ms(self) -> int:
        self._now_ms += 2_000
        return self._now_ms


def test_a_run_that_does_not_answer_was_killed(client: Client) -> None:
    tell(client, told_run(process=5))

    with pytest.raises(StillRunning, match="nothing was heard of process 5 on there"):
        stopped(client, "p", clock=Hasty(), timeout_ms=60_000)


def test_a_stop_that_takes_too_long_names_what_still_runs(client: Client) -> None:
    tell(client, told_run(), told_query("a"), told_query("b", state="stopped"))

    with pytest.raises(StillRunning, match=r"not ended: a$"):
        stopped(client, "p", clock=Hasty(), timeout_ms=5_000)

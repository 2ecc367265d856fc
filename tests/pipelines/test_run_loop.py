"""The run of a pipeline's queries, with queries that do what the test says."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ottla.errors import OttlaError
from ottla.pipelines.progress import Offsets, QueryProgress
from ottla.pipelines.run_loop import SparkGone
from tests.pipelines.scripted_queries import INITIALIZING, WAITING, WORKING, World, account

# --- failures -----------------------------------------------------------------------------------------


def test_a_query_that_failed_is_started_again_after_a_pause(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, lambda: world.fail("a"))
    world.at(1_900, lambda: _assert_starts(world, "a", 1))
    world.at(2_600, lambda: _assert_starts(world, "a", 2))
    world.at(5_000, world.runner.stop)

    outcome = world.run()

    assert outcome.state == "stopped"
    assert outcome.totals["a"].restarts == 1


def test_the_others_go_on_while_one_waits_for_its_restart(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b")
    world.at(1_000, lambda: world.fail("a"))
    world.at(5_000, world.runner.stop)
    world.run()

    assert len(world.started["a"]) == 2
    assert len(world.started["b"]) == 1


def test_after_too_many_failures_in_a_row_all_are_stopped_and_the_last_error_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b", restarts_max=2)
    for after_ms in range(500, 20_000, 500):
        world.at(after_ms, lambda: world.fail("a", "Traceback (most recent call last):\n  File x\nValueError: no"))

    outcome = world.run()

    assert (outcome.state, outcome.error) == ("failed", "a: ValueError: no")
    assert len(world.started["a"]) == 3
    assert world.query("b").was_stopped


def test_a_query_is_not_given_up_as_long_as_it_gets_on(tmp_path: Path) -> None:
    world = World(tmp_path, "a", restarts_max=1)
    for number in range(8):
        world.at(4_000 * number + 1_000, lambda number=number: world.batch("a", number))  # type: ignore[misc]
        world.at(4_000 * number + 2_000, lambda: world.fail("a"))
    world.at(40_000, world.runner.stop)

    outcome = world.run()

    assert outcome.state == "stopped"
    assert outcome.totals["a"].restarts == 8


def test_a_query_that_somebody_else_stopped_is_started_again(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, lambda: world.query("a").stop())
    world.at(5_000, world.runner.stop)
    world.run()

    assert len(world.started["a"]) == 2
    assert "restarting" in world.link.states_of("a")


def test_what_spark_says_against_a_query_at_its_first_start_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b")
    world.refuses["b"] = ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        world.run()
    assert world.query("a").was_stopped
    assert world.link.states_of_run()[-1] == "failed"


def test_a_restart_that_fails_counts_as_a_failure(tmp_path: Path) -> None:
    world = World(tmp_path, "a", restarts_max=2)
    world.at(1_000, lambda: world.fail("a"))
    world.at(1_000, lambda: world.refuses.update(a=ValueError("the table is gone")))

    assert world.run().error == "a: the table is gone"


def test_a_spark_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    class Py4JNetworkError(Exception):
        """As py4j raises it, by its module's name."""

    Py4JNetworkError.__module__ = "py4j.protocol"
    world = World(tmp_path, "a")

    def go() -> None:
        raise Py4JNetworkError("connection refused")

    world.at(1_000, go)

    with pytest.raises(SparkGone, match="connection refused"):
        world.run()


# --- starting -----------------------------------------------------------------------------------------


def test_a_query_is_started_when_the_one_before_it_has_got_going(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b", first_message=INITIALIZING)
    world.at(4_000, lambda: _assert_starts(world, "b", 0))
    world.at(5_000, lambda: setattr(world.query("a"), "message", WORKING))
    world.at(6_000, lambda: _assert_starts(world, "b", 1))
    world.at(6_001, lambda: world.runner.stop(at_once=True))

    assert world.run().state == "stopped"


def test_a_query_that_does_not_get_going_holds_the_others_up_for_a_while_only(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b", first_message=INITIALIZING)
    world.at(30_000, lambda: world.runner.stop(at_once=True))
    world.run()

    assert len(world.started["b"]) == 1


def test_queries_that_failed_together_are_started_again_one_after_the_other(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b")
    world.at(900, lambda: setattr(world, "first_message", INITIALIZING))
    world.at(1_000, lambda: world.fail("a"))
    world.at(1_000, lambda: world.fail("b"))
    world.at(4_000, lambda: _assert_starts(world, "a", 2))
    world.at(4_000, lambda: _assert_starts(world, "b", 1))
    world.at(4_100, lambda: setattr(world.query("a"), "message", WAITING))
    world.at(5_000, lambda: _assert_starts(world, "b", 2))
    world.at(5_001, lambda: world.runner.stop(at_once=True))

    assert world.run().state == "stopped"


def test_a_stop_while_queries_are_being_started_starts_no_more_and_waits_for_none(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b", first_message=INITIALIZING)
    world.at(1_000, world.runner.stop)

    assert world.run().unfinished == ()
    assert world.started["b"] == []
    assert world.passed_ms < 5_000


# --- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [WORKING, "Writing offsets to log", "No new data but cleaning up state"])
def test_a_stop_waits_until_no_query_works_on_a_batch(tmp_path: Path, message: str) -> None:
    world = World(tmp_path, "a", "b")
    world.at(900, lambda: setattr(world.query("a"), "message", message))
    world.at(1_000, world.runner.stop)
    world.at(8_000, lambda: setattr(world.query("a"), "message", WAITING))

    outcome = world.run()

    assert outcome.unfinished == ()
    assert world.passed_ms >= 8_000


def test_a_stop_holds_the_sources(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    held: list[bool] = []
    world.at(900, lambda: held.append(world.hold_file.exists()))
    world.at(1_000, world.runner.stop)
    world.at(1_500, lambda: held.append(world.hold_file.exists()))
    world.run()

    assert held == [False, True]


def test_a_stop_has_an_end_and_names_what_still_works(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b", stop_timeout_ms=10_000)
    world.at(900, lambda: setattr(world.query("a"), "message", WORKING))
    world.at(1_000, world.runner.stop)

    outcome = world.run()

    assert outcome.unfinished == ("a",)
    assert world.query("a").was_stopped
    assert 11_000 <= world.passed_ms < 12_000


def test_a_second_wish_stops_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(900, lambda: setattr(world.query("a"), "message", WORKING))
    world.at(1_000, world.runner.stop)
    world.at(2_000, lambda: world.runner.stop(at_once=True))

    outcome = world.run()

    assert outcome.unfinished == ("a",)
    assert world.passed_ms < 3_000


def test_a_signal_may_ask_for_the_stop_between_any_two_steps_of_a_wait(tmp_path: Path) -> None:
    """It interrupts the very thread that waits, which may hold a lock at that moment."""
    runner = World(tmp_path, "a").runner

    def wait_and_stop(steps_left: int) -> None:
        def traced(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal steps_left
            steps_left -= event == "line"
            if not steps_left:
                sys.settrace(None)
                runner.stop()
            return traced

        sys.settrace(traced)
        while steps_left > 0:
            runner._wait_to_be_woken(1)

    for step in range(1, 40):
        waiting = threading.Thread(target=wait_and_stop, args=(step,), daemon=True)
        waiting.start()
        waiting.join(30)
        assert not waiting.is_alive(), f"at step {step}"


def test_a_run_stops_when_the_control_topic_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, lambda: setattr(world.link, "is_asked_to_stop", True))

    assert world.run().state == "stopped"
    assert world.link.states_of_run()[-2:] == ["stopping", "stopped"]


def test_a_query_that_waits_for_its_restart_does_not_start_once_a_stop_is_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b")
    world.at(1_000, lambda: world.fail("a"))
    world.at(1_500, world.runner.stop)

    assert world.run().state == "stopped"
    assert len(world.started["a"]) == 1


def test_a_failure_while_the_run_stops_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, world.runner.stop)
    world.at(1_200, lambda: world.fail("a", "the disk is full"))

    assert world.run().error == "a: the disk is full"


def test_a_run_over_what_is_there_ends_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path, "a", "b", once=True)
    world.at(1_000, lambda: setattr(world.query("a"), "has_ended", True))
    world.at(2_000, lambda: setattr(world.query("b"), "has_ended", True))

    outcome = world.run()

    assert outcome.state == "stopped"
    assert not world.hold_file.exists()


# --- counting -----------------------------------------------------------------------------------------


def test_every_batch_is_counted_once_by_whichever_way_it_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    for number in range(5):
        world.at(1_000 + number, lambda number=number: world.batch("a", number, rows=7))  # type: ignore[misc]
    world.at(10_000, world.runner.stop)

    totals = world.run().totals["a"]

    assert (totals.rows_in, totals.rows_out, totals.batches) == (35, 35, 5)


def test_a_batch_that_spark_told_of_late_is_counted_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    late = account("a", 1, rows=5)
    world.at(1_000, lambda: world.query("a").accounts.append(account("a", 2, rows=3)))
    world.at(5_000, lambda: world.accounts.put(late))
    world.at(9_000, world.runner.stop)

    totals = world.run().totals["a"]

    assert (totals.rows_in, totals.batches) == (8, 2)
    assert world.progress[-1].batch_id == 2


def test_a_batch_that_was_never_sent_is_found_at_the_end(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, lambda: world.query("a").accounts.extend([account("a", 0), account("a", 1)]))
    world.at(1_100, world.runner.stop)

    assert world.run().totals["a"].batches == 2


def test_a_word_that_there_is_nothing_to_do_is_no_batch(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, lambda: world.batch("a", 0, is_batch=False))
    world.at(2_000, lambda: world.batch("a", 0))
    world.at(9_000, world.runner.stop)

    assert world.run().totals["a"].batches == 1


def test_a_query_that_has_nothing_to_do_keeps_the_figures_of_its_last_batch_but_not_its_rates(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(10_000, lambda: world.batch("a", 0, rows=7, end=30))
    for after_ms in range(12_000, 20_000, 1_000):
        world.at(after_ms, lambda: world.batch("a", 1, is_batch=False, end=30, latest=50))
    world.at(21_000, world.runner.stop)
    world.run()
    batch, idle = [one for one in world.progress if one.batch_id is not None and one.state == "running"]

    assert (batch.rows_in, batch.rows_in_per_s, batch.lag) == (7, 100.0, 0)
    assert (idle.rows_in, idle.rows_in_per_s, idle.lag, idle.batch_id) == (7, 0.0, 20, 0)


# --- telling ------------------------------------------------------------------------------------------


def test_a_query_is_told_of_once_a_second_at_most_and_its_last_state_in_any_case(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    for number in range(40):
        world.at(10_000 + 250 * number, lambda number=number: world.batch("a", number))  # type: ignore[misc]
    world.at(25_000, world.runner.stop)
    world.run()
    told = [one for one in world.link.told if isinstance(one, QueryProgress) and one.rows_in_total > 0]

    assert 10 <= len(told) <= 13
    assert told[-2].batch_id == 39


def test_the_caller_is_told_of_every_batch(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    for number in range(10):
        world.at(10_000 + 250 * number, lambda number=number: world.batch("a", number))  # type: ignore[misc]
    world.at(20_000, world.runner.stop)
    world.run()

    assert [one.batch_id for one in world.progress if one.state == "running" and one.rows_in] == list(range(10))


def test_another_state_is_told_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(1_000, lambda: world.fail("a"))
    world.at(5_000, world.runner.stop)
    world.run()

    assert world.link.states_of("a") == ["running", "restarting", "running", "stopped"]


def test_an_idle_run_tells_every_five_seconds_that_it_is_there(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.at(60_000, world.runner.stop)
    world.run()

    assert 12 <= world.link.states_of_run().count("running") <= 13


# --- drained ------------------------------------------------------------------------------------------


def drained_at(world: World, after_ms: int) -> list[bool]:
    found: list[bool] = []
    world.at(after_ms, lambda: found.append(world.runner.drained()))
    world.at(after_ms + 1, world.runner.stop)
    world.run()
    return found


def test_a_run_is_drained_when_its_topics_are_read_to_their_ends_and_it_rests(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.topic_ends = {"orders": {"0": 30}}
    world.at(1_000, lambda: world.batch("a", 0, end=30))

    assert drained_at(world, 5_000) == [True]


def test_a_run_that_has_more_to_read_is_not_drained(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.topic_ends = {"orders": {"0": 30, "1": 1}}
    world.at(1_000, lambda: world.batch("a", 0, end=30))

    assert drained_at(world, 5_000) == [False]


def test_a_run_that_works_is_not_drained(tmp_path: Path) -> None:
    world = World(tmp_path, "a")
    world.topic_ends = {"orders": {"0": 30}}
    world.at(1_000, lambda: world.batch("a", 0, end=30))
    world.at(4_000, lambda: setattr(world.query("a"), "message", WORKING))
    world.at(6_000, lambda: setattr(world.query("a"), "message", WAITING))

    assert drained_at(world, 5_000) == [False]


def test_a_run_of_which_nothing_is_known_yet_is_not_drained(tmp_path: Path) -> None:
    assert drained_at(World(tmp_path, "a"), 5_000) == [False]


def test_a_run_whose_broker_is_away_is_not_drained(tmp_path: Path) -> None:
    def away(topics: Sequence[str]) -> Offsets:
        raise OttlaError("nobody is there")

    world = World(tmp_path, "a", ends_now=away)
    world.at(1_000, lambda: world.batch("a", 0, end=30))

    assert drained_at(world, 5_000) == [False]


def _assert_starts(world: World, name: str, count: int) -> None:
    assert len(world.started[name]) == count

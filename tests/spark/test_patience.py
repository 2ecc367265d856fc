"""How long a stream waits for news, by a clock that is moved by hand."""

from __future__ import annotations

import pytest

from ottla.clock import ManualClock
from ottla.errors import OttlaError
from ottla.spark.patience import LONG_POLL_MS, OUTAGE_LOG_MS, SHORT_POLL_MS, TURN_MS, Outage, Patience


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_query_with_one_source_waits_long(clock: ManualClock) -> None:
    patience = Patience(clock)
    assert patience.wait_ms() == LONG_POLL_MS
    patience.answered(has_news=False)
    clock.advance(10)
    assert patience.wait_ms() == LONG_POLL_MS


def test_after_a_batch_of_its_own_a_source_waits_long_however_long_that_took(clock: ManualClock) -> None:
    patience = Patience(clock)
    patience.answered(has_news=True)
    patience.batch_ran()
    clock.advance(10_000)
    assert patience.wait_ms() == LONG_POLL_MS


def test_a_source_that_had_nothing_for_a_batch_does_not_hold_up_the_next_one(clock: ManualClock) -> None:
    patience = Patience(clock)
    for _ in range(3):
        patience.answered(has_news=False)
        patience.batch_ran()
        assert patience.wait_ms() == 0


def test_a_source_waits_again_once_a_turn_went_by_without_a_batch(clock: ManualClock) -> None:
    patience = Patience(clock)
    patience.answered(has_news=False)
    patience.batch_ran()
    patience.wait_ms()
    patience.answered(has_news=False)
    assert patience.wait_ms() == LONG_POLL_MS


def test_two_quiet_sources_take_short_turns(clock: ManualClock) -> None:
    patience = Patience(clock)
    patience.answered(has_news=False)
    clock.advance(TURN_MS + 1)
    assert patience.wait_ms() == SHORT_POLL_MS


def test_an_outage_is_told_when_it_begins_now_and_then_and_when_it_ends(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(clock)
    for _ in range(3):
        outage.noted(OttlaError("away"))
    assert len(caplog.records) == 1
    clock.advance(OUTAGE_LOG_MS)
    outage.noted(OttlaError("away"))
    assert (len(caplog.records), outage.lasts) == (2, True)
    outage.over()
    outage.over()
    assert (len(caplog.records), outage.lasts) == (3, False)

"""Fetch sessions: full fetches, incremental ones, forgotten partitions, and every way to be out of step."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.broker.fetch_sessions import EPOCH_MAX, IDLE_MS_MIN, FetchSessions
from ottla.error_codes import ErrorCode
from ottla.errors import FetchSessionIdNotFound
from ottla.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from tests.broker.stage import Stage, fetch_topic
from tests.storage.workbench import batch


@pytest.fixture
def two(stage: Stage) -> Stage:
    """A topic with two partitions and a record in each."""
    stage.create("a", 2)
    for index in range(2):
        stage.produce("a", index)
    return stage


def fetch(
    stage: Stage,
    session_id: int,
    epoch: int,
    *topics: FetchTopic,
    forget: Sequence[int] = (),
    version: int = 12,
    **fields: Any,
) -> Any:
    forgotten = [ForgottenTopic(topic="a", partitions=forget)] if forget else ()
    request = FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten, **fields
    )
    return stage.call(request, version)


def told(response: Any) -> list[int]:
    """The partitions of the first topic that an answer speaks of."""
    return [each.partition_index for topic in response.responses for each in topic.partitions]


def begin(stage: Stage, *topics: FetchTopic) -> int:
    """A new session; returns its id."""
    response = fetch(stage, 0, 0, *topics)
    assert response.error_code == ErrorCode.NONE
    assert response.session_id > 0
    return int(response.session_id)


def test_a_full_fetch_begins_a_session_and_tells_of_every_partition(two: Stage) -> None:
    response = fetch(two, 0, 0, fetch_topic("a", 0, 1, offset=1))
    assert response.session_id > 0
    assert told(response) == [0, 1]


def test_an_incremental_fetch_tells_only_what_is_new(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, 1, offset=1))
    response = fetch(two, session, 1)
    assert (response.session_id, response.error_code, told(response)) == (session, ErrorCode.NONE, [])
    two.produce("a", 1)
    assert told(fetch(two, session, 2)) == [1]


def test_records_are_given_again_until_the_client_has_moved_on(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0))
    assert told(fetch(two, session, 1)) == [0]
    assert told(fetch(two, session, 2, fetch_topic("a", 0, offset=1))) == []


def test_a_partition_may_join_a_session(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, offset=1))
    assert told(fetch(two, session, 1, fetch_topic("a", 1))) == [1]
    two.produce("a", 0)
    assert sorted(told(fetch(two, session, 2))) == [0, 1]


def test_a_forgotten_partition_is_not_told_of_any_more(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, 1, offset=1))
    for index in range(2):
        two.produce("a", index)
    assert told(fetch(two, session, 1, forget=[0])) == [1]


def test_a_partition_that_is_forgotten_and_asked_for_in_one_request_is_told_of(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, offset=1))
    assert told(fetch(two, session, 1, fetch_topic("a", 0), forget=[0])) == [0]


def test_a_session_without_partitions_ends(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0))
    response = fetch(two, session, 1, forget=[0])
    assert (response.session_id, response.responses) == (0, ())
    assert fetch(two, session, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_moved_log_start_is_news_without_records(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, 1, offset=1))
    two.partition("a", 1).delete_records(1, lambda fault: None)
    two.scheduler.run()
    response = fetch(two, session, 1)
    assert told(response) == [1]
    assert response.responses[0].partitions[0].log_start_offset == 1


def test_an_error_is_told_again_and_again_and_its_end_is_news(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, 1, offset=1))
    two.disk.fail_next("sync", ".log", errno.EIO)
    two.produce("a", 1)
    for epoch in (1, 2):
        response = fetch(two, session, epoch)
        assert [each.error_code for each in response.responses[0].partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    two.scheduler.advance(10_000)
    assert told(fetch(two, session, 3)) == [1]


def test_an_unknown_session_is_refused(two: Stage) -> None:
    for session_id, epoch in ((12345, 1), (0, 1)):
        response = fetch(two, session_id, epoch)
        assert (response.error_code, response.session_id, response.responses) == (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            0,
            (),
        )


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_fetch_out_of_turn_is_refused_and_the_session_stays(two: Stage, epoch: int) -> None:
    session = begin(two, fetch_topic("a", 0, offset=1))
    assert fetch(two, session, epoch).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert fetch(two, session, 1).error_code == ErrorCode.NONE


def test_a_fetch_that_comes_twice_is_refused_the_second_time(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, offset=1))
    assert fetch(two, session, 1).error_code == ErrorCode.NONE
    assert fetch(two, session, 1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epoch_0_with_a_session_ends_it_and_begins_another(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0))
    response = fetch(two, session, 0, fetch_topic("a", 1))
    assert response.session_id not in (0, session)
    assert told(response) == [1]
    assert fetch(two, session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_minus_1_ends_a_session_and_is_answered_in_full(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0))
    response = fetch(two, session, -1, fetch_topic("a", 0, 1))
    assert (response.session_id, told(response)) == (0, [0, 1])
    assert fetch(two, session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_without_a_session_begins_none(two: Stage) -> None:
    assert fetch(two, 0, -1, fetch_topic("a", 0)).session_id == 0
    assert len(two.broker.services.fetch_sessions) == 0


def test_names_and_ids_are_not_mixed_in_a_session(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0))
    response = fetch(two, session, 1, version=13)
    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ())
    assert fetch(two, session, 1).error_code == ErrorCode.NONE


def test_a_session_by_ids_goes_on_over_a_topic_that_was_deleted(two: Stage) -> None:
    ids = [two.create("b").bytes, two.create("c").bytes]
    asked = [fetch_topic("", topic_id=topic_id) for topic_id in ids]
    session = fetch(two, 0, 0, *asked, version=18).session_id
    two.broker.services.catalog.delete_topic("b", lambda outcome: None)
    two.scheduler.run()
    response = fetch(two, session, 1, version=18)
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in response.responses] == [
        (ids[0], ErrorCode.UNKNOWN_TOPIC_ID)
    ]


def test_an_incremental_fetch_waits_like_any_other(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0, 1, offset=1))
    sent = two.send(FetchRequest(session_id=session, session_epoch=1, max_wait_ms=500, min_bytes=1), 12)
    two.scheduler.run()
    assert not sent.is_answered
    two.produce("a", 1)
    assert told(sent.response) == [1]


def test_partitions_that_gave_records_stand_back_for_the_others(two: Stage) -> None:
    two.produce("a", 0, batch(b"x" * 100))
    session = begin(two, fetch_topic("a", 0, 1, offset=1))
    for index in range(2):
        two.produce("a", index, batch(b"x" * 100))
    first = fetch(two, session, 1, max_bytes=1)
    second = fetch(two, session, 2, max_bytes=1)
    given = [
        [each.partition_index for each in response.responses[0].partitions if len(each.records)]
        for response in (first, second)
    ]
    assert sorted(given) == [[0], [1]]


def test_a_full_table_declines_a_session_and_answers_all_the_same() -> None:
    stage = Stage({"max.incremental.fetch.session.cache.slots": "1"})
    stage.create("a")
    first = begin(stage, fetch_topic("a"))
    response = fetch(stage, 0, 0, fetch_topic("a"))
    assert (response.session_id, told(response)) == (0, [0])
    assert fetch(stage, first, 1).error_code == ErrorCode.NONE


def test_a_session_that_was_not_used_for_long_makes_room() -> None:
    stage = Stage({"max.incremental.fetch.session.cache.slots": "1"})
    stage.create("a")
    first = begin(stage, fetch_topic("a"))
    stage.scheduler.advance(IDLE_MS_MIN)
    second = begin(stage, fetch_topic("a"))
    assert fetch(stage, first, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetch(stage, second, 1).error_code == ErrorCode.NONE


def test_no_sessions_at_all_is_a_setting_too() -> None:
    stage = Stage({"max.incremental.fetch.session.cache.slots": "0"})
    stage.create("a")
    assert fetch(stage, 0, 0, fetch_topic("a")).session_id == 0


def test_epochs_and_ids_wrap_around_to_1() -> None:
    sessions = FetchSessions(first_id=EPOCH_MAX)
    request = FetchRequest(session_epoch=0, topics=[fetch_topic("a")])
    first = sessions.open(request, now_ms=0, by_id=False)
    second = sessions.open(request, now_ms=0, by_id=False)
    assert first is not None
    assert second is not None
    assert (first.session_id, second.session_id) == (EPOCH_MAX, 1)
    second.epoch = EPOCH_MAX
    sessions.open(FetchRequest(session_id=1, session_epoch=EPOCH_MAX), now_ms=0, by_id=False)
    assert second.epoch == 1


def test_a_session_of_an_earlier_life_is_not_taken_for_one_of_this(two: Stage) -> None:
    session = begin(two, fetch_topic("a", 0))
    two.restart()
    begin(two, fetch_topic("a", 0))
    with pytest.raises(FetchSessionIdNotFound):
        two.broker.services.fetch_sessions.open(
            FetchRequest(session_id=session, session_epoch=1), now_ms=0, by_id=False
        )

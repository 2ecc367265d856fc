"""What goes on beside a group's reader: commits that do not hold up heartbeats, and that nobody loses sight of."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from ottla.client.background import Signal, ThreadBackground
from ottla.client.errors import ClientClosed, CommitFailed
from ottla.client.group_commits import Waiting
from ottla.client.group_keeper import Keeper
from ottla.client.group_member_consumer import ConsumerMember
from ottla.client.group_reading import GroupReading
from ottla.client.holdings import Holdings
from ottla.client.settings import ConsumerSettings
from ottla.client.transport import run_now
from ottla.client.values import Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.group_script import Flag, Stage, settle, step, to_topics

KEY = TopicPartition("t", 0)
BEAT_MS = 1_000
LONG_MS = 30_000


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.world.create("t")
    return made


@pytest.fixture
def keeper(stage: Stage) -> Keeper:
    """With a member in epoch 1 that reads t-0."""
    made = Keeper(stage.coordinator, wake=stage.wake, idle=Flag())
    settings = ConsumerSettings(group="g", protocol="consumer")
    made.member = ConsumerMember(stage.coordinator, settings, member_id="m", news=stage.news, wake=stage.wake)
    made.member.subscribe(to_topics("t"))
    told(stage, 1, [0])
    step(made.member)
    settle(made.member)
    told(stage, 1)
    step(made.member)
    return made


def told(stage: Stage, epoch: int, numbers: list[int] | None = None) -> None:
    """What the next heartbeat hears."""
    assignment = None
    if numbers is not None:
        topic_id = stage.world.topics["t"].topic_id
        topics = [TopicPartitions(topic_id=topic_id, partitions=numbers)] if numbers else []
        assignment = Assignment(topic_partitions=topics)
    answer = ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=BEAT_MS, assignment=assignment
    )
    stage.says(ApiKey.CONSUMER_GROUP_HEARTBEAT, answer)


def answer(code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


def submit(stage: Stage, keeper: Keeper, offset: int = 7) -> Future[None]:
    assert keeper.member is not None
    promise: Future[None] = Future()
    deadline_ms = stage.world.clock.now_ms() + LONG_MS
    keeper.submit(Waiting({KEY: Committed(offset)}, {}, promise, deadline_ms, keeper.member.releases))
    return promise


def commits(stage: Stage) -> list[OffsetCommitRequest]:
    return stage.requests(OffsetCommitRequest)


def test_a_heartbeat_that_is_due_comes_between_two_attempts_at_a_commit(stage: Stage, keeper: Keeper) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.STALE_MEMBER_EPOCH), answer())
    promise = submit(stage, keeper)
    stage.pass_time(BEAT_MS)
    told(stage, 2)

    delay_ms = run_now(keeper.turn())
    assert not promise.done()
    assert delay_ms
    stage.pass_time(delay_ms)
    run_now(keeper.turn())

    assert promise.result(0) is None
    assert [request.generation_id_or_member_epoch for request in commits(stage)] == [1, 2]


def test_attempts_at_a_commit_are_made_at_a_distance(stage: Stage, keeper: Keeper) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.STALE_MEMBER_EPOCH))
    submit(stage, keeper)

    run_now(keeper.turn())
    run_now(keeper.turn())

    assert len(commits(stage)) == 1


def test_a_commit_that_does_not_succeed_in_time_has_failed(stage: Stage, keeper: Keeper) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.STALE_MEMBER_EPOCH), answer(ErrorCode.STALE_MEMBER_EPOCH))
    promise = submit(stage, keeper)
    run_now(keeper.turn())
    stage.pass_time(LONG_MS)
    told(stage, 1)

    run_now(keeper.turn())

    assert "STALE_MEMBER_EPOCH" in str(promise.exception(0))


def test_of_an_attempt_that_failed_and_a_later_commit_the_later_one_holds(stage: Stage, keeper: Keeper) -> None:
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.STALE_MEMBER_EPOCH), answer())
    submit(stage, keeper, 7)
    delay_ms = run_now(keeper.turn())
    submit(stage, keeper, 8)
    stage.pass_time(delay_ms or 0)

    run_now(keeper.turn())

    assert [request.topics[0].partitions[0].committed_offset for request in commits(stage)] == [7, 8]


def test_what_was_given_up_since_is_not_committed_any_more(stage: Stage, keeper: Keeper) -> None:
    assert keeper.member is not None
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.STALE_MEMBER_EPOCH))
    promise = submit(stage, keeper)
    stage.pass_time(BEAT_MS)
    told(stage, 2, [])
    run_now(keeper.turn())
    settle(keeper.member)
    stage.pass_time(BEAT_MS)
    told(stage, 2)

    run_now(keeper.turn())

    assert isinstance(promise.exception(0), CommitFailed)
    assert len(commits(stage)) == 1


def test_whoever_commits_after_the_end_hears_that_it_is_over(stage: Stage, keeper: Keeper) -> None:
    told(stage, -1)
    keeper.stop()
    run_now(keeper.run())

    assert isinstance(submit(stage, keeper).exception(0), ClientClosed)


def test_a_bug_in_the_keeper_is_the_reason_that_whoever_commits_is_told(stage: Stage, keeper: Keeper) -> None:
    bug = ZeroDivisionError()
    stage.says(ApiKey.OFFSET_COMMIT, bug)
    submit(stage, keeper)
    with pytest.raises(ZeroDivisionError):
        run_now(keeper.run())

    error = submit(stage, keeper).exception(0)

    assert isinstance(error, ClientClosed)
    assert error.__cause__ is bug


class _Standing(ThreadBackground):
    """Nothing goes on beside the reader, so that what was handed over stays where it is."""

    def signal(self) -> Signal:
        return Flag()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        return


def test_positions_that_the_reader_took_over_and_could_not_commit_are_committed_again(stage: Stage) -> None:
    settings = ConsumerSettings(group="g", auto_commit=True)
    holdings = Holdings(settings)
    reading = GroupReading(stage.cluster, stage.cluster, settings, holdings, _Standing("keeper"), new_id=lambda: "m")
    holdings.replace([KEY], in_group=False)
    holdings.cursors[KEY].seek(5, sought=True)
    reading.submit({})

    def auto_commit() -> None:
        run_now(reading.turn())
        stage.pass_time(settings.auto_commit_interval_ms)
        run_now(reading.turn())

    auto_commit()
    stage.says(ApiKey.OFFSET_COMMIT, answer(ErrorCode.GROUP_AUTHORIZATION_FAILED), answer())
    with pytest.raises(Refusal, match="GROUP_AUTHORIZATION_FAILED"):
        run_now(reading.commit({}))

    auto_commit()
    run_now(reading.commit({}))

    assert [request.topics[0].partitions[0].committed_offset for request in commits(stage)] == [5, 5]

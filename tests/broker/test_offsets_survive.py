"""Committed offsets over crashes: what was acknowledged is there, whatever was under way."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.handlers.group_requests import (
    GROUP,
    codes,
    commit,
    commit_request,
    fetch_request,
    fetched,
)
from tests.broker.stage import Sent, Stage, creation
from tests.storage.workbench import batch

GROUPS = ("one", "two", "three")
SEEDS = 25


def settled(stage: Stage) -> None:
    """Everything that waits for the disk gets it."""
    stage.scheduler.run()
    while stage.jobs.waiting:
        stage.jobs.finish()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_acknowledged_offset_is_lost_or_goes_backwards(seed: int) -> None:
    chance = random.Random(seed)
    stage = Stage({"offsets.topic.num.partitions": "2"}, held=True)
    made = stage.send(creation("a"))
    settled(stage)
    assert made.is_answered
    floor: dict[str, int] = {}
    asked: dict[str, int] = {}
    for _ in range(4):
        open_requests: list[tuple[str, int, Sent]] = []
        for _ in range(chance.randrange(1, 40)):
            group = chance.choice(GROUPS)
            offset = asked[group] = asked.get(group, 0) + 1
            open_requests.append((group, offset, stage.send(commit_request({("a", 0): offset}, group=group), 9)))
            if chance.random() < 0.5:
                stage.scheduler.run()
            while stage.jobs.waiting and chance.random() < 0.4:
                stage.jobs.finish(chance.randrange(len(stage.jobs.waiting)))
        for group, offset, request in open_requests:
            if request.is_answered:
                assert request.response.topics[0].partitions[0].error_code == ErrorCode.NONE
                floor[group] = max(floor.get(group, 0), offset)
        stage.crash()
        settled(stage)
        for group in GROUPS:
            found = fetched(stage, [("a", 0)], group=group)["a", 0]
            assert max(found, 0) >= floor.get(group, 0)
            assert found <= asked.get(group, 0)
            if found > 0:
                floor[group] = asked[group] = found


def lost_tail(*, leader_epoch: int = -1, version: int = 9, retention_ms: int = -1) -> Stage:
    """A group has read three records; the power is about to go, and takes the last ones."""
    stage = Stage({"offsets.topic.num.partitions": "1"})
    stage.create("a", ottla_acks_all="os")
    stage.produce("a", 0, batch(b"1"))
    stage.partition("a").settle()
    stage.scheduler.run()
    stage.produce("a", 0, batch(b"2"), batch(b"3"))
    partition = OffsetCommitRequestPartition(committed_offset=3, committed_leader_epoch=leader_epoch)
    request = OffsetCommitRequest(
        group_id=GROUP,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name="a", partitions=[partition])],
    )
    assert codes(stage.call(request, version)) == [ErrorCode.NONE]
    return stage


def go_on(stage: Stage) -> None:
    """Records are given the offsets anew that were lost, and these are kept."""
    stage.produce("a", 0, *(batch(b"new") for _ in range(4)))
    stage.partition("a").settle()
    stage.scheduler.run()


@pytest.mark.parametrize("leader_epoch", [-1, 0], ids=["not told", "told"])
def test_with_the_page_cache_policy_offsets_beyond_a_lost_tail_are_taken_back(
    leader_epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    stage = lost_tail(leader_epoch=leader_epoch)
    stage.crash()
    end = stage.partition("a").log.end_offset
    assert end < 3
    assert fetched(stage) == {("a", 0): end}
    assert f"up to 3, but what its leader wrote ends at {end}" in caplog.text


def test_offsets_with_a_retention_of_their_own_are_taken_back_too() -> None:
    stage = lost_tail(version=4, retention_ms=1_000_000)
    stage.crash()
    assert fetched(stage) == {("a", 0): stage.partition("a").log.end_offset}


@pytest.mark.parametrize("leader_epoch", [-1, 0], ids=["not told", "told"])
def test_they_are_taken_back_also_if_the_power_goes_again_before_groups_are_read(leader_epoch: int) -> None:
    stage = lost_tail(leader_epoch=leader_epoch)
    stage.disk.fail_next("read", "__consumer_offsets-0/00000000000000000000.log", errno.EIO, times=50)
    stage.crash()
    end = stage.partition("a").log.end_offset
    go_on(stage)
    stage.disk.heal()
    stage.crash()
    assert stage.partition("a").log.end_offset > 3
    assert fetched(stage) == {("a", 0): end}


def test_what_was_taken_back_stays_so_over_later_starts() -> None:
    stage = lost_tail()
    stage.crash()
    end = stage.partition("a").log.end_offset
    go_on(stage)
    stage.restart()
    stage.restart()
    assert fetched(stage) == {("a", 0): end}


def test_what_is_committed_after_a_crash_is_not_taken_back() -> None:
    stage = lost_tail()
    stage.crash()
    go_on(stage)
    assert commit(stage, {("a", 0): 4}) == [ErrorCode.NONE]
    stage.restart()
    assert fetched(stage) == {("a", 0): 4}
    stage.crash()
    assert fetched(stage) == {("a", 0): 4}


def test_how_an_offset_is_kept_does_not_show() -> None:
    stage = lost_tail()
    stage.restart()
    (partition,) = stage.call(fetch_request([("a", 0)]), 9).groups[0].topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (3, -1)


@pytest.mark.parametrize("version", [4, 9])
def test_an_offset_does_not_fit_a_topic_of_the_same_name_made_again(version: int) -> None:
    stage = Stage({"offsets.topic.num.partitions": "1"})
    stage.create("a")
    assert commit(stage, {("a", 0): 0}, version, retention_ms=1_000_000) == [ErrorCode.NONE]
    stage.restart()
    # Time stands still: nobody has swept up behind the topic.
    stage.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]))
    stage.create("a")
    assert fetched(stage, [("a", 0)]) == {("a", 0): -1}


def test_a_retention_of_its_own_outlives_a_restart() -> None:
    stage = Stage({"offsets.topic.num.partitions": "1"})
    stage.create("a", 2)
    assert commit(stage, {("a", 0): 0}, 4, retention_ms=1_000) == [ErrorCode.NONE]
    assert commit(stage, {("a", 1): 0}, 4, retention_ms=10**9) == [ErrorCode.NONE]
    stage.restart()
    stage.scheduler.advance(600_000 + 10)
    assert fetched(stage) == {("a", 1): 0}


def test_an_offset_that_somebody_has_chosen_beyond_the_end_stays_over_a_crash() -> None:
    stage = Stage({"offsets.topic.num.partitions": "2"})
    stage.create("a")
    assert commit(stage, {("a", 0): 1_000}) == [ErrorCode.NONE]
    stage.crash()
    assert fetched(stage) == {("a", 0): 1_000}

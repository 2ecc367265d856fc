"""OffsetForLeaderEpoch: a client learns where an epoch ended, over every kind of restart."""

from __future__ import annotations

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.stage import Stage


def end_of(stage: Stage, epoch: int, *, current: int = -1, version: int = 4) -> tuple[ErrorCode, int, int]:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="a", partitions=[asked])])
    result = stage.call(request, version).topics[0].partitions[0]
    return ErrorCode(result.error_code), result.leader_epoch, result.end_offset


@pytest.fixture
def two(stage: Stage) -> Stage:
    """Two records of epoch 0, then a power loss, then three of epoch 1."""
    stage.create("a")
    for _ in range(2):
        stage.produce("a")
    stage.crash()
    for _ in range(3):
        stage.produce("a")
    return stage


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_the_next_one_begins(two: Stage, version: int) -> None:
    assert end_of(two, 0, version=version) == (ErrorCode.NONE, 0, 2)


def test_the_present_epoch_ends_where_the_log_does(two: Stage) -> None:
    assert end_of(two, 1, current=1) == (ErrorCode.NONE, 1, 5)


def test_an_epoch_newer_than_the_leaders_is_not_known(two: Stage) -> None:
    assert end_of(two, 2) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(("current", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_client_with_another_idea_of_the_leader_is_refused(two: Stage, current: int, code: ErrorCode) -> None:
    assert end_of(two, 0, current=current) == (code, -1, -1)


def test_an_epoch_under_which_nothing_was_written_yet_ends_at_the_end(two: Stage) -> None:
    two.crash()
    assert two.partition("a").leader_epoch == 2
    assert end_of(two, 2, current=2) == (ErrorCode.NONE, 2, 5)
    assert end_of(two, 1, current=2) == (ErrorCode.NONE, 1, 5)


def test_an_epoch_without_a_record_of_its_own_answers_with_the_one_before(two: Stage) -> None:
    two.crash()
    two.crash()
    assert two.partition("a").leader_epoch == 3
    assert end_of(two, 2, current=3) == (ErrorCode.NONE, 1, 5)


def test_a_new_topic_ends_at_0(stage: Stage) -> None:
    stage.create("a")
    assert end_of(stage, 0) == (ErrorCode.NONE, 0, 0)


def test_a_topic_that_is_missing_is_an_error(stage: Stage) -> None:
    assert end_of(stage, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)

"""Committed offsets over crashes: what was acknowledged is there, whatever was under way."""

from __future__ import annotations

import random

import pytest

from ottla.error_codes import ErrorCode
from tests.broker.handlers.group_requests import commit, commit_request, fetched
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


def test_with_the_page_cache_policy_offsets_beyond_a_lost_tail_are_taken_back() -> None:
    stage = Stage({"offsets.topic.num.partitions": "2"})
    stage.create("a", ottla_acks_all="os")
    stage.produce("a", 0, batch(b"1"))
    stage.partition("a").settle()
    stage.scheduler.run()
    stage.produce("a", 0, batch(b"2"), batch(b"3"))
    assert commit(stage, {("a", 0): 3}) == [ErrorCode.NONE]
    stage.crash()
    end = stage.partition("a").log.end_offset
    assert end < 3
    assert fetched(stage) == {("a", 0): end}


def test_an_offset_that_somebody_has_chosen_beyond_the_end_stays_over_a_crash() -> None:
    stage = Stage({"offsets.topic.num.partitions": "2"})
    stage.create("a")
    assert commit(stage, {("a", 0): 1_000}) == [ErrorCode.NONE]
    stage.crash()
    assert fetched(stage) == {("a", 0): 1_000}

"""A pattern that is too much for one decision is compared to the end, slice by slice, whether members speak or not."""

from __future__ import annotations

from typing import Any

from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinators.groups.shard_stage import GROUP, ShardStage

NAMES = {f"{n:0200b}"[::-1].replace("0", "a").replace("1", "b"): 1 for n in range(200)}
PATTERN = "[ab]*a[ab]{100}"
TIMER = ("consumer", "patterns", GROUP, "")


def beat(stage: ShardStage, *, epoch: int) -> Any:
    is_new = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=20_000 if is_new else -1,
        subscribed_topic_names=[] if is_new else None,
        subscribed_topic_regex=PATTERN if is_new else None,
        topic_partitions=[] if is_new else None,
    )
    client = ClientFacts("client", "/host")
    return stage.do(
        lambda shard, ticket, outcome, now_ms: shard.heartbeat_consumer(request, 1, client, ticket, outcome, now_ms)
    )


def group_of(stage: ShardStage) -> ConsumerGroup:
    group = stage.shard.groups.of_kind(GROUP, ConsumerGroup)
    assert group is not None
    return group


def test_a_timer_goes_on_with_a_look_until_it_is_complete() -> None:
    stage = ShardStage(NAMES)
    beat(stage, epoch=0)
    assert len(group_of(stage).resolved[PATTERN]) < len(NAMES)

    stage.advance(2_000)

    assert group_of(stage).resolved[PATTERN] == NAMES.keys()
    assert TIMER not in stage.timers


def test_the_members_are_assigned_anew_once_and_not_with_every_slice() -> None:
    stage = ShardStage(NAMES)
    epoch = beat(stage, epoch=0).member_epoch

    stage.advance(2_000)

    assert group_of(stage).epoch == epoch + 1
    answer = beat(stage, epoch=epoch)
    assert len(answer.assignment.topic_partitions) == len(NAMES)


def test_after_a_restart_the_look_begins_anew_and_takes_nothing_away() -> None:
    stage = ShardStage(NAMES)
    epoch = beat(stage, epoch=0).member_epoch
    stage.advance(2_000)
    epoch = beat(stage, epoch=epoch).member_epoch

    stage.start()
    stage.advance(1_000)
    beat(stage, epoch=epoch)
    stage.advance(2_000)

    assert group_of(stage).epoch == epoch
    assert group_of(stage).resolved[PATTERN] == NAMES.keys()
    assert TIMER not in stage.timers


def test_a_timer_that_outlives_its_group_is_nothing() -> None:
    stage = ShardStage(NAMES)
    beat(stage, epoch=0)
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=-1)
    client = ClientFacts("client", "/host")
    stage.do(
        lambda shard, ticket, outcome, now_ms: shard.heartbeat_consumer(request, 1, client, ticket, outcome, now_ms)
    )
    stage.do(lambda shard, ticket, outcome, now_ms: shard.delete_group(GROUP, ticket, outcome, now_ms))
    records = len(stage.records)

    stage.advance(2_000)

    assert len(stage.records) == records

"""CreatePartitions: a topic only grows, and what it has stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.broker.stage import Stage, creation
from tests.storage.workbench import batch


def grow(name: str, count: int, *assignments: Sequence[int]) -> CreatePartitionsTopic:
    wanted = [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=wanted or None)


def codes(stage: Stage, *topics: CreatePartitionsTopic, validate_only: bool = False) -> list[ErrorCode]:
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=validate_only)
    return [ErrorCode(result.error_code) for result in stage.call(request).results]


def test_old_records_stay_and_new_partitions_can_be_used(stage: Stage) -> None:
    stage.create("a", 3)
    stage.produce("a", 2, batch(b"old"))
    assert codes(stage, grow("a", 6)) == [ErrorCode.NONE]
    assert stage.values("a", 2) == [b"old"]
    assert stage.produce("a", 5).base_offset == 0
    assert stage.produce("a", 6).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("count", [6, 2, 0, -1, 10_001])
def test_a_topic_does_not_shrink_nor_stay_nor_grow_without_end(stage: Stage, count: int) -> None:
    stage.create("a", 6)
    assert codes(stage, grow("a", count)) == [ErrorCode.INVALID_PARTITIONS]


def test_a_topic_that_is_missing_is_an_error_of_its_own(stage: Stage) -> None:
    stage.create("a")
    assert codes(stage, grow("missing", 2), grow("a", 2)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_topic_that_stands_twice_in_a_request_does_not_grow(stage: Stage) -> None:
    stage.create("a")
    assert codes(stage, grow("a", 2), grow("a", 3)) == [ErrorCode.INVALID_REQUEST] * 2
    assert len(stage.broker.services.catalog.image.topic("a").partitions) == 1


def test_validation_alone_lets_nothing_grow(stage: Stage) -> None:
    stage.create("a")
    assert codes(stage, grow("a", 2), validate_only=True) == [ErrorCode.NONE]
    assert len(stage.broker.services.catalog.image.topic("a").partitions) == 1


def test_new_partitions_can_be_assigned_to_this_broker_and_to_no_other(stage: Stage) -> None:
    stage.create("a")
    assert codes(stage, grow("a", 3, [1], [2])) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert codes(stage, grow("a", 3, [1])) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert codes(stage, grow("a", 3, [1], [1])) == [ErrorCode.NONE]


def test_a_topic_may_grow_while_its_first_directories_are_being_made() -> None:
    stage = Stage(held=True)
    created = stage.send(creation("a", 1))
    stage.scheduler.run()
    grown = stage.send(CreatePartitionsRequest(topics=[grow("a", 3)], timeout_ms=1_000))
    stage.scheduler.run()
    stage.jobs.finish()
    assert not grown.is_answered
    stage.jobs.finish()
    assert created.response.topics[0].error_code == ErrorCode.NONE
    assert grown.response.results[0].error_code == ErrorCode.NONE
    assert stage.partition("a", 2).log.end_offset == 0
    assert not stage.broker.services.catalog.image.unfinished


def test_directories_that_a_crash_kept_from_being_made_are_made_at_the_next_start() -> None:
    stage = Stage(held=True)
    stage.send(creation("a", 1))
    stage.scheduler.run()
    stage.send(CreatePartitionsRequest(topics=[grow("a", 3)], timeout_ms=1_000))
    stage.scheduler.run()
    # The first partition is there; the change that says so is durable, and then the power goes.
    stage.jobs.finish()
    stage.crash()
    assert [stage.partition("a", index).log.end_offset for index in range(3)] == [0, 0, 0]
    assert not stage.broker.services.catalog.offline


def test_ottlas_own_topics_do_not_grow_because_groups_would_not_be_found_again(stage: Stage) -> None:
    stage.create("__consumer_offsets", 3)
    assert codes(stage, grow("__consumer_offsets", 6)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert len(stage.broker.services.catalog.image.topic("__consumer_offsets").partitions) == 3

"""The rules about topics: what may be created, deleted, made wider, and what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.config import Settings
from ottla.errors import (
    InvalidConfig,
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
    UnknownTopicId,
)
from ottla.metadata import topics
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.changes import Unfinished, Work
from ottla.metadata.configs import BrokerConfigs
from ottla.metadata.image import Image
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, is_internal
from ottla.metadata.topics import PARTITIONS_PER_TOPIC_MAX, NewTopic

ID = UUID(int=7)
DEFAULTS = BrokerConfigs(Settings.resolve(BROKER_CONFIGS, flags={"num.partitions": "4"}))


def _create(image: Image, wanted: NewTopic, *, brokers: tuple[int, ...] = (1,), topic_id: UUID = ID) -> Image:
    decided = topics.create(image, wanted, topic_id=topic_id, brokers=brokers, defaults=DEFAULTS)
    return image.with_changes(decided.changes)


def _with(*names: str, partition_count: int = 3, brokers: tuple[int, ...] = (1,)) -> Image:
    image = Image()
    for number, name in enumerate(names, 1):
        wanted = NewTopic(name, partition_count, min(len(brokers), 2))
        image = _create(image, wanted, brokers=brokers, topic_id=UUID(int=number))
    return image


def test_a_created_topic_is_found_by_name_and_by_id() -> None:
    image = _create(Image(), NewTopic("orders", 3, configs={"retention.ms": " 5 "}))

    assert image.topic("orders") is image.topic_by_id(ID)
    assert len(image.topic("orders").partitions) == 3
    assert image.configs_of_topic("orders") == {"retention.ms": "5"}


def test_a_new_partition_is_led_by_its_first_replica_since_epoch_0() -> None:
    partition = _create(Image(), NewTopic("orders", 1)).partition("orders", 0)

    assert (partition.leader, partition.leader_epoch, partition.replicas, partition.isr) == (1, 0, (1,), (1,))


def test_a_topic_without_a_count_gets_the_default_number_of_partitions() -> None:
    assert len(_create(Image(), NewTopic("orders")).topic("orders").partitions) == 4


@pytest.mark.parametrize("count", [0, -2, PARTITIONS_PER_TOPIC_MAX + 1])
def test_an_impossible_number_of_partitions_is_refused(count: int) -> None:
    with pytest.raises(InvalidPartitionCount):
        _create(Image(), NewTopic("orders", count))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        _create(Image(), NewTopic(name))


def test_a_name_of_249_characters_is_fine() -> None:
    assert "x" * 249 in _create(Image(), NewTopic("x" * 249)).topics


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(TopicExists):
        _create(_with("orders"), NewTopic("orders"))


@pytest.mark.parametrize(("have", "wanted"), [("a.b", "a_b"), ("a_b", "a.b"), ("a._b", "a_.b")])
def test_a_name_that_differs_only_in_dots_and_underscores_is_refused(have: str, wanted: str) -> None:
    with pytest.raises(InvalidTopicName, match="dots and underscores"):
        _create(_with(have), NewTopic(wanted))


def test_a_name_is_free_again_when_the_one_it_looked_like_is_gone() -> None:
    image = _with("a.b")
    image = image.with_changes(topics.delete(image, "a.b").changes)

    assert "a_b" in _create(image, NewTopic("a_b")).topics


@pytest.mark.parametrize("factor", [2, 0, -2])
def test_a_replication_factor_that_the_brokers_cannot_give_is_refused(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        _create(Image(), NewTopic("orders", 1, factor))


def test_a_default_replication_factor_above_the_number_of_brokers_is_refused_too() -> None:
    defaults = BrokerConfigs(Settings.resolve(BROKER_CONFIGS, flags={"default.replication.factor": "3"}))

    with pytest.raises(InvalidReplicationFactor, match=r"3 copies with 2 broker"):
        topics.create(Image(), NewTopic("orders"), topic_id=ID, brokers=(1, 2), defaults=defaults)


def test_copies_are_spread_in_turn_over_the_brokers() -> None:
    image = _create(Image(), NewTopic("orders", 6, 2), brokers=(1, 2, 3))

    partitions = image.topic("orders").partitions
    assert all(len(set(partition.replicas)) == 2 for partition in partitions)
    assert sorted(partition.leader for partition in partitions) == [1, 1, 2, 2, 3, 3]


def test_a_wrong_setting_refuses_the_topic() -> None:
    with pytest.raises(InvalidConfig):
        _create(Image(), NewTopic("orders", configs={"retention.ms": "soon"}))


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    image = _create(Image(), NewTopic("orders", assignments={1: (2, 1), 0: (1, 2)}), brokers=(1, 2))

    assert [partition.replicas for partition in image.topic("orders").partitions] == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    "assignments", [{0: ()}, {0: (1, 1)}, {0: (9,)}, {1: (1,)}, {0: (1,), 2: (1,)}, {0: (1,), 1: (1, 2)}]
)
def test_a_manual_assignment_that_cannot_be_is_refused(assignments: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        _create(Image(), NewTopic("orders", assignments=assignments), brokers=(1, 2))


@pytest.mark.parametrize(("count", "factor"), [(1, -1), (-1, 1)])
def test_an_assignment_and_a_number_together_are_refused(count: int, factor: int) -> None:
    with pytest.raises(InvalidRequest):
        _create(Image(), NewTopic("orders", count, factor, assignments={0: (1,)}))


def test_a_deleted_topic_leaves_nothing_but_the_work_to_remove_its_directories() -> None:
    image = _create(Image(), NewTopic("orders", 3, configs={"retention.ms": "5"}))

    after = image.with_changes(topics.delete(image, "orders").changes)

    assert (after.topics, after.topics_by_id, after.topic_configs, after.look_alikes) == ({}, {}, {}, {})
    assert list(after.unfinished.values()) == [Unfinished(1, "orders", ID, Work.REMOVE, 0, 3)]


def test_a_topic_that_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(TopicNotFound, match="orders"):
        topics.delete(Image(), "orders")


def test_a_deletion_by_id_spares_a_later_topic_of_the_same_name() -> None:
    with pytest.raises(UnknownTopicId):
        topics.delete(_with("orders"), "orders", topic_id=UUID(int=99))


def test_a_recreated_topic_has_another_id() -> None:
    image = _with("orders")
    image = image.with_changes(topics.delete(image, "orders").changes)
    image = _create(image, NewTopic("orders", 1), topic_id=UUID(int=50))

    assert image.topic("orders").topic_id == UUID(int=50)
    with pytest.raises(UnknownTopicId):
        image.topic_by_id(UUID(int=1))


def test_a_topic_grows_and_its_old_partitions_stay_as_they_are() -> None:
    image = _with("orders", brokers=(1, 2))
    before = image.topic("orders").partitions

    grown = topics.add_partitions(image, "orders", total=6, brokers=(1, 2)).topic

    assert (grown.partitions[:3], len(grown.partitions), grown.topic_id) == (before, 6, image.topic("orders").topic_id)


@pytest.mark.parametrize("total", [3, 2, 0, -1])
def test_a_topic_never_shrinks_nor_stays(total: int) -> None:
    with pytest.raises(InvalidPartitionCount, match="has 3 partitions"):
        topics.add_partitions(_with("orders"), "orders", total=total, brokers=(1,))


@pytest.mark.parametrize("assignments", [[], [(1,), (1,)], [(9,)], [(1, 2)]])
def test_new_partitions_are_assigned_as_checked_as_those_of_a_new_topic(assignments: list[tuple[int, ...]]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        topics.add_partitions(_with("orders"), "orders", total=4, brokers=(1, 2), assignments=assignments)


def test_directories_to_make_are_those_of_both_changes_when_a_topic_grows_before_they_are_made() -> None:
    image = _create(Image(), NewTopic("orders", 2))
    image = image.with_changes(topics.add_partitions(image, "orders", total=5, brokers=(1,)).changes)

    assert list(image.unfinished.values()) == [Unfinished(1, "orders", ID, Work.PLACE, 0, 5)]


def test_an_epoch_rises_and_never_falls() -> None:
    image = _with("orders")
    image = image.with_changes(topics.raise_epochs(image, "orders", {0: 4, 2: 5}).changes)
    image = image.with_changes(topics.raise_epochs(image, "orders", {0: 3, 1: 1}).changes)

    assert [partition.leader_epoch for partition in image.topic("orders").partitions] == [4, 1, 5]


def test_epochs_that_are_reached_already_change_nothing() -> None:
    assert topics.raise_epochs(_with("orders"), "orders", {0: 0}).changes == []


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there_is_named_in_the_refusal(partition: int) -> None:
    with pytest.raises(PartitionNotFound, match=str(partition)):
        _with("orders").partition("orders", partition)


def test_internal_topics_are_known_by_name() -> None:
    assert (is_internal(CONSUMER_OFFSETS), is_internal("orders")) == (True, False)

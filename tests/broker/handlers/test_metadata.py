"""Metadata and ApiVersions: what a client is told before it does anything."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.caller import Address
from ottla.broker.deadlines import BUCKET_MS, TIMEOUT_MS_DEFAULT
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import NO_UUID
from tests.broker.stage import CALLER, Stage


def ask(stage: Stage, names: Sequence[str] | None, version: int = 13, *, create: bool = False) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    auto = create if version >= 4 else True
    return stage.call(MetadataRequest(topics=topics, allow_auto_topic_creation=auto), version)


def codes(response: Any) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


@pytest.fixture
def two(stage: Stage) -> Stage:
    stage.create("a")
    stage.create("b", 3)
    return stage


@pytest.mark.parametrize("version", range(1, 14))
def test_null_means_every_topic_and_an_empty_list_none(two: Stage, version: int) -> None:
    assert set(codes(ask(two, None, version))) == {"a", "b"}
    assert codes(ask(two, [], version)) == {}


def test_in_version_0_an_empty_list_means_every_topic(two: Stage) -> None:
    assert set(codes(ask(two, [], 0))) == {"a", "b"}


def test_a_topic_that_is_missing_is_an_error_where_none_is_to_be_made(two: Stage) -> None:
    assert codes(ask(two, ["a", "missing"])) == {"a": ErrorCode.NONE, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_name_that_no_topic_can_have_is_told_apart_from_a_missing_one(two: Stage) -> None:
    assert codes(ask(two, ["a b", ""])) == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_a_topic_can_be_asked_for_by_its_id(two: Stage) -> None:
    topic_id = two.broker.services.catalog.image.topic("b").topic_id.bytes
    response = two.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)]))
    assert codes(response) == {"b": ErrorCode.NONE}


def test_an_id_of_no_topic_is_told_back_without_a_name(two: Stage) -> None:
    topic_id = UUID(int=9).bytes
    topic = two.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])).topics[0]
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_where_the_answer_must_have_a_name(two: Stage, version: int) -> None:
    asked = [MetadataRequestTopic(name=None, topic_id=UUID(int=9).bytes)]
    topic = two.call(MetadataRequest(topics=asked), version).topics[0]
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "")


def test_ids_survive_a_restart_and_change_when_a_topic_is_made_again(two: Stage) -> None:
    before = {topic.name: topic.topic_id for topic in ask(two, None).topics}
    two.restart()
    assert {topic.name: topic.topic_id for topic in ask(two, None).topics} == before
    assert NO_UUID not in before.values()


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_missing_topic_is_made_and_can_be_used_when_the_answer_comes(stage: Stage, version: int) -> None:
    response = ask(stage, ["new"], version, create=True)
    assert codes(response) == {"new": ErrorCode.NONE}
    assert [each.leader_id for each in response.topics[0].partitions] == [1]
    assert stage.produce("new").error_code == ErrorCode.NONE


def test_the_answer_waits_for_the_directories_of_the_new_topic() -> None:
    stage = Stage(held=True)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    sent = stage.send(request)
    stage.scheduler.run()
    assert not sent.is_answered
    stage.jobs.finish()
    assert codes(sent.response) == {"new": ErrorCode.NONE}


def test_a_broker_that_makes_no_topics_by_itself_makes_none() -> None:
    stage = Stage({"auto.create.topics.enable": "false"})
    assert codes(ask(stage, ["new"], create=True)) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not stage.broker.services.catalog.image.topics


def test_a_name_that_cannot_be_is_not_made(stage: Stage) -> None:
    assert codes(ask(stage, ["a b", "fine"], create=True)) == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "fine": ErrorCode.NONE,
    }


def test_ottlas_own_topics_are_not_made_by_asking_for_them(stage: Stage) -> None:
    name = "__consumer_offsets"
    assert codes(ask(stage, [name], create=True)) == {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    stage.create(name)
    assert ask(stage, [name]).topics[0].is_internal


def test_two_clients_that_ask_at_once_for_a_new_topic_both_get_it(stage: Stage) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")] * 2, allow_auto_topic_creation=True)
    sent = [stage.send(request) for _ in range(2)]
    stage.scheduler.run()
    ids = [topic.topic_id for each in sent for topic in each.response.topics]
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_every_caller_is_told_the_address_that_it_can_reach(two: Stage) -> None:
    caller = CALLER._replace(advertised=Address("elsewhere", 1234))
    broker = two.call(MetadataRequest(topics=()), caller=caller).brokers[0]
    assert (broker.host, broker.port) == ("elsewhere", 1234)


def test_directories_that_are_never_made_do_not_keep_the_answer_for_ever() -> None:
    stage = Stage(held=True)
    sent = stage.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True))
    stage.scheduler.advance(TIMEOUT_MS_DEFAULT - 1)
    assert not sent.is_answered
    stage.scheduler.advance(1 + 2 * BUCKET_MS)
    assert codes(sent.response) == {"new": ErrorCode.REQUEST_TIMED_OUT}
    stage.jobs.finish()
    assert codes(ask(stage, ["new"])) == {"new": ErrorCode.NONE}


def test_a_topic_that_is_asked_for_twice_is_made_once_and_told_twice(stage: Stage) -> None:
    told = ask(stage, ["new", "new"], create=True).topics
    assert [(topic.name, topic.error_code) for topic in told] == [("new", ErrorCode.NONE)] * 2


def test_a_partition_whose_disk_failed_has_no_leader(two: Stage) -> None:
    two.disk.fail_next("sync", ".log", errno.EIO)
    two.produce("b", 1)
    partitions = ask(two, ["b"]).topics[0].partitions
    assert [each.leader_id for each in partitions] == [1, -1, 1]
    assert [each.error_code for each in partitions] == [0, ErrorCode.LEADER_NOT_AVAILABLE, 0]
    assert partitions[1].offline_replicas == (1,)


def test_a_raised_epoch_is_told_after_an_unclean_stop(two: Stage) -> None:
    two.produce("b", 1)
    two.crash()
    assert [each.leader_epoch for each in ask(two, ["b"]).topics[0].partitions][1] == 1


def test_a_version_of_api_versions_that_is_not_known_is_answered_in_version_0(stage: Stage) -> None:
    response = stage.broker.refuse_version()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert 18 in {row.api_key for row in response.api_keys}

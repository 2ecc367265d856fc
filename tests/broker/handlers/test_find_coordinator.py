"""FindCoordinator: the first question makes the topic that keeps groups, or transactions, and waits for it."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.internal_topic import TIMEOUT_MS
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from tests.broker.handlers.group_requests import commit, fetched
from tests.broker.stage import Stage

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"


def find(key_type: int = 0) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=["group"])


def test_the_first_question_makes_the_topic_and_waits_for_it(stage: Stage) -> None:
    sent = stage.send(find())
    assert not sent.is_answered
    stage.scheduler.run()
    assert sent.response.coordinators[0].error_code == ErrorCode.NONE
    image = stage.broker.services.catalog.image
    assert len(image.topic(OFFSETS).partitions) == 50
    configs = image.configs_of_topic(OFFSETS)
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", "104857600")


def test_the_first_question_about_a_transaction_makes_its_topic_and_no_other(stage: Stage) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["one", "two/0", ""])
    sent = stage.send(request)
    assert not sent.is_answered
    stage.scheduler.run()
    told = [(each.key, each.error_code, each.node_id, each.port) for each in sent.response.coordinators]
    assert told == [(key, ErrorCode.NONE, 1, 9092) for key in ("one", "two/0", "")]
    image = stage.broker.services.catalog.image
    assert len(image.topic(TRANSACTIONS).partitions) == 50
    configs = image.configs_of_topic(TRANSACTIONS)
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", "104857600")
    assert OFFSETS not in image.topics


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_versions_ask_about_one_transaction(stage: Stage, version: int) -> None:
    response = stage.call(FindCoordinatorRequest(key="id", key_type=1), version)
    assert (response.error_code, response.node_id, response.port) == (ErrorCode.NONE, 1, 9092)


def test_the_topic_of_transactions_is_made_as_the_settings_say() -> None:
    stage = Stage({"transaction.state.log.num.partitions": "3", "transaction.state.log.segment.bytes": "4096"})
    stage.call(find(1))
    image = stage.broker.services.catalog.image
    assert len(image.topic(TRANSACTIONS).partitions) == 3
    assert image.configs_of_topic(TRANSACTIONS)["segment.bytes"] == "4096"


def test_a_topic_of_transactions_that_cannot_be_made_leaves_no_coordinator() -> None:
    stage = Stage({"transaction.state.log.replication.factor": "3"})
    found = stage.call(find(1)).coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_the_topic_is_made_as_the_settings_say() -> None:
    stage = Stage({"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "4096"})
    stage.call(find())
    image = stage.broker.services.catalog.image
    assert len(image.topic(OFFSETS).partitions) == 3
    assert image.configs_of_topic(OFFSETS)["segment.bytes"] == "4096"


def test_many_first_questions_make_one_topic(stage: Stage) -> None:
    sent = [stage.send(find()) for _ in range(20)]
    stage.scheduler.run()
    assert {each.response.coordinators[0].error_code for each in sent} == {ErrorCode.NONE}


def test_a_question_by_the_oldest_version_is_answered_in_its_own_form(stage: Stage) -> None:
    response = stage.call(FindCoordinatorRequest(key="group"), 0)
    assert (response.error_code, response.node_id, response.port) == (ErrorCode.NONE, 1, 9092)


def test_a_topic_that_cannot_be_made_leaves_no_coordinator() -> None:
    stage = Stage({"offsets.topic.replication.factor": "3"})
    found = stage.call(find()).coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert "3 copies" in found.error_message


def test_a_disk_that_fails_once_is_tried_again_by_the_next_question(stage: Stage) -> None:
    stage.disk.fail_next("make-directory", "-7", errno.EIO)
    assert stage.call(find()).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.broker.services.partitions.reopen_failed()
    stage.scheduler.run()
    assert stage.call(find()).coordinators[0].error_code == ErrorCode.NONE


def test_nobody_waits_for_ever_for_a_disk_that_hangs() -> None:
    stage = Stage(held=True)
    sent = stage.send(find())
    stage.scheduler.run()
    assert not sent.is_answered
    stage.scheduler.advance(TIMEOUT_MS)
    assert sent.response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (2, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (7, 6, ErrorCode.INVALID_REQUEST),
        (-1, 4, ErrorCode.INVALID_REQUEST),
    ],
    ids=["share groups", "share groups too early", "unknown", "negative"],
)
def test_there_are_coordinators_of_groups_and_transactions_only(
    stage: Stage, key_type: int, version: int, code: ErrorCode
) -> None:
    found = stage.call(find(key_type), version).coordinators[0]
    assert (found.key, found.error_code, found.node_id) == ("group", code, -1)
    assert OFFSETS not in stage.broker.services.catalog.image.topics


def test_to_list_groups_makes_no_topic(stage: Stage) -> None:
    response = stage.call(ListGroupsRequest())
    assert (response.error_code, response.groups) == (ErrorCode.NONE, ())
    assert OFFSETS not in stage.broker.services.catalog.image.topics


def test_when_the_topic_is_deleted_its_groups_are_gone_and_the_next_question_makes_it_anew(stage: Stage) -> None:
    stage.create("a")
    commit(stage, {("a", 0): 5})
    stage.broker.services.catalog.delete_topic(OFFSETS, lambda outcome: None)
    stage.scheduler.run()
    assert stage.call(ListGroupsRequest()).groups == ()
    assert stage.call(find()).coordinators[0].error_code == ErrorCode.NONE
    assert fetched(stage) == {}

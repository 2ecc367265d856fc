"""A member of a consumer group, step by step: what its heartbeats say, and what it has its reader do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.commits import NOBODY, Identity
from ottla.client.errors import NetworkException, UnsupportedVersion
from ottla.client.errors_by_code import error_class
from ottla.client.group_member import Change, Kind
from ottla.client.group_member_consumer import ConsumerMember
from ottla.client.settings import ConsumerSettings
from ottla.client.transport import Call, Reply
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.client.group_script import Stage, parts, settle, step, to_topics

BEAT_MS = 5_000


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.world.create("t", partitions=4)
    return made


def member_of(stage: Stage, **settings: Any) -> ConsumerMember:
    chosen = ConsumerSettings(group="g", protocol="consumer", **settings)
    made = ConsumerMember(stage.coordinator, chosen, member_id="m", news=stage.news, wake=stage.wake)
    made.subscribe(to_topics("t"))
    return made


def told(stage: Stage, epoch: int, text: str | None = None, topic: str = "t") -> ConsumerGroupHeartbeatResponse:
    """An answer with an epoch and, unless `text` is None, an assignment."""
    assignment = None
    if text is not None:
        numbers = [int(number) for number in text.split()]
        topics = [TopicPartitions(topic_id=stage.world.topics[topic].topic_id, partitions=numbers)] if numbers else []
        assignment = Assignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=BEAT_MS, assignment=assignment
    )


def refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message="no")


def beat(stage: Stage, member: ConsumerMember, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatRequest:
    """One heartbeat and its answer."""
    stage.says(ApiKey.CONSUMER_GROUP_HEARTBEAT, answer)
    before = len(stage.asked)
    step(member)
    (request,) = stage.asked[before:]
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    return request


def owned_in(request: ConsumerGroupHeartbeatRequest) -> list[list[int]] | None:
    if request.topic_partitions is None:
        return None
    return [list(each.partitions) for each in request.topic_partitions]


def join(stage: Stage, member: ConsumerMember, text: str, *, epoch: int = 1) -> None:
    """Join, take over, report."""
    beat(stage, member, told(stage, epoch, text))
    settle(member)
    if text:
        beat(stage, member, told(stage, epoch))


def test_the_first_heartbeat_says_everything_and_the_reader_takes_over(stage: Stage) -> None:
    member = member_of(stage, server_assignor="range")

    request = beat(stage, member, told(stage, 1, "0 1"))

    assert (request.member_id, request.member_epoch, request.server_assignor) == ("m", 0, "range")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], None)
    assert (request.rebalance_timeout_ms, owned_in(request)) == (300_000, [])
    assert settle(member) == [Change(Kind.ADOPT, parts("0 1"))]
    assert member.identity == Identity("m", 1, None)


def test_what_was_taken_over_is_reported_at_once(stage: Stage) -> None:
    member = member_of(stage)
    beat(stage, member, told(stage, 1, "0 1"))
    settle(member)

    request = beat(stage, member, told(stage, 1))

    assert (request.member_epoch, owned_in(request)) == (1, [[0, 1]])
    assert request.subscribed_topic_names is None


def test_nothing_is_reported_before_the_reader_has_let_go(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1 2 3")
    stage.pass_time(BEAT_MS)
    beat(stage, member, told(stage, 1, "0 1"))
    before = len(stage.asked)

    step(member)
    assert len(stage.asked) == before

    assert settle(member) == [Change(Kind.REVOKE, parts("2 3")), Change(Kind.ADOPT, parts(""))]
    assert owned_in(beat(stage, member, told(stage, 2))) == [[0, 1]]


def test_a_heartbeat_without_news_says_nothing_but_the_epoch(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0")
    stage.pass_time(BEAT_MS)

    request = beat(stage, member, told(stage, 1))

    assert (request.member_epoch, request.subscribed_topic_names, owned_in(request)) == (1, None, None)
    assert settle(member) == []


def test_after_a_lost_answer_everything_is_said_again(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0")
    stage.pass_time(BEAT_MS)
    stage.says(ApiKey.CONSUMER_GROUP_HEARTBEAT, NetworkException("gone"))
    step(member)
    stage.is_coordinator()

    request = beat(stage, member, told(stage, 1))

    assert (request.subscribed_topic_names, owned_in(request)) == (["t"], [[0]])
    assert request.rebalance_timeout_ms == 300_000


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_has_lost_its_partitions_and_joins_again_when_they_are_gone(
    stage: Stage, code: ErrorCode
) -> None:
    member = member_of(stage)
    join(stage, member, "0 1", epoch=4)
    stage.pass_time(BEAT_MS)

    beat(stage, member, refused(code))

    assert member.identity == NOBODY
    before = len(stage.asked)
    step(member)
    assert len(stage.asked) == before, "nothing is joined before the reader has let go"
    assert settle(member) == [Change(Kind.LOSE, parts("0 1"))]
    request = beat(stage, member, told(stage, 6, "1"))
    assert (request.member_epoch, request.subscribed_topic_names, owned_in(request)) == (0, ["t"], [])
    assert settle(member) == [Change(Kind.ADOPT, parts("1"))]


def test_a_new_subscription_is_told_at_once(stage: Stage) -> None:
    stage.world.create("u")
    member = member_of(stage)
    join(stage, member, "0")

    member.subscribe(to_topics("t", "u"))

    request = beat(stage, member, told(stage, 2))
    assert request.subscribed_topic_names == ["t", "u"]


def test_a_pattern_goes_to_the_broker_and_an_empty_one_takes_it_back(stage: Stage) -> None:
    member = member_of(stage)
    member.subscribe(to_topics(pattern="t.*"))
    request = beat(stage, member, told(stage, 1, "0"))
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    assert settle(member) == [Change(Kind.ADOPT, parts("0"))]

    member.subscribe(to_topics("t"))

    request = beat(stage, member, told(stage, 2))
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_partitions_of_a_topic_without_a_name_wait_for_the_metadata(stage: Stage) -> None:
    member = member_of(stage)
    answer = told(stage, 1, "0 1")
    topic = stage.world.topics.pop("t")
    beat(stage, member, answer)
    assert settle(member) == [Change(Kind.ADOPT, parts(""))]
    stage.world.topics["t"] = topic
    stage.pass_time(BEAT_MS)

    beat(stage, member, told(stage, 1))

    assert settle(member) == [Change(Kind.ADOPT, parts("0 1"))]


def test_a_topic_that_was_created_anew_is_reported_under_its_new_id(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0")
    new = stage.world.create("t", partitions=4)
    stage.pass_time(BEAT_MS)
    beat(stage, member, told(stage, 2, "0"))

    request = beat(stage, member, told(stage, 2))

    assert request.topic_partitions is not None
    assert [bytes(each.topic_id) for each in request.topic_partitions] == [new.topic_id]


def test_a_static_member_waits_for_the_one_that_did_not_say_good_bye(stage: Stage) -> None:
    member = member_of(stage, group_instance_id="i")
    beat(stage, member, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert settle(member) == []
    stage.pass_time(BEAT_MS)

    assert beat(stage, member, told(stage, 1, "0")).instance_id == "i"
    assert settle(member) == [Change(Kind.ADOPT, parts("0"))]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_says_good_bye_for_good_or_for_a_while(stage: Stage, instance_id: str | None, epoch: int) -> None:
    member = member_of(stage, group_instance_id=instance_id)
    join(stage, member, "0")
    member.subscribe(None)

    request = beat(stage, member, told(stage, epoch))

    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)
    assert step(member) is None


def test_a_member_that_nobody_polls_leaves_and_comes_back_with_the_next_poll(stage: Stage) -> None:
    member = member_of(stage, poll_interval_max_ms=10_000)
    join(stage, member, "0")
    stage.pass_time(10_001)
    assert beat(stage, member, told(stage, -1)).member_epoch == -1
    assert settle(member) == [Change(Kind.LOSE, parts("0"))]

    member.polled()

    assert beat(stage, member, told(stage, 3, "0")).member_epoch == 0


def test_a_member_that_leaves_and_subscribes_at_once_says_good_bye_first(stage: Stage) -> None:
    member = member_of(stage)
    join(stage, member, "0 1")
    member.subscribe(None)
    member.subscribe(to_topics("t"))
    stage.says(ApiKey.CONSUMER_GROUP_HEARTBEAT, told(stage, -1), told(stage, 2, "0 1"))

    step(member)

    assert [request.member_epoch for request in stage.requests(ConsumerGroupHeartbeatRequest)[-2:]] == [-1, 0]
    assert settle(member) == [Change(Kind.ADOPT, parts("0 1"))]


def test_what_the_group_says_before_it_has_heard_the_good_bye_does_not_count(stage: Stage) -> None:
    member = member_of(stage)

    def overtaken(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        member.subscribe(None)
        member.subscribe(to_topics("t"))
        return told(stage, 1, "0 1")

    stage.world.fault(ApiKey.CONSUMER_GROUP_HEARTBEAT, overtaken)
    step(member)

    assert settle(member) == []


def test_what_keeps_a_member_out_is_raised_with_the_words_of_the_broker(stage: Stage) -> None:
    member = member_of(stage, server_assignor="best")
    beat(stage, member, refused(ErrorCode.UNSUPPORTED_ASSIGNOR))

    with pytest.raises(error_class(ErrorCode.UNSUPPORTED_ASSIGNOR), match="no"):
        member.next_change()

    beat(stage, member, told(stage, 1, "0"))
    assert settle(member) == [Change(Kind.ADOPT, parts("0"))]


def test_a_broker_that_does_not_know_the_protocol_is_named(stage: Stage) -> None:
    stage.world.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, 0)
    member = member_of(stage)
    step(member)

    with pytest.raises(UnsupportedVersion, match="classic"):
        member.next_change()

"""CreateTopics, versions 2-7: create topics, or only say whether they could be.

Each topic succeeds or fails for itself, and is answered when its directories are there. Numbers of -1 mean the
broker's defaults, in every version. Counts and configs are told from version 5 on, the topic's id from 7 on.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidReplicaAssignment, InvalidRequest, OttlaError, Refusal
from ottla.metadata.changes import Topic
from ottla.metadata.configs import describe_topic, new_topic_configs
from ottla.metadata.topics import NewTopic
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.schema import NO_UUID, Message

DETAILS_VERSION_MIN = 5


def create_topics(
    request: CreateTopicsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    asked = request.topics
    answers = Answers[CreatableTopicResult](
        len(asked),
        deadlines=services.deadlines,
        timeout_ms=request.timeout_ms,
        late=lambda place, error: _refused(asked[place], error),
        respond=lambda results: CreateTopicsResponse(topics=results),
    )
    malformed: dict[str, Refusal] = {}
    for topic in asked:
        try:
            _check(topic)
        except Refusal as error:
            malformed[topic.name] = error
    places = [place for place, topic in enumerate(asked) if topic.name not in malformed]

    def created(outcomes: list[Topic | OttlaError]) -> None:
        for place, outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, OttlaError):
                answers.settle(place, _refused(asked[place], outcome))
                continue
            result = _created(asked[place], outcome, services, version=version, is_made=not request.validate_only)
            if request.validate_only:
                answers.settle(place, result)
            else:
                services.partitions.when_placed(outcome.topic_id, partial(placed, place, result))

    def placed(place: int, result: CreatableTopicResult, error: OttlaError | None) -> None:
        answers.settle(place, result if error is None else _refused(asked[place], error))

    for place, topic in enumerate(asked):
        if topic.name in malformed:
            answers.settle(place, _refused(topic, malformed[topic.name]))
    services.catalog.create_topics(
        [_wanted(asked[place]) for place in places], created, validate_only=request.validate_only
    )
    return answers.response()


def _check(topic: CreatableTopic) -> None:
    """Refuse what would be lost when lists become mappings."""
    if len({assignment.partition_index for assignment in topic.assignments}) < len(topic.assignments):
        raise InvalidReplicaAssignment(f"a partition of topic {topic.name!r} is assigned twice; assign each once")
    if len({config.name for config in topic.configs}) < len(topic.configs):
        raise InvalidRequest(f"a config of topic {topic.name!r} stands there twice; set each once")


def _wanted(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={assignment.partition_index: assignment.broker_ids for assignment in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


def _created(
    asked: CreatableTopic, topic: Topic, services: Services, *, version: int, is_made: bool
) -> CreatableTopicResult:
    configs: list[CreatableTopicConfigs] = []
    if version >= DETAILS_VERSION_MIN:
        own = new_topic_configs({config.name: config.value for config in asked.configs})
        configs = [
            CreatableTopicConfigs(
                name=effective.setting.name,
                value=effective.text(),
                read_only=effective.read_only,
                config_source=effective.source,
                is_sensitive=effective.setting.sensitive,
            )
            for effective in describe_topic(own, services.catalog.broker_configs())
        ]
    topic_id: UUID | None = topic.topic_id if is_made else None
    return CreatableTopicResult(
        name=topic.name,
        topic_id=NO_UUID if topic_id is None else topic_id.bytes,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=configs,
    )


def _refused(topic: CreatableTopic, error: OttlaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=code_of(error), error_message=str(error))

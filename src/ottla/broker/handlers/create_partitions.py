"""CreatePartitions, versions 0-3: let topics grow.

A topic can only grow, and what it has stays where it is. Each topic succeeds or fails for itself, and is answered
when the new directories are there. An empty list of assignments means the same as none.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidRequest, InvalidTopicName, OttlaError
from ottla.metadata.changes import Topic
from ottla.metadata.internal_topics import is_internal
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.protocol.schema import Message


def create_partitions(
    request: CreatePartitionsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    asked = request.topics
    answers = Answers[CreatePartitionsTopicResult](
        len(asked),
        deadlines=services.deadlines,
        timeout_ms=request.timeout_ms,
        late=lambda place, error: _result(asked[place], error),
        respond=lambda results: CreatePartitionsResponse(results=results),
    )

    def grown(place: int, outcome: Topic | OttlaError) -> None:
        if isinstance(outcome, OttlaError):
            placed(place, outcome)
        elif request.validate_only:
            placed(place, None)
        else:
            services.partitions.when_placed(outcome.topic_id, partial(placed, place))

    def placed(place: int, error: OttlaError | None) -> None:
        answers.settle(place, _result(asked[place], error))

    names = Counter(topic.name for topic in asked)
    for place, topic in enumerate(asked):
        if names[topic.name] > 1:
            placed(place, InvalidRequest(f"topic {topic.name!r} stands more than once in the request; name it once"))
            continue
        if is_internal(topic.name):
            # Keys find their partition by the number of partitions: with another number nothing would be found again.
            placed(place, InvalidTopicName(f"{topic.name!r} is Ottla's own and keeps its number of partitions"))
            continue
        services.catalog.add_partitions(
            topic.name,
            topic.count,
            partial(grown, place),
            assignments=[assignment.broker_ids for assignment in topic.assignments] if topic.assignments else None,
            validate_only=request.validate_only,
        )
    return answers.response()


def _result(topic: CreatePartitionsTopic, error: OttlaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=topic.name)
    return CreatePartitionsTopicResult(name=topic.name, error_code=code_of(error), error_message=str(error))

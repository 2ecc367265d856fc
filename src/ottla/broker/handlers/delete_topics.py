"""DeleteTopics, versions 1-6: delete topics, by name, and from version 6 on also by id.

Each topic succeeds or fails for itself. The answer comes when the topic is durably gone from the metadata; its
files go after that, also over a crash. A topic of the same name can be created at once.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from uuid import UUID

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidRequest, InvalidTopicName, OttlaError, Refusal, TopicNotFound, UnknownTopicId
from ottla.metadata.changes import Topic
from ottla.metadata.image import Image
from ottla.metadata.internal_topics import TRANSACTION_STATE
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.schema import NO_UUID, Message

ID_VERSION_MIN = 6


def delete_topics(
    request: DeleteTopicsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    image = services.catalog.image
    if version >= ID_VERSION_MIN:
        asked = list(request.topics)
    else:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    answers = Answers[DeletableTopicResult](
        len(asked),
        deadlines=services.deadlines,
        timeout_ms=request.timeout_ms,
        late=lambda place, error: _result(asked[place], image, error),
        respond=lambda results: DeleteTopicsResponse(responses=results),
    )

    def deleted(place: int, outcome: Topic | OttlaError) -> None:
        error = outcome if isinstance(outcome, OttlaError) else None
        if isinstance(error, TopicNotFound) and asked[place].topic_id != NO_UUID:
            error = UnknownTopicId(UUID(bytes=asked[place].topic_id))
        answers.settle(place, _result(asked[place], image, error))

    names = Counter(_name(topic, image) for topic in asked)
    for place, topic in enumerate(asked):
        try:
            name = _require_name(topic, image)
            if names[name] > 1:
                raise InvalidRequest(f"topic {name!r} stands more than once in the request; name it once")
            if name == TRANSACTION_STATE:
                raise InvalidTopicName(
                    f"{name} holds transactions that are open: without it nobody could end them in their partitions"
                )
        except Refusal as error:
            answers.settle(place, _result(topic, image, error))
            continue
        topic_id = None if topic.topic_id == NO_UUID else UUID(bytes=topic.topic_id)
        services.catalog.delete_topic(name, partial(deleted, place), topic_id=topic_id)
    return answers.response()


def _name(asked: DeleteTopicState, image: Image) -> str | None:
    """The name of the topic that is meant, as far as it is known."""
    if asked.name is not None:
        return asked.name
    found = image.topics_by_id.get(UUID(bytes=asked.topic_id))
    return None if found is None else found.name


def _require_name(asked: DeleteTopicState, image: Image) -> str:
    if (asked.name is None) == (asked.topic_id == NO_UUID):
        raise InvalidRequest("a topic to delete is given by its name or by its id, and not by both")
    return asked.name if asked.name is not None else image.topic_by_id(UUID(bytes=asked.topic_id)).name


def _result(asked: DeleteTopicState, image: Image, error: OttlaError | None) -> DeletableTopicResult:
    name = _name(asked, image)
    if error is not None:
        return DeletableTopicResult(
            name=name, topic_id=asked.topic_id, error_code=code_of(error), error_message=str(error)
        )
    known = image.topics.get(name or "")
    return DeletableTopicResult(name=name, topic_id=asked.topic_id if known is None else known.topic_id.bytes)

"""Metadata, versions 0-13: brokers, topics, and who leads what.

Null topics mean all, an empty list none (in version 0 an empty list means all). Ids are told from version 10
on, and topics can be asked for by id from version 12 on. Topics that are missing are made when client and broker
allow it, but for Ottla's own; the response then waits until they are there. Authorised operations are not told:
there is no authorisation yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from ottla.broker.answers import Answers
from ottla.broker.caller import Caller
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, InvalidTopicName, OttlaError, Refusal, TopicExists
from ottla.metadata.changes import Topic
from ottla.metadata.internal_topics import is_internal
from ottla.metadata.topics import NewTopic
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.schema import NO_UUID, Message
from ottla.storage.layout import is_topic_name

BY_ID_VERSION_MIN = 12
"""Before, a topic in the response must have a name."""


def metadata(request: MetadataRequest, version: int, caller: Caller, services: Services) -> Message | Pending:
    asked = request.topics
    if asked is None or (version == 0 and not asked):
        topics = [_told(topic, services) for topic in services.catalog.image.topics.values()]
        return _response(topics, caller, services)
    if version < BY_ID_VERSION_MIN and any(entry.name is None or entry.topic_id != NO_UUID for entry in asked):
        return _refuse_ids(asked, caller, services)
    missing = [
        entry.name
        for entry in asked
        if entry.name
        and entry.topic_id == NO_UUID
        and entry.name not in services.catalog.image.topics
        # Made by default settings, these would lose what they are to hold.
        and not is_internal(entry.name)
    ]
    may_create = request.allow_auto_topic_creation and services.catalog.broker_configs().boolean(
        "auto.create.topics.enable"
    )
    if missing and may_create:
        return _create_first(missing, asked, caller, services)
    return _response([_find(entry, services, {}) for entry in asked], caller, services)


def _create_first(
    missing: Sequence[str], asked: Sequence[MetadataRequestTopic], caller: Caller, services: Services
) -> Message | Pending:
    """The response once the topics are there, or the time is over: a disk that hangs must not hang the client."""
    names = list(dict.fromkeys(missing))

    def find(place: int, error: OttlaError | None) -> MetadataResponseTopic:
        name = names[place]
        return _find(MetadataRequestTopic(name=name), services, {} if error is None else {name: error})

    def respond(made: list[MetadataResponseTopic]) -> MetadataResponse:
        by_name = dict(zip(names, made, strict=True))
        topics = [
            by_name[entry.name] if entry.topic_id == NO_UUID and entry.name in by_name else _find(entry, services, {})
            for entry in asked
        ]
        return _response(topics, caller, services)

    answers: Answers[MetadataResponseTopic] = Answers(
        len(names), deadlines=services.deadlines, timeout_ms=TIMEOUT_MS_DEFAULT, late=find, respond=respond
    )

    def placed(place: int, error: OttlaError | None) -> None:
        # A topic whose directories could not be made is there all the same: its partitions are told as offline.
        answers.settle(place, find(place, None))

    def created(outcomes: list[Topic | OttlaError]) -> None:
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Topic):
                services.partitions.when_placed(outcome.topic_id, partial(placed, place))
            else:
                answers.settle(place, find(place, None if isinstance(outcome, TopicExists) else outcome))

    services.catalog.create_topics([NewTopic(name) for name in names], created)
    return answers.response()


def _find(entry: MetadataRequestTopic, services: Services, refused: dict[str, OttlaError]) -> MetadataResponseTopic:
    image = services.catalog.image
    try:
        if entry.topic_id != NO_UUID:
            return _told(image.topic_by_id(UUID(bytes=entry.topic_id)), services)
        name = entry.name or ""
        if name in refused:
            raise refused[name]
        if not is_topic_name(name):
            raise InvalidTopicName(f"{name!r} is no name for a topic")
        return _told(image.topic(name), services)
    except OttlaError as error:
        code = error.code if isinstance(error, Refusal) else ErrorCode.UNKNOWN_SERVER_ERROR
        name_told = entry.name if entry.topic_id == NO_UUID else None
        return MetadataResponseTopic(error_code=code, name=name_told, topic_id=entry.topic_id)


def _refuse_ids(asked: Sequence[MetadataRequestTopic], caller: Caller, services: Services) -> MetadataResponse:
    code = InvalidRequest.code
    topics = [MetadataResponseTopic(error_code=code, name=entry.name or "", topic_id=entry.topic_id) for entry in asked]
    return _response(topics, caller, services)


def _told(topic: Topic, services: Services) -> MetadataResponseTopic:
    partitions = []
    for index, partition in enumerate(topic.partitions):
        reason = services.partitions.offline_reason(topic.name, index)
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if reason is None else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if reason is None else -1,
                leader_epoch=services.partitions.leader_epoch(topic, index),
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=() if reason is None else partition.replicas,
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id.bytes, is_internal=is_internal(topic.name), partitions=partitions
    )


def _response(topics: list[MetadataResponseTopic], caller: Caller, services: Services) -> MetadataResponse:
    host, port = caller.advertised
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=services.node_id, host=host, port=port)],
        cluster_id=services.catalog.image.cluster_id,
        controller_id=services.node_id,
        topics=topics,
    )

"""DeleteTopics (API 20): deletes topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class DeleteTopicState(Message, frozen=True):
    """A topic to delete, by name or by id."""

    name: String | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(Message, frozen=True):
    """The topics to delete, since 6 by name or by id."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_TOPICS].versions

    topics: Annotated[Sequence[DeleteTopicState], Since(6)] = ()
    topic_names: Annotated[Sequence[String], Since(last=5, ignorable=True)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message, frozen=True):
    """Whether one topic was deleted."""

    name: Annotated[String | None, Since(nullable_first=6)] = ""
    topic_id: Annotated[Uuid, Since(6, ignorable=True)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Since(5, ignorable=True)] = None


class DeleteTopicsResponse(Message, frozen=True):
    """What became of each topic."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_TOPICS].versions

    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult] = ()

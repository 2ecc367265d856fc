"""DeleteShareGroupOffsets (API 92): forgets from where a share group reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Int16, Int32, Message, String, Uuid
from ottla.protocol.versions import Versions


class DeleteShareGroupOffsetsRequestTopic(Message, frozen=True):
    """A topic to forget."""

    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(Message, frozen=True):
    """The group and the topics to forget."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_SHARE_GROUP_OFFSETS].versions

    group_id: String = ""
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = ()


class DeleteShareGroupOffsetsResponseTopic(Message, frozen=True):
    """Whether one topic is forgotten."""

    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteShareGroupOffsetsResponse(Message, frozen=True):
    """What became of each topic."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_SHARE_GROUP_OFFSETS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()

"""CreatePartitions (API 37): adds partitions to topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class CreatePartitionsAssignment(Message, frozen=True):
    """The brokers that shall hold one new partition."""

    broker_ids: Sequence[Int32] = ()


class CreatePartitionsTopic(Message, frozen=True):
    """A topic and how many partitions it shall have."""

    name: String = ""
    count: Int32 = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(Message, frozen=True):
    """How many partitions each topic shall have."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_PARTITIONS].versions

    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message, frozen=True):
    """Whether one topic has its partitions."""

    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message, frozen=True):
    """Whether each topic has them now."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_PARTITIONS].versions

    throttle_time_ms: Int32 = 0
    results: Sequence[CreatePartitionsTopicResult] = ()

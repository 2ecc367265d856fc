"""CreateTopics (API 19): creates topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import NO_UUID, Bool, Int8, Int16, Int32, Message, Since, String, Uuid
from ottla.protocol.versions import Versions


class CreatableReplicaAssignment(Message, frozen=True):
    """The brokers that shall hold one partition."""

    partition_index: Int32 = 0
    broker_ids: Sequence[Int32] = ()


class CreatableTopicConfig(Message, frozen=True):
    """One config to create the topic with."""

    name: String = ""
    value: String | None = ""


class CreatableTopic(Message, frozen=True):
    """A topic to create."""

    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


class CreateTopicsRequest(Message, frozen=True):
    """The topics to create, or only to check."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_TOPICS].versions

    topics: Sequence[CreatableTopic] = ()
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Message, frozen=True):
    """One config that the new topic has."""

    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Message, frozen=True):
    """The new topic, or why it was not created."""

    name: String = ""
    topic_id: Annotated[Uuid, Since(7, ignorable=True)] = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = ""
    topic_config_error_code: Annotated[Int16, Since(5, tag=0, ignorable=True)] = 0
    num_partitions: Annotated[Int32, Since(5, ignorable=True)] = -1
    replication_factor: Annotated[Int16, Since(5, ignorable=True)] = -1
    configs: Annotated[Sequence[CreatableTopicConfigs] | None, Since(5, ignorable=True)] = ()


class CreateTopicsResponse(Message, frozen=True):
    """What became of each topic."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_TOPICS].versions

    throttle_time_ms: Int32 = 0
    topics: Sequence[CreatableTopicResult] = ()

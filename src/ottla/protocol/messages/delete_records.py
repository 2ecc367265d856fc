"""DeleteRecords (API 21): moves the start of partitions forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, String
from ottla.protocol.versions import Versions


class DeleteRecordsPartition(Message, frozen=True):
    """The new start of one partition."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Message, frozen=True):
    """The new starts of one topic's partitions."""

    name: String = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(Message, frozen=True):
    """The offset before which each partition shall forget."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_RECORDS].versions

    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message, frozen=True):
    """Where one partition starts now."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message, frozen=True):
    """Where one topic's partitions start now."""

    name: String = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(Message, frozen=True):
    """Where each partition starts now."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_RECORDS].versions

    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()

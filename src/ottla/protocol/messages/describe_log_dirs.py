"""DescribeLogDirs (API 35): tells how much room the partitions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class DescribableLogDirTopic(Message, frozen=True):
    """Partitions of one topic to tell about."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


class DescribeLogDirsRequest(Message, frozen=True):
    """The partitions to tell about; null means all of them."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_LOG_DIRS].versions

    topics: Sequence[DescribableLogDirTopic] | None = ()


class DescribeLogDirsPartition(Message, frozen=True):
    """How much room one partition takes."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Message, frozen=True):
    """The partitions of one topic in a directory."""

    name: String = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(Message, frozen=True):
    """One log directory."""

    error_code: Int16 = 0
    log_dir: String = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: Annotated[Int64, Since(4, ignorable=True)] = -1
    usable_bytes: Annotated[Int64, Since(4, ignorable=True)] = -1
    is_cordoned: Annotated[Bool, Since(5, ignorable=True)] = False


class DescribeLogDirsResponse(Message, frozen=True):
    """The log directories and what they hold."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_LOG_DIRS].versions

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3, ignorable=True)] = 0
    results: Sequence[DescribeLogDirsResult] = ()

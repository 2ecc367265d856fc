"""ElectLeaders (API 43): has partitions choose their leader anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class TopicPartitions(Message, frozen=True):
    """Partitions of one topic."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


class ElectLeadersRequest(Message, frozen=True):
    """The partitions; null means all of them."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ELECT_LEADERS].versions

    election_type: Annotated[Int8, Since(1)] = 0
    topic_partitions: Sequence[TopicPartitions] | None = ()
    timeout_ms: Int32 = 60000


class PartitionResult(Message, frozen=True):
    """What one election brought."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(Message, frozen=True):
    """What the elections of one topic brought."""

    topic: String = ""
    partition_result: Sequence[PartitionResult] = ()


class ElectLeadersResponse(Message, frozen=True):
    """What each election brought."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ELECT_LEADERS].versions

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    replica_election_results: Sequence[ReplicaElectionResult] = ()

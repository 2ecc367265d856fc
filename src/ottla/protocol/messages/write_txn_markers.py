"""WriteTxnMarkers (API 27): a coordinator ends transactions in their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int8, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class WritableTxnMarkerTopic(Message, frozen=True):
    """Partitions of one topic that get the marker."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class WritableTxnMarker(Message, frozen=True):
    """The end of one transaction."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: Sequence[WritableTxnMarkerTopic] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, Since(2, ignorable=True)] = 0


class WriteTxnMarkersRequest(Message, frozen=True):
    """The markers to write."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.WRITE_TXN_MARKERS].versions

    markers: Sequence[WritableTxnMarker] = ()


class WritableTxnMarkerPartitionResult(Message, frozen=True):
    """Whether one partition has the marker."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Message, frozen=True):
    """Whether one topic's partitions have the marker."""

    name: String = ""
    partitions: Sequence[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(Message, frozen=True):
    """The outcome for one producer's marker."""

    producer_id: Int64 = 0
    topics: Sequence[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(Message, frozen=True):
    """Whether each marker was written."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.WRITE_TXN_MARKERS].versions

    markers: Sequence[WritableTxnMarkerResult] = ()

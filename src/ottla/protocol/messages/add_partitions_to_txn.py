"""AddPartitionsToTxn (API 24): adds partitions to a transaction, or checks that they are in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class AddPartitionsToTxnTopic(Message, frozen=True):
    """Partitions of one topic to add."""

    name: String = ""
    partitions: Sequence[Int32] = ()


class AddPartitionsToTxnTransaction(Message, frozen=True):
    """One transaction and the partitions to add to it."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: Sequence[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnRequest(Message, frozen=True):
    """The partitions to add; since 4, between brokers, for several transactions."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ADD_PARTITIONS_TO_TXN].versions

    transactions: Annotated[Sequence[AddPartitionsToTxnTransaction], Since(4)] = ()
    v3_and_below_transactional_id: Annotated[String, Since(last=3)] = ""
    v3_and_below_producer_id: Annotated[Int64, Since(last=3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Since(last=3)] = 0
    v3_and_below_topics: Annotated[Sequence[AddPartitionsToTxnTopic], Since(last=3)] = ()


class AddPartitionsToTxnPartitionResult(Message, frozen=True):
    """Whether one partition was added."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Message, frozen=True):
    """Whether one topic's partitions were added."""

    name: String = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResult(Message, frozen=True):
    """The outcome for one transaction."""

    transactional_id: String = ""
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = ()


class AddPartitionsToTxnResponse(Message, frozen=True):
    """Whether each partition is part of the transaction now."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ADD_PARTITIONS_TO_TXN].versions

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(4, ignorable=True)] = 0
    results_by_transaction: Annotated[Sequence[AddPartitionsToTxnResult], Since(4)] = ()
    results_by_topic_v3_and_below: Annotated[Sequence[AddPartitionsToTxnTopicResult], Since(last=3)] = ()

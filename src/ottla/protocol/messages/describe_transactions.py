"""DescribeTransactions (API 65): describes transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, String
from ottla.protocol.versions import Versions


class DescribeTransactionsRequest(Message, frozen=True):
    """The transactional ids to describe."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_TRANSACTIONS].versions

    transactional_ids: Sequence[String] = ()


class TopicData(Message, frozen=True):
    """Partitions of one topic that the transaction has written to."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


class TransactionState(Message, frozen=True):
    """One transaction, or why it cannot be described."""

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(Message, frozen=True):
    """The state of each transaction."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_TRANSACTIONS].versions

    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[TransactionState] = ()

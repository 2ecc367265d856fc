"""ListTransactions (API 66): lists the transactions that a broker coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class ListTransactionsRequest(Message, frozen=True):
    """Which transactions are wanted."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_TRANSACTIONS].versions

    state_filters: Sequence[String] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[String | None, Since(2)] = None


class TransactionState(Message, frozen=True):
    """One transaction and its state."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message, frozen=True):
    """The transactions that were found."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.LIST_TRANSACTIONS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[String] = ()
    transaction_states: Sequence[TransactionState] = ()

"""KeepTransactions (API 10002, Ottla's own): lets the time of open transactions begin anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.messages.commit_together import OpenTransaction
from ottla.protocol.schema import Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class KeepTransactionsRequest(Message, frozen=True):
    """The transactions of one query that are to stay open."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.KEEP_TRANSACTIONS].versions

    query_id: String = ""
    transactions: Sequence[OpenTransaction] = ()


class KeepTransactionsResponse(Message, frozen=True):
    """Whether all of them are still open."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.KEEP_TRANSACTIONS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None

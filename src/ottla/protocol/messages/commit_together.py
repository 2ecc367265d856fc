"""CommitTogether (API 10000, Ottla's own): commits several transactions as one, and only once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Int64, Message, String
from ottla.protocol.versions import Versions


class OpenTransaction(Message, frozen=True):
    """One transaction, as its producer knows it."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0


class CommitTogetherRequest(Message, frozen=True):
    """The transactions, and the key under which their commit is remembered."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.COMMIT_TOGETHER].versions

    query_id: String = ""
    batch_id: Int64 = 0
    transactions: Sequence[OpenTransaction] = ()


class CommitTogetherResponse(Message, frozen=True):
    """Whether all of them are committed; none is if there is an error."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.COMMIT_TOGETHER].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    is_repeated: Bool = False

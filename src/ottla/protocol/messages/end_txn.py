"""EndTxn (API 26): commits or aborts a transaction."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class EndTxnRequest(Message, frozen=True):
    """The transaction, and whether it shall be kept."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.END_TXN].versions

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message, frozen=True):
    """Whether the decision stands; since 5 with the producer's next epoch."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.END_TXN].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5, ignorable=True)] = -1
    producer_epoch: Annotated[Int16, Since(5, ignorable=True)] = -1

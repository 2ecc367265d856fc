"""InitProducerId (API 22): gives a producer its id and epoch."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class InitProducerIdRequest(Message, frozen=True):
    """The transactional id, if there is one, and the id and epoch to go on with."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.INIT_PRODUCER_ID].versions

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


class InitProducerIdResponse(Message, frozen=True):
    """The id and epoch to use from now on."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.INIT_PRODUCER_ID].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0

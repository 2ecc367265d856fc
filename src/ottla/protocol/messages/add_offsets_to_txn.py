"""AddOffsetsToTxn (API 25): makes a group's offsets part of a transaction."""

from __future__ import annotations

from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Int64, Message, String
from ottla.protocol.versions import Versions


class AddOffsetsToTxnRequest(Message, frozen=True):
    """The transaction and the group."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ADD_OFFSETS_TO_TXN].versions

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message, frozen=True):
    """Whether offsets of the group may be committed in the transaction."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ADD_OFFSETS_TO_TXN].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0

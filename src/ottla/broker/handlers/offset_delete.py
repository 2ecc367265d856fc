"""OffsetDelete, version 0: forget how far a group has read topics that its members do not read.

A group with members that do not tell what they read is refused as a whole; otherwise each partition is answered for
itself.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.schema import Message


def offset_delete(
    request: OffsetDeleteRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return services.groups.submit(
        request.group_id,
        lambda shard, ticket, outcome, now_ms: shard.delete_offsets(request, ticket, outcome, now_ms),
        lambda error: OffsetDeleteResponse(error_code=error.code),
    )

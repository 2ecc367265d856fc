"""ListPartitionReassignments, version 0: the partitions that are being moved to other brokers.

With one broker there are never any.
"""

from __future__ import annotations

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.schema import Message


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return ListPartitionReassignmentsResponse(error_message=None)

"""What an offset must be to be stored, and how much room offsets may take.

The same for plain commits and for those of a transaction. Who may commit is decided elsewhere.
"""

from __future__ import annotations

from ottla.coordinators.groups.offsets import text_bytes, tombstone_bytes
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.error_codes import ErrorCode
from ottla.errors import OffsetMetadataTooLarge, PartitionNotFound, Refusal

COMMIT_BYTES_MAX = 16 << 20
"""What one commit may come to. It is one batch, and the group's name stands in each of its keys."""
GROUP_BYTES_MAX = 16 << 20
"""What the tombstones of all of a group's offsets may come to, so that it can be deleted in one batch."""
TRANSACTION_BYTES_MAX = 16 << 20
"""What the end of a transaction may come to in one shard: it is one batch, or it would not be all or nothing."""
VALUE_BYTES = 80
"""What an offset takes beside its key and its note, and a little more."""


class CommitTooLarge(Refusal):
    """What is to be stored takes more room than one commit, one group or one transaction may have."""

    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def offset_bytes(group_id: str, topic: str, metadata: str) -> int:
    """What a stored offset takes in a batch."""
    return tombstone_bytes(group_id, topic) + VALUE_BYTES + text_bytes(metadata)


def check_offset(
    topic: str, partition: int, metadata: str | None, *, topics: TopicsView, settings: GroupSettings
) -> None:
    """Refuse an offset of a partition that is not there, or with too long a note."""
    if not 0 <= partition < topics.partition_count(topic):
        raise PartitionNotFound(topic, partition)
    length = len(metadata or "")
    if length > settings.offset_metadata_bytes_max:
        raise OffsetMetadataTooLarge(f"{length}, the limit is {settings.offset_metadata_bytes_max}")


def check_sizes(*, commit_bytes: int, group_bytes: int, transaction_bytes: int = 0) -> None:
    """Refuse a commit that takes too much room, or after which its group or its transaction would."""
    if commit_bytes > COMMIT_BYTES_MAX:
        raise CommitTooLarge(f"the commit comes to {commit_bytes} bytes, the limit is {COMMIT_BYTES_MAX}")
    if group_bytes > GROUP_BYTES_MAX:
        raise CommitTooLarge(f"the group's offsets come to {group_bytes} bytes, the limit is {GROUP_BYTES_MAX}")
    if transaction_bytes > TRANSACTION_BYTES_MAX:
        raise CommitTooLarge(
            f"the offsets of the transaction come to {transaction_bytes} bytes, the limit is {TRANSACTION_BYTES_MAX}"
        )

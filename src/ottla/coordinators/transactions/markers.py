"""What the transaction coordinator orders of others: a transaction's end in every partition that it has written to.

Given when the decision is durable, and again whenever the coordinator has been read back and the transaction has not
come to its end. Writing a marker twice does no harm: until all of them are written and `TransactionShard.completed`
has been told so, the producer can begin nothing new.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.control import MarkerType


class TopicPartition(NamedTuple):
    """A partition that belongs to a transaction. Of `__consumer_offsets` it stands for offsets of groups."""

    topic: str
    partition: int


class WriteMarkers(NamedTuple):
    """The order: end this producer's transaction in these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """The epoch that the markers carry: what comes later from an older one is refused by the partitions."""
    marker_type: MarkerType
    partitions: tuple[TopicPartition, ...]
    """Sorted. Empty where nothing was written: then it is completed at once."""

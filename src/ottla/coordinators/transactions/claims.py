"""What requests say of transactions: which shard an id belongs to, and who claims to write where."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinators.transactions.markers import TopicPartition

ApiVersion = int
ProducerId = int
SLOT_SEPARATOR = "/"


class Claim(NamedTuple):
    """A producer says that its transaction writes to these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def shard_key(transactional_id: str) -> str:
    """What of an id decides about its shard: the part before the slot, so that all slots of a query are together."""
    return transactional_id.partition(SLOT_SEPARATOR)[0] or transactional_id

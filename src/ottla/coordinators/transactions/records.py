"""The records of `__transaction_state`, as Kafka writes them, and one kind of Ottla's own.

A key is its type in two bytes and its fields, a value is its version in two bytes and its fields. What Ottla adds
stands in tagged fields and in a type of key that Kafka's tools pass over. What the records mean is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, ClassVar

from ottla.coordinators.outcome import CoordinatorRecord
from ottla.coordinators.record_bytes import RecordKinds
from ottla.protocol.schema import Bool, Int8, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions

KEY = Versions(0, 0)
"""A key's version is its type; its fields never change."""
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1


class TransactionStatus(IntEnum):
    """What a transactional id is in the middle of; the numbers stand in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def told(self) -> str:
        """The name that tools show."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class TransactionLogKey(Message, frozen=True):
    """A transactional id."""

    VERSIONS: ClassVar[Versions] = KEY

    transactional_id: String = ""


class PartitionsSchema(Message, frozen=True):
    """Partitions of one topic that the transaction writes to."""

    topic: String = ""
    partition_ids: Sequence[Int32] = ()


class TransactionLogValue(Message, frozen=True):
    """All that is known of a transactional id."""

    VERSIONS: ClassVar[Versions] = Versions(0, 1, flexible_since=1)

    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, Since(1, tag=0, ignorable=True)] = NO_PRODUCER_ID
    next_producer_id: Annotated[Int64, Since(1, tag=1, ignorable=True)] = NO_PRODUCER_ID
    """The id that the producer was told to go on with, while the last transaction of the old one is being ended."""
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, Since(1, tag=3, ignorable=True)] = NO_PRODUCER_EPOCH
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Sequence[PartitionsSchema] | None = ()
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, Since(1, tag=2, ignorable=True)] = 0
    last_producer_epoch: Annotated[Int16, Since(1, tag=10_000, ignorable=True)] = NO_PRODUCER_EPOCH
    """The epoch that the producer had before; it may ask again with that one, when the answer was lost."""
    is_fenced: Annotated[Bool, Since(1, tag=10_001, ignorable=True)] = False
    """Whether the coordinator has ended the last transaction of its own accord: whoever had it open may not go on."""


class CommittedBatchesKey(Message, frozen=True):
    """A query whose batches are committed together; Ottla's own."""

    VERSIONS: ClassVar[Versions] = KEY

    query_id: String = ""


class CommittedBatchesValue(Message, frozen=True):
    """The batches of the query that were committed last, oldest first."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    batch_ids: Sequence[Int64] = ()
    last_update_timestamp_ms: Int64 = 0


RECORDS: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {
        0: (TransactionLogKey, TransactionLogValue),
        10_000: (CommittedBatchesKey, CommittedBatchesValue),
    }
)
"""The classes of each type of record."""

_KINDS = RecordKinds("__transaction_state", RECORDS)


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The bytes of a record."""
    return _KINDS.encode_key(record.key), None if record.value is None else _KINDS.encode_value(record.value)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record of these bytes, or None if it is of a type that is not known. Raises ProtocolError for others."""
    return _KINDS.decode(key, value)

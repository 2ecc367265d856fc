"""One transactional id, and what each step of its life makes of it.

Pure: a recorded value in, the next one out. Who may take a step is decided in `producers`, `ending` and `together`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ottla.coordinators.transactions.markers import TopicPartition, WriteMarkers
from ottla.coordinators.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PartitionsSchema,
    TransactionLogValue,
    TransactionStatus,
)
from ottla.records.control import MarkerType

EPOCH_MAX = 2**15 - 1
VERSION_1 = 0
"""How records say that a client does not know the second version of transactions."""
VERSION_2 = 2

_PREPARED = {
    TransactionStatus.PREPARE_COMMIT: MarkerType.COMMIT,
    TransactionStatus.PREPARE_ABORT: MarkerType.ABORT,
}
_ENDING = {
    MarkerType.COMMIT: TransactionStatus.PREPARE_COMMIT,
    MarkerType.ABORT: TransactionStatus.PREPARE_ABORT,
}
_ENDED = {
    MarkerType.COMMIT: TransactionStatus.COMPLETE_COMMIT,
    MarkerType.ABORT: TransactionStatus.COMPLETE_ABORT,
}


def is_exhausted(epoch: int) -> bool:
    """Whether a producer of this epoch must go on under another id: only its last marker may carry the next one."""
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """What is recorded of an id, with its partitions as a set."""

    __slots__ = ("partitions", "status", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionLogValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        self.status = TransactionStatus(value.transaction_status)
        self.partitions = frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        )

    @property
    def ending(self) -> MarkerType | None:
        """How it is being ended, if the decision has been made and the markers have not all been written."""
        return _PREPARED.get(self.status)

    @property
    def identity(self) -> tuple[int, int]:
        """The producer id and the epoch that the producer has been told to use."""
        value = self.value
        if value.next_producer_id != NO_PRODUCER_ID:
            return value.next_producer_id, value.next_producer_epoch
        return value.producer_id, value.producer_epoch

    @property
    def markers(self) -> WriteMarkers:
        """The order that must follow the decision to end it."""
        marker_type = self.ending
        assert marker_type is not None, "only what has been decided is carried out"
        value = self.value
        return WriteMarkers(
            self.transactional_id,
            value.producer_id,
            value.producer_epoch,
            marker_type,
            tuple(sorted(self.partitions)),
        )

    def is_next_of(self, *, producer_id: int, producer_epoch: int) -> bool:
        """Whether its producer had this identity, the last under another id, right before the present one.

        Only the first epoch of an id comes right after: later, whoever had the other id has been fenced.
        """
        is_first = self.value.producer_epoch == 0
        return is_first and producer_id == self.value.previous_producer_id and is_exhausted(producer_epoch)

    # --- the next value ------------------------------------------------------------------------------

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> TransactionLogValue:
        """Begun, or gone on with, in these partitions too."""
        is_begun = self.status is TransactionStatus.ONGOING
        return replace(
            self.value,
            transaction_status=TransactionStatus.ONGOING,
            transaction_partitions=_grouped(self.partitions.union(partitions)),
            transaction_start_timestamp_ms=self.value.transaction_start_timestamp_ms if is_begun else now_ms,
            transaction_last_update_timestamp_ms=now_ms,
            # It has used its present epoch, so it cannot have missed the answer that told it.
            last_producer_epoch=NO_PRODUCER_EPOCH,
            is_fenced=False,
        )

    def ended(
        self, marker_type: MarkerType, now_ms: int, *, bumped: bool, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionLogValue:
        """Decided by its producer. With the second version the epoch goes up; where it cannot, another id follows."""
        value = self.value
        prepared = replace(
            value,
            transaction_status=_ENDING[marker_type],
            transaction_last_update_timestamp_ms=now_ms,
            is_fenced=False,
        )
        if not bumped:
            return replace(prepared, client_transaction_version=VERSION_1)
        is_last = is_exhausted(value.producer_epoch) and next_producer_id != NO_PRODUCER_ID
        return replace(
            prepared,
            producer_epoch=min(value.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=value.producer_epoch,
            next_producer_id=next_producer_id if is_last else NO_PRODUCER_ID,
            next_producer_epoch=0 if is_last else NO_PRODUCER_EPOCH,
            client_transaction_version=VERSION_2,
        )

    def aborted_by_coordinator(self, now_ms: int, *, last_producer_epoch: int, fenced: bool) -> TransactionLogValue:
        """Decided over its producer's head, which must not go on with the old epoch."""
        value = self.value
        return replace(
            value,
            transaction_status=TransactionStatus.PREPARE_ABORT,
            transaction_last_update_timestamp_ms=now_ms,
            producer_epoch=min(value.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=last_producer_epoch,
            is_fenced=fenced,
        )

    def completed(self, now_ms: int) -> TransactionLogValue:
        """All markers stand in their partitions."""
        value = self.value
        marker_type = self.ending
        assert marker_type is not None, "only what is being ended can come to its end"
        complete = replace(
            value,
            transaction_status=_ENDED[marker_type],
            transaction_partitions=(),
            transaction_last_update_timestamp_ms=now_ms,
        )
        if value.next_producer_id == NO_PRODUCER_ID:
            return complete
        return replace(
            complete,
            producer_id=value.next_producer_id,
            producer_epoch=value.next_producer_epoch,
            previous_producer_id=value.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def taken(
        self, now_ms: int, *, timeout_ms: int, producer_id: int, producer_epoch: int, last_producer_epoch: int
    ) -> TransactionLogValue:
        """Taken by a producer that begins, or begins again."""
        value = self.value
        is_same = producer_id == value.producer_id
        return replace(
            value,
            producer_id=producer_id,
            previous_producer_id=value.previous_producer_id if is_same else value.producer_id,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_producer_epoch,
            transaction_timeout_ms=timeout_ms,
            transaction_status=TransactionStatus.EMPTY,
            transaction_partitions=(),
            transaction_start_timestamp_ms=NO_TIMESTAMP,
            transaction_last_update_timestamp_ms=now_ms,
            is_fenced=False,
        )


def first_value(now_ms: int, *, timeout_ms: int, producer_id: int) -> TransactionLogValue:
    """An id that nobody has used."""
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_timeout_ms=timeout_ms,
        transaction_status=TransactionStatus.EMPTY,
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=NO_TIMESTAMP,
    )


def _grouped(partitions: Iterable[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(PartitionsSchema(topic=topic, partition_ids=tuple(found)) for topic, found in by_topic.items())

"""A copier by kafka-python. It speaks transactions version 1, and tells who it is in its group."""

from __future__ import annotations

import warnings
from typing import Any

from tests.clients.groups.members import Wish
from tests.clients.transactions.copy_copier import ANSWER_SECONDS_MAX, POLL_MS, Errand, Notes, Number

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

Found = dict[Any, list[Any]]
HEARTBEATS_IN_A_SESSION = 6


def run(errand: Errand, notes: Notes, wish: Wish) -> None:
    connection = {
        "bootstrap_servers": errand.address,
        "client_id": errand.name,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 200,
        "retry_backoff_ms": 20,
    }
    consumer = KafkaConsumer(
        **connection,
        group_id=errand.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=errand.session_ms,
        heartbeat_interval_ms=errand.session_ms // HEARTBEATS_IN_A_SESSION,
        max_poll_records=errand.transaction_records_max,
        fetch_max_wait_ms=100,
        metadata_max_age_ms=500,
    )
    producer = KafkaProducer(
        **connection,
        transactional_id=errand.transactional_id,
        transaction_timeout_ms=ANSWER_SECONDS_MAX * 1000,
        linger_ms=1,
        batch_size=512,
        max_block_ms=ANSWER_SECONDS_MAX * 1000,
    )
    producer.init_transactions()
    consumer.subscribe([errand.source])
    notes.started()
    copier = _Copier(errand, notes, consumer, producer)
    while wish.is_to_stay:
        try:
            found: Found = consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            notes.trouble(repr(error))
            continue
        if found and not copier.copy(found):
            return
    notes.left()
    consumer.close()
    producer.close(timeout=1)


class _Copier:
    def __init__(self, errand: Errand, notes: Notes, consumer: Any, producer: Any) -> None:
        self._errand = errand
        self._notes = notes
        self._consumer = consumer
        self._producer = producer

    def copy(self, found: Found) -> bool:
        """Whether the client can go on."""
        number = self._notes.begin(sum(map(len, found.values())))
        try:
            self._producer.begin_transaction()
            self._send(number, found)
            offsets = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in found.items()}
            self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
            if self._notes.is_to_abort():
                return self._abort(number, found, "on purpose")
            self._producer.commit_transaction()
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            self._notes.fenced(repr(error))
            self._notes.fatal(repr(error))
            return False
        except KafkaError as error:
            return self._abort(number, found, repr(error))
        self._notes.committed(number)
        return True

    def _send(self, number: Number, found: Found) -> None:
        for records in found.values():
            for record in records:
                self._producer.send(
                    self._errand.target,
                    value=record.value,
                    key=record.key,
                    headers=number.headers,
                    partition=record.partition,
                )
        at = number.receipt_partition(self._errand.partitions)
        self._producer.send(self._errand.receipts, value=number.receipt, partition=at)

    def _abort(self, number: Number, found: Found, why: str) -> bool:
        try:
            self._producer.abort_transaction()
        except KafkaError as error:
            self._notes.fatal(f"abort after {why}: {error!r}")
            return False
        self._notes.aborted(number, why)
        for place, records in found.items():
            if place in self._consumer.assignment():
                self._consumer.seek(TopicPartition(place.topic, place.partition), records[0].offset)
        return True

"""A copier by confluent-kafka, in either protocol of groups. It speaks transactions version 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.groups.members import Wish
from tests.clients.transactions.copy_copier import ANSWER_SECONDS_MAX, POLL_MS, Errand, Notes, Number

Partitions = list[TopicPartition]
MORE_SECONDS = 0.02
"""How long a copier that has something waits for more."""


def run_classic(errand: Errand, notes: Notes, wish: Wish) -> None:
    _Copier(errand, notes, {"partition.assignment.strategy": "range", "session.timeout.ms": errand.session_ms}).live(
        wish
    )


def run_consumer(errand: Errand, notes: Notes, wish: Wish) -> None:
    _Copier(errand, notes, {"group.protocol": "consumer"}).live(wish)


class _CannotGoOn(Exception):
    """The client is of no more use."""


class _Copier:
    def __init__(self, errand: Errand, notes: Notes, settings: dict[str, Any]) -> None:
        connection = {
            "bootstrap.servers": errand.address,
            "client.id": errand.name,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            # Where it forgets its brokers when all are gone, as it does by default, librdkafka 2.16 goes on to send the
            # offsets of transactions to a group's coordinator that it has given up on, and waits for ever.
            "metadata.recovery.strategy": "none",
        }
        self._errand = errand
        self._notes = notes
        self._batch: list[Message] = []
        self._consumer = Consumer(
            {
                **connection,
                **settings,
                "group.id": errand.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self._producer = Producer(
            {
                **connection,
                "transactional.id": errand.transactional_id,
                "transaction.timeout.ms": ANSWER_SECONDS_MAX * 1000,
                "linger.ms": 1,
                # Several requests for each transaction, so that a kill finds it half written.
                "batch.num.messages": 5,
            }
        )

    def live(self, wish: Wish) -> None:
        try:
            self._patiently(self._producer.init_transactions)
            self._consumer.subscribe([self._errand.source], on_revoke=self._forget, on_lost=self._forget)
            self._notes.started()
            while wish.is_to_stay:
                self._gather()
                if self._batch:
                    self._copy()
                    self._batch.clear()
        except _CannotGoOn as reason:
            self._notes.fatal(str(reason))
            return
        self._notes.left()
        self._consumer.close()

    def _gather(self) -> None:
        """Some records of partitions that are ours now."""
        while len(self._batch) < self._errand.transaction_records_max:
            message = self._consumer.poll(MORE_SECONDS if self._batch else POLL_MS / 1000)
            if message is None:
                return
            error = message.error()
            if error is None:
                self._batch.append(message)
            elif error.fatal():
                raise _CannotGoOn(error.str())
            else:
                self._notes.trouble(error.name())

    def _forget(self, consumer: Consumer, partitions: Partitions) -> None:
        """Called from within poll: whoever gets these partitions copies what is not committed."""
        gone = {each.partition for each in partitions}
        self._batch = [message for message in self._batch if message.partition() not in gone]

    def _copy(self) -> None:
        number = self._notes.begin(len(self._batch))
        try:
            self._producer.begin_transaction()
            self._send(number)
            self._patiently(self._send_offsets)
            if self._notes.is_to_abort():
                self._abort(number, "on purpose")
                return
            self._patiently(self._producer.commit_transaction)
        except KafkaException as error:
            complaint: KafkaError = error.args[0]
            if not complaint.txn_requires_abort():
                if complaint.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                    self._notes.fenced(complaint.str())
                raise _CannotGoOn(complaint.str()) from error
            self._abort(number, complaint.name())
        else:
            self._notes.committed(number)

    def _send(self, number: Number) -> None:
        for message in self._batch:
            partition, value = message.partition(), message.value()
            assert partition is not None
            self._producer.produce(
                self._errand.target,
                value,
                message.key(),
                partition=partition,
                headers=number.headers,  # type: ignore[arg-type]  # It takes pairs, and its types say otherwise.
            )
            self._producer.poll(0)
        at = number.receipt_partition(self._errand.partitions)
        self._producer.produce(self._errand.receipts, number.receipt, partition=at)

    def _send_offsets(self, seconds: float) -> None:
        offsets = {message.partition(): message.offset() for message in self._batch}
        self._producer.send_offsets_to_transaction(
            [TopicPartition(self._errand.source, at, offset + 1) for at, offset in offsets.items()],  # type: ignore[arg-type,operator]
            self._consumer.consumer_group_metadata(),
            seconds,
        )

    def _abort(self, number: Number, why: str) -> None:
        try:
            self._patiently(self._producer.abort_transaction)
        except KafkaException as error:
            raise _CannotGoOn(f"abort: {error.args[0].str()}") from error
        self._notes.aborted(number, why)
        first: dict[int, int] = {}
        for message in self._batch:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            first.setdefault(partition, offset)
        for partition, offset in first.items():
            self._consumer.seek(TopicPartition(self._errand.source, partition, offset))

    def _patiently(self, call: Callable[[float], None]) -> None:
        """Call again as long as the client says that this helps."""
        while True:
            try:
                call(ANSWER_SECONDS_MAX)
            except KafkaException as error:
                complaint: KafkaError = error.args[0]
                if not complaint.retriable() or complaint.txn_requires_abort():
                    raise
                self._notes.trouble(complaint.name())
            else:
                return

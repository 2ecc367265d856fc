"""A group member by confluent-kafka, in either protocol."""

from __future__ import annotations

import struct

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.clients.groups.members import POLL_MS, Notes, Place, Spec, Wish

Partitions = list[TopicPartition]

_GENERATION_AT = len("CGMDv2:")


def run_range(spec: Spec, notes: Notes, wish: Wish) -> None:
    _run(spec, notes, wish, _classic(spec, "range"))


def run_cooperative(spec: Spec, notes: Notes, wish: Wish) -> None:
    _run(spec, notes, wish, _classic(spec, "cooperative-sticky"))


def run_consumer(spec: Spec, notes: Notes, wish: Wish) -> None:
    # The broker says how long a session lasts in this protocol.
    _run(spec, notes, wish, {"group.protocol": "consumer"})


def _classic(spec: Spec, assignor: str) -> dict[str, str | int]:
    return {
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": spec.session_ms,
        "heartbeat.interval.ms": spec.heartbeat_ms,
    }


def _run(spec: Spec, notes: Notes, wish: Wish, settings: dict[str, str | int]) -> None:
    common: dict[str, str | int | bool] = {
        "bootstrap.servers": spec.address,
        "client.id": spec.name,
        "group.id": spec.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "fetch.wait.max.ms": 100,
    }
    if spec.instance is not None:
        common["group.instance.id"] = spec.instance
    _Member(Consumer({**common, **settings}), notes).live(spec, wish)


class _Member:
    def __init__(self, consumer: Consumer, notes: Notes) -> None:
        self._consumer = consumer
        self._notes = notes
        self._is_leaving = False

    def live(self, spec: Spec, wish: Wish) -> None:
        topics = list(spec.topics) if spec.pattern is None else [spec.pattern]
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._notes.started()
        while wish.is_to_stay:
            if not self._step():
                return
        self._commit(dict(self._notes.uncommitted))
        self._notes.left()
        self._is_leaving = True
        self._consumer.close()

    def _step(self) -> bool:
        """False when the client cannot go on."""
        try:
            message = self._consumer.poll(POLL_MS / 1000)
        except KafkaException as error:
            return self._is_bearable(error.args[0])
        if message is not None:
            complaint = message.error()
            if complaint is not None:
                return self._is_bearable(complaint)
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            self._notes.processed((topic, partition), offset, value)
        if self._notes.is_commit_due(is_idle=message is None):
            self._commit(dict(self._notes.uncommitted))
        return True

    def _is_bearable(self, error: KafkaError) -> bool:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._notes.fatal(error.str())
            return False
        self._notes.trouble(error.name())
        return True

    def _commit(self, offsets: dict[Place, int]) -> None:
        if not offsets:
            return
        asked = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            done = self._consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            self._notes.trouble(f"commit: {error.args[0].name()}")
            return
        assert done is not None
        acknowledged = {(each.topic, each.partition): each.offset for each in done if each.error is None}
        for each in done:
            if each.error is not None:
                self._notes.trouble(f"commit of {each.topic}-{each.partition}: {each.error.name()}")
        if acknowledged:
            self._notes.committed(acknowledged)

    # --- rebalances ------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: Partitions) -> None:
        if self._is_leaving:
            return
        self._notes.assigned(_places(partitions), self._generation())

    def _on_revoke(self, consumer: Consumer, partitions: Partitions) -> None:
        if self._is_leaving:
            # Everything has been said, and a client that is being closed answers no more questions.
            return
        places = _places(partitions)
        self._commit({place: offset for place, offset in self._notes.uncommitted.items() if place in places})
        self._notes.revoked(places, self._generation())

    def _on_lost(self, consumer: Consumer, partitions: Partitions) -> None:
        if self._is_leaving:
            return
        self._notes.lost(_places(partitions))

    def _generation(self) -> int:
        """The generation, or in the new protocol the member's epoch; the client tells it in bytes only."""
        told = self._consumer.consumer_group_metadata()
        assert isinstance(told, bytes)
        (generation,) = struct.unpack_from("=i", told, _GENERATION_AT)
        return int(generation)


def _places(partitions: Partitions) -> set[Place]:
    return {(each.topic, each.partition) for each in partitions}

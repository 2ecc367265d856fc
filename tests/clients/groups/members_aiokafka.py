"""A group member by aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from tests.clients.groups.members import COMMIT_RECORDS_MAX, POLL_MS, Notes, Place, Spec, Wish


def run_range(spec: Spec, notes: Notes, wish: Wish) -> None:
    asyncio.run(_run(spec, notes, wish, RangePartitionAssignor))


def run_roundrobin(spec: Spec, notes: Notes, wish: Wish) -> None:
    asyncio.run(_run(spec, notes, wish, RoundRobinPartitionAssignor))


async def _run(spec: Spec, notes: Notes, wish: Wish, assignor: object) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=spec.address,
        client_id=spec.name,
        group_id=spec.group,
        group_instance_id=spec.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=spec.session_ms,
        heartbeat_interval_ms=spec.heartbeat_ms,
        max_poll_records=COMMIT_RECORDS_MAX,
        partition_assignment_strategy=(assignor,),
        metadata_max_age_ms=500,
        fetch_max_wait_ms=100,
    )
    listener = _Listener(consumer, notes)
    if spec.pattern is None:
        consumer.subscribe(topics=spec.topics, listener=listener)
    else:
        consumer.subscribe(pattern=spec.pattern, listener=listener)
    await consumer.start()
    notes.started()
    while wish.is_to_stay:
        await _step(consumer, notes)
    await _commit(consumer, notes, dict(notes.uncommitted))
    notes.left()
    await consumer.stop()


async def _step(consumer: Any, notes: Notes) -> None:
    try:
        found = await consumer.getmany(timeout_ms=POLL_MS)
    except KafkaError as error:
        notes.trouble(repr(error))
        return
    for records in found.values():
        for record in records:
            # A rebalance may come between the fetching and us; then the record is the next owner's.
            if (record.topic, record.partition) in notes.held:
                notes.processed((record.topic, record.partition), record.offset, record.value)
    if notes.is_commit_due(is_idle=not found):
        await _commit(consumer, notes, dict(notes.uncommitted))


async def _commit(consumer: Any, notes: Notes, offsets: dict[Place, int]) -> None:
    if not offsets:
        return
    try:
        await consumer.commit({TopicPartition(*place): offset for place, offset in offsets.items()})
    except KafkaError as error:
        notes.trouble(f"commit: {error!r}")
    else:
        notes.committed(offsets)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # It ships no types.
    def __init__(self, consumer: Any, notes: Notes) -> None:
        self._consumer = consumer
        self._notes = notes

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._notes.assigned(_places(assigned), self._generation())

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        places = _places(revoked)
        offsets = {place: offset for place, offset in self._notes.uncommitted.items() if place in places}
        await _commit(self._consumer, self._notes, offsets)
        self._notes.revoked(places, self._generation())

    def _generation(self) -> int:
        """Its public face does not tell."""
        return int(self._consumer._coordinator.generation)


def _places(partitions: Iterable[Any]) -> set[Place]:
    return {(each.topic, each.partition) for each in partitions}

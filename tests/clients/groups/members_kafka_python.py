"""A group member by kafka-python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import FencedInstanceIdError, KafkaError

from tests.clients.groups.members import COMMIT_RECORDS_MAX, POLL_MS, Notes, Place, Spec, Wish

ANSWER_MS_MAX = 5_000


def run_range(spec: Spec, notes: Notes, wish: Wish) -> None:
    _run(spec, notes, wish, RangePartitionAssignor)


def run_cooperative(spec: Spec, notes: Notes, wish: Wish) -> None:
    _run(spec, notes, wish, CooperativeStickyAssignor)


def _run(spec: Spec, notes: Notes, wish: Wish, assignor: object) -> None:
    consumer = KafkaConsumer(
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
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        fetch_max_wait_ms=100,
        metrics_enabled=False,
    )
    _Member(consumer, notes).live(spec, wish)


class _Member(ConsumerRebalanceListener):  # type: ignore[misc]  # It ships no types.
    def __init__(self, consumer: Any, notes: Notes) -> None:
        self._consumer = consumer
        self._notes = notes
        self._unplaced: set[Any] = set()
        """Partitions that were given to it, and that it has not gone to the committed offset of."""

    def live(self, spec: Spec, wish: Wish) -> None:
        if spec.pattern is None:
            self._consumer.subscribe(topics=spec.topics, listener=self)
        else:
            self._consumer.subscribe(pattern=spec.pattern, listener=self)
        self._notes.started()
        while wish.is_to_stay:
            try:
                self._step()
            except FencedInstanceIdError as error:
                self._notes.fatal(repr(error))
                return
            except KafkaError as error:
                self._notes.trouble(repr(error))
        self._commit()
        self._notes.left()
        self._consumer.close()

    def _step(self) -> None:
        found = self._consumer.poll(timeout_ms=POLL_MS)
        self._wake_up()
        for partition, records in found.items():
            for record in () if partition in self._unplaced else records:
                self._notes.processed((record.topic, record.partition), record.offset, record.value)
        self._place()
        if self._notes.is_commit_due(is_idle=not found):
            self._commit()

    def _place(self) -> None:
        """Begin where the group has committed.

        By itself this client goes on where it was in a partition that it had before the rebalance too, also when
        another member had it meanwhile; and then nobody would commit what it had not committed yet.
        """
        for partition in tuple(self._unplaced):
            offset = self._consumer.committed(partition, timeout_ms=ANSWER_MS_MAX)
            if partition not in self._unplaced:
                continue  # It was taken away while we asked.
            if offset is None:
                self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, offset)
            self._unplaced.discard(partition)

    def _wake_up(self) -> None:
        """Have a member go on that has fallen asleep: it has joined and synced, and does not look at the answer.

        In kafka-python 3.0.12 this comes to a leader that joins again for new partitions, when its call of `poll`
        ends before the others have joined too.
        """
        coordinator = self._consumer._coordinator
        joining = coordinator._join_task
        if joining is not None and joining.is_done and not coordinator.need_rejoin():
            self._notes.trouble("the client forgot that it joined")
            coordinator.request_rejoin()

    def _commit(self) -> None:
        offsets = dict(self._notes.uncommitted)
        if not offsets:
            return
        asked = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        try:
            self._consumer.commit(asked, timeout_ms=ANSWER_MS_MAX)
        except KafkaError as error:
            self._notes.trouble(f"commit: {error!r}")
        else:
            self._notes.committed(offsets)

    # --- rebalances, which are told in the middle of a poll ----------------------------------------------

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._unplaced.update(assigned)
        self._notes.assigned(_places(assigned), self._generation())

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        # This client does not let a listener commit; what is not committed yet, the next owner processes again.
        self._unplaced.difference_update(revoked)
        self._notes.revoked(_places(revoked), self._generation())

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._unplaced.difference_update(lost)
        self._notes.lost(_places(lost))

    def _generation(self) -> int:
        return int(self._consumer.group_metadata().generation_id)


def _places(partitions: Iterable[Any]) -> set[Place]:
    return {(each.topic, each.partition) for each in partitions}

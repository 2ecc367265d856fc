"""A copier by aiokafka. It speaks transactions version 1, and cannot tell who it is in its group.

So it does as copiers did before they could: one transactional id for each partition of the source. Whoever gets a
partition takes over its id, which shuts out the owner before, and only then asks what is committed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from tests.clients.groups.members import Wish
from tests.clients.transactions.copy_copier import ANSWER_SECONDS_MAX, POLL_MS, Errand, Notes, Number

HEARTBEATS_IN_A_SESSION = 6
STOP_SECONDS_MAX = 10


def run(errand: Errand, notes: Notes, wish: Wish) -> None:
    asyncio.run(_run(errand, notes, wish))


async def _run(errand: Errand, notes: Notes, wish: Wish) -> None:
    # Its clients are made where a loop runs.
    await _Copier(errand, notes).live(wish)


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # It ships no types.
    """They happen at any time, also within a transaction."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: object) -> None:
        self.count += 1

    def on_partitions_assigned(self, assigned: object) -> None:
        self.count += 1


class _Copier:
    def __init__(self, errand: Errand, notes: Notes) -> None:
        self._errand = errand
        self._notes = notes
        self._producers: dict[Any, AIOKafkaProducer] = {}
        """By partition of the source."""
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=errand.address,
            client_id=errand.name,
            group_id=errand.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=errand.session_ms,
            heartbeat_interval_ms=errand.session_ms // HEARTBEATS_IN_A_SESSION,
            max_poll_records=errand.transaction_records_max,
            fetch_max_wait_ms=100,
        )
        self._rebalances = _Rebalances()
        self._rebalances_seen = 0
        self._consumer.subscribe([errand.source], listener=self._rebalances)

    async def live(self, wish: Wish) -> None:
        await self._consumer.start()
        self._notes.started()
        while wish.is_to_stay:
            await self._look_after_producers()
            try:
                found = await self._consumer.getmany(timeout_ms=POLL_MS)
            except KafkaError as error:
                # Its tasks in the background end for good at what they do not expect.
                self._notes.fatal(repr(error))
                return
            for place, records in found.items():
                if self._rebalances.count == self._rebalances_seen and place in self._producers:
                    await self._see_to(place, records)
        self._notes.left()
        for producer in self._producers.values():
            await producer.stop()
        await self._consumer.stop()

    async def _look_after_producers(self) -> None:
        """One for each partition that is ours.

        After a rebalance all are made anew, also those of partitions that came back: where the client goes on with them
        was decided while a transaction of ours may have been open.
        """
        if self._rebalances.count != self._rebalances_seen:
            self._rebalances_seen = self._rebalances.count
            for place in list(self._producers):
                await self._drop(place)
        for place in self._consumer.assignment() - set(self._producers):
            try:
                await self._take_over(place)
            except KafkaError as error:
                self._notes.trouble(f"taking over {place.partition}: {error!r}")

    async def _drop(self, place: Any) -> None:
        producer = self._producers.pop(place)
        with suppress(KafkaError, TimeoutError):
            await asyncio.wait_for(producer.stop(), STOP_SECONDS_MAX)

    async def _see_to(self, place: Any, records: list[Any]) -> None:
        producer = self._producers[place]
        number = self._notes.begin(len(records))
        try:
            is_committed = await self._copy(producer, number, place, records)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            self._notes.fenced(repr(error))
            await self._drop(place)
        except KafkaError as error:
            # Taking over one's own id is the way out of every trouble: what is open is aborted.
            self._notes.trouble(repr(error))
            await self._drop(place)
        else:
            if is_committed:
                self._notes.committed(number)
            else:
                self._notes.aborted(number, "on purpose")
                self._rewind(place, records[0].offset)

    async def _take_over(self, place: Any) -> None:
        """Shut out the owner before; then go to what is committed, which nobody else can move any more."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._errand.address,
            client_id=self._errand.name,
            transactional_id=f"{self._errand.group}.{place.partition}",
            transaction_timeout_ms=ANSWER_SECONDS_MAX * 1000,
            max_batch_size=512,
            retry_backoff_ms=20,
        )
        try:
            await producer.start()
            offset = await self._consumer.committed(place)
        except BaseException:
            await producer.stop()
            raise
        self._producers[place] = producer
        self._rewind(place, offset or 0)

    def _rewind(self, place: Any, offset: int) -> None:
        # It may have been given to somebody else meanwhile.
        if place in self._consumer.assignment():
            self._consumer.seek(place, offset)

    async def _copy(self, producer: Any, number: Number, place: Any, records: list[Any]) -> bool:
        """Whether it was committed; else it was aborted on purpose."""
        await producer.begin_transaction()
        for record in records:
            await producer.send(
                self._errand.target,
                value=record.value,
                key=record.key,
                headers=number.headers,
                partition=record.partition,
            )
        at = number.receipt_partition(self._errand.partitions)
        await producer.send(self._errand.receipts, value=number.receipt, partition=at)
        await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, self._errand.group)
        if self._notes.is_to_abort():
            await producer.abort_transaction()
            return False
        await producer.commit_transaction()
        return True

"""The admin's part that looks at transactions: list, describe, abort, and commit several as one.

Coroutines that await the transport alone; see `transport`. Each transactional id is asked for at its own coordinator, a
partition's producers at its leader; what may pass is tried again for one request's time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.coordinator import TRANSACTION_KEY, Coordinator
from ottla.client.errors import CommitUncertain, UnsupportedVersion
from ottla.client.errors_by_code import error_for
from ottla.client.insistence import Insisting
from ottla.client.offsets import topic_with
from ottla.client.settings import Address
from ottla.client.subscriptions import by_topic
from ottla.client.transaction_requests import describe, init_producer
from ottla.client.transactions import leaves_doubt
from ottla.client.values import OpenTransaction, TopicPartition, partitions_named
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, OttlaError, ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import commit_together as wire
from ottla.protocol.messages import describe_transactions
from ottla.protocol.messages.commit_together import CommitTogetherRequest, CommitTogetherResponse
from ottla.protocol.messages.describe_commit import DescribeCommitRequest, DescribeCommitResponse
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest, KeepTransactionsResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
"""As Kafka calls them."""
DURATION_SINCE = 1
PATTERN_SINCE = 2
NO_FILTER = -1


class TransactionListing(NamedTuple):
    """A transactional id, and how its last transaction stands."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    """The broker that keeps it."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """All that a coordinator knows of a transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """When the transaction that is open began; None: none is."""
    partitions: tuple[TopicPartition, ...]
    """What is part of it; `__consumer_offsets` stands for positions of groups."""


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer as a partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """Of the coordinator that ended its last transaction here; -1: none has."""
    open_since_offset: int | None
    """Where its open transaction begins in this partition; None: none is open."""


class AsyncTransactionAdmin(Insisting):
    """Looks at transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids of the cluster, or those that fit: `pattern` has to match the whole id."""
        request = ListTransactionsRequest(
            state_filters=[_state(name) for name in states],
            producer_id_filters=list(producer_ids),
            duration_filter=NO_FILTER if older_than_ms is None else older_than_ms,
            transactional_id_pattern=pattern,
        )
        found: dict[str, TransactionListing] = {}

        async def attempt() -> None:
            await self._cluster.refresh(())
            for node, address in list(self._cluster.topology.nodes.items()):
                response = await self._list_at(address, request)
                for each in response.transaction_states:
                    found[each.transactional_id] = TransactionListing(
                        each.transactional_id, each.transaction_state, each.producer_id, node
                    )

        await self._insist(attempt)
        return sorted(found.values())

    async def _list_at(self, address: Address, request: ListTransactionsRequest) -> ListTransactionsResponse:
        await self._cluster.meet(address)
        version = self._cluster.version(address, ApiKey.LIST_TRANSACTIONS)
        if request.duration_filter != NO_FILTER and version < DURATION_SINCE:
            raise UnsupportedVersion(f"{address} is too old to list transactions by their age")
        if request.transactional_id_pattern is not None and version < PATTERN_SINCE:
            raise UnsupportedVersion(f"{address} is too old to list transactions by a pattern")
        response = await self._cluster.ask(address, ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse)
        if response.error_code:
            raise error_for(response.error_code, about=f"{address}: ListTransactions")
        if response.unknown_state_filters:
            raise InvalidRequest(f"there is no state {', '.join(response.unknown_state_filters)}")
        return response

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        """What is known of a transactional id; None: nothing."""
        coordinator = self._coordinator_of(transactional_id)

        async def attempt() -> TransactionDescription | None:
            told = await describe(coordinator)
            return None if told is None else _described(told)

        return await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """The same for several."""
        return {each: await self.describe_transaction(each) for each in dict.fromkeys(transactional_ids)}

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The producers that each partition remembers."""
        wanted = partitions_named(partitions)
        found: dict[TopicPartition, list[ProducerDescription]] = {}

        async def attempt() -> None:
            by_leader: dict[Address, list[TopicPartition]] = {}
            for key in wanted:
                if key not in found:
                    by_leader.setdefault(await self._leader(key), []).append(key)
            for address, keys in by_leader.items():
                await self._producers_at(address, keys, found)

        await self._insist(attempt)
        return found

    async def _producers_at(
        self, address: Address, keys: list[TopicPartition], found: dict[TopicPartition, list[ProducerDescription]]
    ) -> None:
        topics = [TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(keys).items()]
        request = DescribeProducersRequest(topics=topics)
        response = await self._cluster.ask(address, ApiKey.DESCRIBE_PRODUCERS, request, DescribeProducersResponse)
        for topic in response.topics:
            for told in topic.partitions:
                if told.error_code:
                    self._cluster.mark_stale(topic.name)
                    about = f"{topic.name}-{told.partition_index}"
                    raise error_for(told.error_code, about=about, message=told.error_message)
                key = TopicPartition(topic.name, told.partition_index)
                found[key] = [_producer(each) for each in told.active_producers]
        if not found.keys() >= set(keys):
            raise ProtocolError(f"{address} did not answer for {sorted(set(keys) - found.keys())}")

    async def _leader(self, key: TopicPartition) -> Address:
        view = await topic_with(self._cluster, key, self._deadline_ms())
        address = self._cluster.topology.leader_address(view, key.partition)
        if address is None:
            self._cluster.mark_stale(key.topic)
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=f"{key.topic}-{key.partition}")
        return address

    # --- abort ---------------------------------------------------------------------------------------

    async def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Fence the producer of a transactional id, which aborts what it has open; returns how it stood before.

        Refused (TRANSACTIONAL_ID_NOT_FOUND) for an id that nothing is known of.
        """
        before = await self.describe_transaction(transactional_id)
        if before is None:
            raise error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, about=f"transactional id {transactional_id!r}")
        coordinator = self._coordinator_of(transactional_id)
        await coordinator.insist(
            # As whoever comes next will do: a new epoch, for which the transaction before has to be ended.
            lambda: init_producer(coordinator, timeout_ms=before.timeout_ms),
            deadline_ms=coordinator.deadline_ms(),
        )
        return before

    async def abort_hanging(self, topic: str, partition: int, *, start_offset: int) -> ProducerDescription:
        """Abort the transaction that is open since this offset in a partition; returns whose it was."""
        key = TopicPartition(topic, partition)
        producers = (await self.describe_producers([key]))[key]
        found = [each for each in producers if each.open_since_offset == start_offset]
        if not found:
            starts = sorted(each.open_since_offset for each in producers if each.open_since_offset is not None)
            known = f"those that are open begin at {starts}" if starts else "none is open"
            raise InvalidRequest(f"{topic}-{partition}: no open transaction begins at offset {start_offset}; {known}")
        await self._insist(lambda: self._write_abort(key, found[0]))
        return found[0]

    async def _write_abort(self, key: TopicPartition, producer: ProducerDescription) -> None:
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=key.topic, partition_indexes=[key.partition])],
            # A partition takes markers of this coordinator or of a later one.
            coordinator_epoch=max(0, producer.coordinator_epoch),
        )
        response = await self._cluster.ask(
            await self._leader(key),
            ApiKey.WRITE_TXN_MARKERS,
            WriteTxnMarkersRequest(markers=[marker]),
            WriteTxnMarkersResponse,
        )
        for result in response.markers:
            for topic in result.topics:
                for answer in topic.partitions:
                    if answer.error_code:
                        self._cluster.mark_stale(key.topic)
                        raise error_for(answer.error_code, about=f"{topic.name}-{answer.partition_index}")

    # --- several as one ------------------------------------------------------------------------------

    async def commit_together(self, query_id: str, batch_id: int, transactions: Iterable[OpenTransaction]) -> bool:
        """Commit transactions that were left open, all or none, once for each key of query and batch.

        True: the key had been committed before, and nothing was done. An API of Ottla's own.
        """
        coordinator = self._coordinator_of(query_id)
        request = CommitTogetherRequest(query_id=query_id, batch_id=batch_id, transactions=_named(transactions))
        in_doubt = False

        async def attempt() -> bool:
            nonlocal in_doubt
            # Somebody is there, so that whatever fails from here on may have arrived.
            await coordinator.version(ApiKey.COMMIT_TOGETHER)
            try:
                response = await coordinator.ask(ApiKey.COMMIT_TOGETHER, request, CommitTogetherResponse)
                if response.error_code:
                    about = f"batch {batch_id} of {query_id!r}"
                    raise error_for(response.error_code, about=about, message=response.error_message)
            except OttlaError as e:
                in_doubt = in_doubt or leaves_doubt(e)
                raise
            return response.is_repeated

        try:
            return await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())
        except OttlaError as e:
            if not in_doubt:
                raise
            raise CommitUncertain(
                f"batch {batch_id} of {query_id!r}: it is not known whether it was committed; last: {e}"
            ) from e

    async def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether a key has been committed. Only the latest ones of a query are remembered."""
        return (await self._describe_commit(query_id, batch_id)).is_committed

    async def last_committed(self, query_id: str) -> int | None:
        """The batch of a query that was committed last; None: none is remembered."""
        last = (await self._describe_commit(query_id, 0)).last_batch_id
        return None if last < 0 else last

    async def _describe_commit(self, query_id: str, batch_id: int) -> DescribeCommitResponse:
        coordinator = self._coordinator_of(query_id)
        request = DescribeCommitRequest(query_id=query_id, batch_id=batch_id)

        async def attempt() -> DescribeCommitResponse:
            response = await coordinator.ask(ApiKey.DESCRIBE_COMMIT, request, DescribeCommitResponse)
            if response.error_code:
                about = f"batch {batch_id} of {query_id!r}"
                raise error_for(response.error_code, about=about, message=response.error_message)
            return response

        return await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())

    async def keep_transactions(self, query_id: str, transactions: Iterable[OpenTransaction]) -> None:
        """Let the time of transactions that were left open begin anew; refused if one of them is not open any more."""
        coordinator = self._coordinator_of(query_id)
        request = KeepTransactionsRequest(query_id=query_id, transactions=_named(transactions))

        async def attempt() -> None:
            response = await coordinator.ask(ApiKey.KEEP_TRANSACTIONS, request, KeepTransactionsResponse)
            if response.error_code:
                raise error_for(response.error_code, about=coordinator.about, message=response.error_message)

        await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())

    def _coordinator_of(self, transactional_id: str) -> Coordinator:
        if not transactional_id:
            raise InvalidRequest("a transactional id, or a query's, is not empty")
        return Coordinator(self._cluster, transactional_id, key_type=TRANSACTION_KEY)


def _named(transactions: Iterable[OpenTransaction]) -> list[wire.OpenTransaction]:
    return [
        wire.OpenTransaction(transactional_id=name, producer_id=producer_id, producer_epoch=epoch)
        for name, producer_id, epoch in transactions
    ]


def _state(name: str) -> str:
    """A state as brokers call it, however it is written; one that we do not know is left to them to refuse."""
    return next((known for known in STATES if known.lower() == name.lower()), name)


def _described(told: describe_transactions.TransactionState) -> TransactionDescription:
    partitions = [TopicPartition(topic.topic, number) for topic in told.topics for number in topic.partitions]
    return TransactionDescription(
        told.transactional_id,
        told.transaction_state,
        told.producer_id,
        told.producer_epoch,
        told.transaction_timeout_ms,
        told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None,
        tuple(sorted(partitions)),
    )


def _producer(told: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        told.last_timestamp,
        told.coordinator_epoch,
        told.current_txn_start_offset if told.current_txn_start_offset >= 0 else None,
    )

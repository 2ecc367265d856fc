"""The blocking admin: the async one, run to its end on the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.admin import AsyncAdmin, ClusterDescription, ConfigEntry, TopicDescription
from ottla.client.cluster import Cluster
from ottla.client.group_admin import GroupDescription, GroupListing, PartitionLag
from ottla.client.offsets import OffsetFound
from ottla.client.settings import Isolation
from ottla.client.transaction_admin import ProducerDescription, TransactionDescription, TransactionListing
from ottla.client.transport import run_now
from ottla.client.values import Committed, OpenTransaction, TopicPartition

T = TypeVar("T")


class Admin:
    """Changes and describes what a cluster holds. Threads that share one take turns."""

    def __init__(self, cluster: Cluster) -> None:
        self._logic = AsyncAdmin(cluster)
        self._turn = threading.Lock()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._turn:
            return run_now(coroutine)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Create a topic and wait until it can be used; None means the broker's default."""
        return self._run(
            self._logic.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        )

    def get_or_create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """The topic as it is, or a new one as described."""
        return self._run(
            self._logic.get_or_create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        self._run(self._logic.delete_topic(name))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics."""
        return self._run(self._logic.list_topics(internal=internal))

    def describe_topic(self, name: str) -> TopicDescription | None:
        """A topic's partitions and who holds them; None when there is no such topic."""
        return self._run(self._logic.describe_topic(name))

    def partition_count(self, name: str) -> int | None:
        """How many partitions a topic has; None when there is no such topic."""
        return self._run(self._logic.partition_count(name))

    def add_partitions(self, name: str, *, new_total: int) -> None:
        """Bring a topic to this many partitions, which must be more than it has."""
        self._run(self._logic.add_partitions(name, new_total=new_total))

    def describe_configs(self, *, topic: str | None = None, broker: int | None = None) -> dict[str, ConfigEntry]:
        """Every config of a topic or a broker."""
        return self._run(self._logic.describe_configs(topic=topic, broker=broker))

    def alter_configs(
        self,
        *,
        topic: str | None = None,
        broker: int | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the word for it
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some configs of a topic or a broker and bring others back to their defaults; the rest stays."""
        self._run(
            self._logic.alter_configs(topic=topic, broker=broker, set=set, delete=delete, validate_only=validate_only)
        )

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Forget what is older than these offsets (-1: all there is); returns where each partition starts now."""
        return self._run(self._logic.delete_records(before))

    def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetFound | None]:
        """Offsets by time in ms or by `OffsetSpec`; None where no record is that young."""
        return self._run(self._logic.list_offsets(wanted, isolation=isolation))

    def cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return self._run(self._logic.cluster())

    # --- groups --------------------------------------------------------------------------------------

    def list_groups(self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()) -> list[GroupListing]:
        """All groups of the cluster, or those in these states and of these kinds."""
        return self._run(self._logic.list_groups(states=states, kinds=kinds))

    def describe_group(self, group: str) -> GroupDescription | None:
        """A group's state, members and what they read; None when there is no such group."""
        return self._run(self._logic.describe_group(group))

    def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription | None]:
        """The same for several."""
        return self._run(self._logic.describe_groups(groups))

    def group_offsets(self, group: str) -> dict[TopicPartition, Committed]:
        """All positions that a group has committed; none for a group that is not there."""
        return self._run(self._logic.group_offsets(group))

    def group_lag(self, group: str, *, isolation: Isolation = "read_uncommitted") -> dict[TopicPartition, PartitionLag]:
        """How far a group is in every partition that it has committed or that a member reads.

        For readers of committed records a partition ends where the first open transaction begins.
        """
        return self._run(self._logic.group_lag(group, isolation=isolation))

    def alter_group_offsets(self, group: str, positions: Mapping[tuple[str, int], int | Committed]) -> None:
        """Set a group's positions; refused (NON_EMPTY_GROUP) while it has members, who would not notice."""
        self._run(self._logic.alter_group_offsets(group, positions))

    def delete_group_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget positions of a group; refused (GROUP_SUBSCRIBED_TO_TOPIC) for topics that a member reads."""
        self._run(self._logic.delete_group_offsets(group, partitions))

    def delete_group(self, group: str) -> None:
        """Delete a group with all its positions; refused (NON_EMPTY_GROUP) while it has members."""
        self._run(self._logic.delete_group(group))

    def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete several, whatever becomes of the others; raises the first refusal afterwards."""
        self._run(self._logic.delete_groups(groups))

    # --- transactions --------------------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids of the cluster, or those that fit: `pattern` has to match the whole id."""
        return self._run(
            self._logic.list_transactions(
                states=states, producer_ids=producer_ids, older_than_ms=older_than_ms, pattern=pattern
            )
        )

    def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        """What is known of a transactional id; None: nothing."""
        return self._run(self._logic.describe_transaction(transactional_id))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """The same for several."""
        return self._run(self._logic.describe_transactions(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The producers that each partition remembers."""
        return self._run(self._logic.describe_producers(partitions))

    def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Fence the producer of a transactional id, which aborts what it has open; returns how it stood before.

        Refused (TRANSACTIONAL_ID_NOT_FOUND) for an id that nothing is known of.
        """
        return self._run(self._logic.abort_transaction(transactional_id))

    def abort_hanging(self, topic: str, partition: int, *, start_offset: int) -> ProducerDescription:
        """Abort the transaction that is open since this offset in a partition; returns whose it was."""
        return self._run(self._logic.abort_hanging(topic, partition, start_offset=start_offset))

    def commit_together(self, query_id: str, batch_id: int, transactions: Iterable[OpenTransaction]) -> bool:
        """Commit transactions that were left open, all or none, once for each key of query and batch.

        True: the key had been committed before, and nothing was done. An API of Ottla's own.
        """
        return self._run(self._logic.commit_together(query_id, batch_id, transactions))

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether a key has been committed. Only the latest ones of a query are remembered."""
        return self._run(self._logic.is_committed(query_id, batch_id))

    def last_committed(self, query_id: str) -> int | None:
        """The batch of a query that was committed last; None: none is remembered."""
        return self._run(self._logic.last_committed(query_id))

    def keep_transactions(self, query_id: str, transactions: Iterable[OpenTransaction]) -> None:
        """Let the time of transactions that were left open begin anew; refused if one of them is not open any more."""
        self._run(self._logic.keep_transactions(query_id, transactions))

    # --- the end -------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._logic.is_closed

    def close(self) -> None:
        """Let go of the connections."""
        self._run(self._logic.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

"""The blocking admin: the async one, run to its end on the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.admin import AsyncAdmin, ClusterDescription, ConfigEntry, TopicDescription
from ottla.client.cluster import Cluster
from ottla.client.offsets import OffsetFound
from ottla.client.settings import Isolation
from ottla.client.transport import run_now
from ottla.client.values import TopicPartition

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

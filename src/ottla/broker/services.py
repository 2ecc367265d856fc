"""What handlers may use: the nouns of a broker, gathered by `assembly`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ottla.broker.deadlines import Deadlines
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.groups import GroupCoordinator
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.transactional_writes import TransactionalWrites
from ottla.broker.transactions import TransactionCoordinator
from ottla.clock import Clock
from ottla.metadata.catalog import Catalog
from ottla.partitions.hosted import HostedPartitions
from ottla.partitions.sync_pool import SyncRunner
from ottla.protocol.messages.api_versions import ApiVersion
from ottla.scheduler import Scheduler
from ottla.storage.disk import Disk
from ottla.storage.layout import DataDirectory


@dataclass(frozen=True, slots=True)
class Services:
    """One broker's parts."""

    node_id: int
    catalog: Catalog
    partitions: HostedPartitions
    scheduler: Scheduler
    clock: Clock
    deadlines: Deadlines
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transactional_writes: TransactionalWrites
    syncs: SyncRunner
    disk: Disk
    directory: DataDirectory
    new_id: Callable[[], UUID]
    announced: tuple[ApiVersion, ...]
    """What ApiVersions tells: derived from the table of handlers."""
    announced_with_private: tuple[ApiVersion, ...]
    """The same with Ottla's own APIs, for clients that ask for them."""

"""Where a broker is put together: the only place that builds the object graph."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ottla.broker.broker import Broker
from ottla.broker.deadlines import Deadlines
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.groups import GroupCoordinator
from ottla.broker.handlers import HANDLERS
from ottla.broker.handlers.api_versions import announced
from ottla.broker.housekeeping import Compactor, Housekeeping
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.services import Services
from ottla.broker.transactional_writes import TransactionalWrites
from ottla.broker.transactions import TransactionCoordinator
from ottla.clock import Clock
from ottla.config import Settings
from ottla.metadata.catalog import Catalog
from ottla.metadata.configs import BrokerConfigs
from ottla.metadata.recovery import Owner, Restored, restore_local
from ottla.partitions.hosted import HostedPartitions
from ottla.partitions.sync_pool import SyncRunner
from ottla.protocol.api_keys import is_private
from ottla.scheduler import Scheduler
from ottla.storage.disk import Disk
from ottla.storage.layout import CLEAN_FILE, DataDirectory

_SESSION_IDS = 2**31 - 1
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class World:
    """What a broker gets from outside: time, chance, disk and threads."""

    disk: Disk
    clock: Clock
    scheduler: Scheduler
    syncs: SyncRunner
    new_id: Callable[[], UUID]
    compactor: Compactor | None = None
    steady: Clock | None = None
    """A clock that nobody sets, for the waits of groups; `clock` itself where there is none."""


Restore = Callable[[Disk, DataDirectory, Owner], Restored]


def start(path: str, settings: Settings, world: World, restore: Restore | None = None) -> Broker:
    """Open a data directory and be its broker; everything is recovered when this returns.

    `restore` opens the metadata; SQLite's unless another is handed in.
    """
    directory = DataDirectory.open(world.disk, path)
    try:
        return _start(directory, settings, world, restore)
    except BaseException:
        directory.close()
        raise


def _start(directory: DataDirectory, settings: Settings, world: World, restore: Restore | None) -> Broker:
    configs = BrokerConfigs(settings)
    owner = Owner(configs.integer("node.id"), str(configs.value("ottla.cluster.id") or ""))
    if restore is None:
        restored = restore_local(world.disk, directory, owner, now_ms=world.clock.now_ms(), new_id=world.new_id)
    else:
        restored = restore(world.disk, directory, owner)
    catalog = Catalog(
        restored.store,
        node_id=owner.node_id,
        settings=settings,
        post=world.scheduler.post,
        new_id=world.new_id,
        offline=restored.judgement.offline,
    )
    partitions = HostedPartitions(
        world.disk,
        directory,
        catalog,
        scheduler=world.scheduler,
        syncs=world.syncs,
        clock=world.clock,
        new_id=world.new_id,
    )
    partitions.finish_directories(restored.judgement)
    if not _take_clean_mark(world.disk, directory):
        partitions.recover_all()
    groups, transactions = _coordinators(catalog, partitions, world)
    services = Services(
        node_id=owner.node_id,
        catalog=catalog,
        partitions=partitions,
        scheduler=world.scheduler,
        clock=world.clock,
        deadlines=Deadlines(world.scheduler),
        fetch_sessions=FetchSessions(
            first_id=world.new_id().int % _SESSION_IDS + 1,
            sessions_max=configs.integer("max.incremental.fetch.session.cache.slots"),
        ),
        producer_ids=ProducerIds(catalog),
        groups=groups,
        transactions=transactions,
        transactional_writes=TransactionalWrites(transactions),
        syncs=world.syncs,
        disk=world.disk,
        directory=directory,
        new_id=world.new_id,
        announced=announced([key for key in HANDLERS if not is_private(key)]),
        announced_with_private=announced(list(HANDLERS)),
    )
    housekeeping = Housekeeping(partitions, catalog, scheduler=world.scheduler, compactor=world.compactor)
    housekeeping.start()
    groups.start()
    transactions.start()
    return Broker(services, restored.store, housekeeping)


def _coordinators(
    catalog: Catalog, partitions: HostedPartitions, world: World
) -> tuple[GroupCoordinator, TransactionCoordinator]:
    steady = world.steady or world.clock
    groups = GroupCoordinator(
        catalog=catalog, partitions=partitions, scheduler=world.scheduler, clock=steady, new_id=world.new_id
    )
    transactions = TransactionCoordinator(
        catalog=catalog,
        partitions=partitions,
        groups=groups,
        scheduler=world.scheduler,
        clock=steady,
        wall=world.clock,
    )
    return groups, transactions


def _take_clean_mark(disk: Disk, directory: DataDirectory) -> bool:
    """Whether the last stop was a clean one. The mark goes before anything is written."""
    path = f"{directory.path}/{CLEAN_FILE}"
    if disk.size(path) is None:
        return False
    disk.remove(path)
    disk.sync_directory(directory.path)
    return True

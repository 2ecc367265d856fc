"""The life of a server process: start, say that it is ready, serve, stop in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable, Sequence
from uuid import uuid4

from ottla.broker.assembly import World, start
from ottla.broker.broker import Broker
from ottla.broker.caller import Address
from ottla.broker.compactor import ChildCompactor
from ottla.clock import SteadyClock, SystemClock
from ottla.config import Settings
from ottla.metadata.configs import BrokerConfigs
from ottla.partitions.sync_pool import SyncPool
from ottla.server.listener import Limits, Listener
from ottla.server.loop import LoopScheduler
from ottla.storage.disk import OsDisk

DRAIN_S = 10.0
"""How long a stop waits for unanswered requests: long polls end by themselves before that."""
SETTLE_CHECK_S = 0.002
GC_THRESHOLDS = (50_000, 20, 1_000)
"""Rarely: what lives long is frozen, and requests leave no cycles."""

_logger = logging.getLogger(__name__)


def run(settings: Settings, ready: Callable[[Sequence[Address]], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called when clients may connect."""
    raise_descriptor_limit()
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(settings, ready))
    else:
        uvloop.run(serve(settings, ready))


async def serve(settings: Settings, ready: Callable[[Sequence[Address]], None]) -> None:
    """The same on a loop that runs already."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await Server.start(settings)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        ready(server.addresses)
        await stopped.wait()
    finally:
        await server.stop()


class Server:
    """A broker and its connections, on the loop that runs."""

    def __init__(
        self,
        broker: Broker,
        listener: Listener,
        syncs: SyncPool,
        compactor: ChildCompactor,
        addresses: Sequence[Address],
    ) -> None:
        self.broker = broker
        self.addresses = addresses
        self._listener = listener
        self._syncs = syncs
        self._compactor = compactor

    @classmethod
    async def start(cls, settings: Settings) -> Server:
        """Open the data directory, recover it, and listen."""
        configs = BrokerConfigs(settings)
        loop = asyncio.get_running_loop()
        scheduler = LoopScheduler(loop)
        syncs = SyncPool(scheduler, threads=configs.integer("ottla.sync.threads"))
        compactor = ChildCompactor(scheduler)
        world = World(OsDisk(), SystemClock(), scheduler, syncs, uuid4, compactor, SteadyClock())
        broker = start(str(configs.value("log.dir")), settings, world)
        try:
            told = addresses_of(configs.value("advertised.listeners"))
            listener = Listener(broker, syncs, advertised=told[0] if told else None, limits=Limits.of(configs))
            bound = [await listener.listen(address) for address in addresses_of(configs.value("listeners"))]
        except BaseException:
            broker.stop()
            broker.close()
            raise
        return cls(broker, listener, syncs, compactor, bound)

    async def stop(self) -> None:
        """Answer what came, sync, close, and leave the mark of a clean stop."""
        self.broker.stop()
        self._compactor.close()
        await self._listener.drain(DRAIN_S)
        loop = asyncio.get_running_loop()
        # acks=1 is answered before its sync: one may be under way, and ask for the next when it ends.
        deadline = loop.time() + DRAIN_S
        partitions = self.broker.services.partitions
        for _, partition in partitions:
            partition.settle()
        while not all(partition.is_settled for _, partition in partitions) and loop.time() < deadline:
            await asyncio.sleep(SETTLE_CHECK_S)
        await loop.run_in_executor(None, self._syncs.close)
        # What the threads have posted last is completed before anything is closed.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await loop.run_in_executor(None, self.broker.close)


def addresses_of(values: object) -> list[Address]:
    """Listeners as they stand in the settings: HOST:PORT, with or without a protocol in front."""
    addresses = []
    for text in values if isinstance(values, tuple) else ():
        host, _, port = str(text).rpartition("://")[2].rpartition(":")
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses


def raise_descriptor_limit() -> None:
    """Every connection and segment takes a descriptor; the soft limit is often only 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

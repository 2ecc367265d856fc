"""A scripted cluster, and the blocking client that talks to it without sockets and without real time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from ottla.client.assembly import Assembly
from ottla.client.blocking.client import Client
from ottla.client.settings import ClientSettings
from ottla.client.transport import MonotonicClock
from tests.client.scripted_broker import ScriptedCluster


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster()


def client_of(cluster: ScriptedCluster, *, real_time: bool = False, **settings: int) -> Client:
    """A client whose clocks and chance are the test's; with `real_time` it waits by the machine's clock."""
    assembly = Assembly(
        cluster.transport,
        [next(iter(cluster.nodes.values()))],
        ClientSettings(**settings),  # type: ignore[arg-type]
        in_process=False,
        clock=cluster.clock,
        ticks=MonotonicClock() if real_time else cluster.clock,
        chance=Random(1),
    )
    return Client(assembly)


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[Client]:
    with client_of(cluster) as made:
        yield made

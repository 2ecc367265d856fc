"""The pytest plug-in: a fixture `ottla_broker` with a real broker on a free port of loopback.

    def test_orders_are_counted(ottla_broker):
        producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})

Each test that asks for it gets a broker of its own with an empty, temporary data directory. Settings come
from a mark: `@pytest.mark.ottla(config={"num.partitions": 3})`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.server_thread import ServerThread


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "ottla(config): broker settings for the fixture ottla_broker, by Kafka's names")


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerThread]:
    """A real broker; `ottla_broker.bootstrap` is its address."""
    # Loaded here: a test run that never asks for a broker does not pay for one.
    from ottla.testing.server_thread import ServerThread

    mark = request.node.get_closest_marker("ottla")
    server = ServerThread(str(tmp_path / "ottla-data"), mark.kwargs.get("config") if mark else None)
    server.start()
    yield server
    server.stop()

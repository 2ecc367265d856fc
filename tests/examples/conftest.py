"""A broker for each test of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.server_thread import ServerThread


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    """A broker on a free port, in this process; `server.bootstrap` is its address."""
    thread = ServerThread(str(tmp_path / "broker"))
    thread.start()
    yield thread
    thread.stop()

"""The server that tests of commands share."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.server_process import ServerProcess, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that only use topics of their own."""
    # Whoever is alone in a group need not wait for others.
    alone = {"OTTLA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with serving(tmp_path_factory.mktemp("server"), variables=alone) as process:
        yield process


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test uses."""
    name: str = request.node.name
    return re.sub("[^a-zA-Z0-9._-]", "_", name.removeprefix("test_"))[:200]

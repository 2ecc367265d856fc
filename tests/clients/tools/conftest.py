"""Kafka's programs, for the tests of groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.tools import Tools


@pytest.fixture(scope="session")
def tools(java: Path, kafka_jars: Path) -> Tools:
    return Tools(java, kafka_jars)

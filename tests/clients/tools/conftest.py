"""Kafka's programs, for the tests of groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.tools.quick_java import QuickTools


@pytest.fixture(scope="session")
def tools(java: Path, kafka_jars: Path, shared_directory: Path) -> QuickTools:
    return QuickTools(java, kafka_jars, shared_directory)

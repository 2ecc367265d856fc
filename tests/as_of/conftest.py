"""The Spark session and the brokers of the Spark side's tests, and the server of the commands' tests.

All fixtures but `embedded` and `address` are those of `tests.spark.conftest` and `tests.cli.conftest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.testing.server_thread import ServerThread
from tests.cli.conftest import server, topic
from tests.spark.conftest import (
    _no_query_is_left_behind,
    broker,
    kafka_broker,
    mark_spark_tests,
    ottla_broker_process,
    spark,
    spark_java,
)

__all__ = [
    "_no_query_is_left_behind",
    "broker",
    "kafka_broker",
    "ottla_broker_process",
    "server",
    "spark",
    "spark_java",
    "topic",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_spark_tests(items, Path(__file__).parent)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Client]:
    """A client of a real broker in this process."""
    with ottla.open(tmp_path / "data") as client:
        yield client


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real broker listens that the tests of a module share."""
    made = ServerThread(str(tmp_path_factory.mktemp("data")), {"auto.create.topics.enable": "false"})
    made.start()
    yield made.bootstrap
    made.stop()

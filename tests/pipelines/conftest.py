"""The Spark session and the brokers of the Spark side's tests, for the tests of pipelines.

All fixtures are those of `tests.spark.conftest`; its docstring says what they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import (
    SPARK_FIXTURES,
    UNCLOSED,
    _no_query_is_left_behind,
    broker,
    kafka_broker,
    ottla_broker_process,
    own_ottla,
    spark,
    spark_java,
)

__all__ = [
    "_no_query_is_left_behind",
    "broker",
    "kafka_broker",
    "ottla_broker_process",
    "own_ottla",
    "spark",
    "spark_java",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that starts a Spark is slow, and not to blame for what Spark leaves open."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and SPARK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))

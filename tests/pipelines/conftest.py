"""The Spark session and the brokers of the Spark side's tests, for the tests of pipelines.

All fixtures are those of `tests.spark.conftest`; its docstring says what they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import (
    _no_query_is_left_behind,
    broker,
    kafka_broker,
    mark_spark_tests,
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
    mark_spark_tests(items, Path(__file__).parent)

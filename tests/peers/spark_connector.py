"""Spark's own Kafka connector and its Avro: their jars, for a session's `spark.jars`, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.peers import maven as fetching

CONNECTOR_VERSION = "4.2.0"

_CONNECTOR = fetching.Peer(
    name="Spark's connector",
    pom=Path(__file__).with_name("spark_connector.pom.xml"),
    announcement=f"Fetching Spark's Kafka connector {CONNECTOR_VERSION} and Avro with Maven, 5 jars, once.",
)
_CACHE = fetching.CACHE / f"spark-connector-{CONNECTOR_VERSION}"


def jars(say: Callable[[str], None], *, cache: Path = _CACHE, maven: str = "mvn") -> Path:
    """The directory of the connector's jars, fetched first if it is not there yet."""
    return fetching.jars(_CONNECTOR, say, cache=cache, maven=maven)


def spark_jars(directory: Path) -> str:
    """The jars as the value of `spark.jars`."""
    return ",".join(str(path) for path in sorted(directory.glob("*.jar")))

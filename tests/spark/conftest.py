"""What the tests of the Spark side share.

- `spark`: one real local session (two cores) for all tests of a process. Tests that ask for it are marked slow; where
  pyspark or Java is missing they are skipped with the reason (and fail with REQUIRE_PEERS=1). Do not stop it.
- `broker`: a `tests.spark.brokers.Broker`, once as Ottla in a process of its own, once as Apache Kafka (marked peers).
  One of each serves all tests of a process, so take fresh topics (`broker.topic(3)`), groups and checkpoints.
- `ottla_broker_process`: the same without the Kafka half, for what only Ottla can do. Also shared: do not kill it.
- `own_ottla`: an Ottla broker for one test alone, to be killed (`own_ottla.server.kill()`, `.start()`).
- Options with the address in them: `spark.read.format("ottla").options(**broker.options(subscribe=topic)).load()`.
- Streams: `tests.spark.queries.available_now(frame, checkpoint)` and its neighbours run one over what is there now.
- What a test leaves running is stopped after it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.client.kafka_server import kafka_server
from tests.clients.missing import missing
from tests.peers import kafka
from tests.peers.tools import Tools
from tests.spark.brokers import Broker, ottla_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = Path(__file__).resolve().parents[2] / "src"
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SPARK_FIXTURES = {"spark", "spark_java"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_spark_tests(items, Path(__file__).parent)


def mark_spark_tests(items: list[pytest.Item], here: Path) -> None:
    """A test that starts a Spark is slow, and not to blame for what Spark leaves open."""
    for item in items:
        if here in item.path.parents and SPARK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            # Spark's Python side opens sockets for the life of the program.
            item.add_marker(pytest.mark.leaves_sockets)


@pytest.fixture(scope="session")
def spark_java() -> Path:
    """The Java that Spark runs on; skips where Java or pyspark is missing. For tests with a Spark of their own."""
    if find_spec("pyspark") is None:
        missing("pyspark is not installed; `make setup` brings it")
    try:
        return kafka.java()
    except kafka.PeerMissing as reason:
        missing(f"Spark needs Java: {reason}")


@pytest.fixture(scope="session")
def spark(spark_java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, set up to start and to end small batches quickly."""
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.ERROR)
    home = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Before the JVM starts: it hands both on to the workers.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(SOURCES), prepend=":")
        builder = SparkSession.builder.master("local[2]").appName("ottla tests")
        for name, value in _settings(home).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_query_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop what a test that failed has left running: it would compute beside the next one."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


def _settings(home: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        "spark.sql.streaming.stopTimeout": "60s",
    }


@pytest.fixture(scope="session")
def ottla_broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ottla in a process of its own, for all tests of this process."""
    yield from ottla_process(tmp_path_factory.mktemp("ottla"))


@pytest.fixture(scope="session")
def kafka_broker(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Apache Kafka, for all tests of this process."""
    with kafka_server(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka")) as address:
        broker = Broker(address, kind="kafka")
        yield broker
        broker.close()


@pytest.fixture(params=["ottla", pytest.param("kafka", marks=[pytest.mark.peers, pytest.mark.slow])])
def broker(request: pytest.FixtureRequest) -> Broker:
    """A broker that knows nothing of Spark: ours, and the one whose connector we follow."""
    found = request.getfixturevalue("ottla_broker_process" if request.param == "ottla" else "kafka_broker")
    assert isinstance(found, Broker)
    return found


@pytest.fixture
def own_ottla(tmp_path: Path) -> Iterator[Broker]:
    """An Ottla broker that one test has for itself and may kill."""
    yield from ottla_process(tmp_path / "ottla")

"""Pipelines through Spark Connect, where batches are written by a process beside the server."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from pyspark.errors import PySparkException

from ottla.client.values import NewRecord
from ottla.pipelines.checkpoint_files import METADATA, id_in, query_id, text_of
from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.graph import graph
from ottla.pipelines.queries import (
    QUERY_ID,
    EachBatchOnce,
    QueryPlan,
    QueryUnknown,
    TableTarget,
    TopicTarget,
    application_of,
    planned,
)
from ottla.pipelines.reading import load
from ottla.pipelines.remembered_queries import QueriesUnreadable, remembered_in
from ottla.pipelines.rows_out import RowsOut
from ottla.pipelines.sharing import Remembered
from ottla.pipelines.spec import Place, TableSink
from ottla.pipelines.starting import ATTEMPTS_MAX, TOO_BUSY, refuse_unless_alone, started
from tests.pipelines.crashes.written import rows
from tests.spark.brokers import Broker
from tests.spark.programs import connect_port, run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
pipeline: connected-{orders}
checkpoints: state
spark: {{spark.sql.shuffle.partitions: 1}}
sources:
  orders: {{topic: {orders}, format: json, schema: "id BIGINT, product STRING"}}
  products: {{topic: {products}, format: json, schema: "product STRING, price DOUBLE", read: latest}}
steps:
  priced: SELECT id, product, price FROM orders LEFT JOIN products USING (product)
  counted: SELECT product, count(*) AS orders FROM orders GROUP BY product
sinks:
  totals: {{from: counted, topic: {totals}, key: product, mode: update}}
  table: {{from: priced, table: table}}
"""
TOPICS = ("orders", "products", "totals")
PROGRAM = """
import json, sys
from pathlib import Path

import ottla
from ottla.client.values import NewRecord
from ottla.pipelines.queries import is_grouped
from ottla.pipelines.reading import load
from ottla.pipelines.runner import run
from ottla.spark import session

bootstrap, orders, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
pipeline = load(Path("shop.yaml"))
spark = session(remote="local[2]", config={"spark.ui.enabled": False})
said = {"session": type(spark).__module__}


def ran(*, check):
    outcome = run(pipeline, spark=spark, bootstrap=bootstrap, once=True, check=check)
    assert (outcome.state, outcome.error) == ("stopped", None), outcome
    return {query: [totals.rows_in, totals.batches] for query, totals in outcome.totals.items()}


said["before"] = ran(check=True)
# As if the server had died before it noted that the batches were done.
for query in said["before"]:
    Path("state", query, "commits", "0").unlink()
with ottla.connect(bootstrap) as client, client.producer() as producer:
    more = [json.dumps({"id": n, "product": f"p{n % 3}"}) for n in range(first, first + count)]
    producer.send_batch(orders, [NewRecord(value.encode()) for value in more])
said["after"] = ran(check=False)

spark.readStream.format("rate").load().createOrReplaceTempView("numbers")
spark.range(3).createOrReplaceTempView("fixed")
said["grouped"] = {
    query: is_grouped(spark.sql(query))
    for query in (
        "SELECT value, count(*) FROM numbers GROUP BY value",
        "SELECT n.value FROM numbers n JOIN (SELECT max(id) AS last FROM fixed) ON last = n.value",
        "SELECT DISTINCT value FROM numbers",
    )
}
print("RESULT" + json.dumps(said))
spark.stop()
"""
BEFORE = 100
AFTER = 20


def test_tables_and_topics_in_update_mode_have_each_record_once_though_batches_are_repeated(
    spark_java: Path, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topics = {name: broker.topic(stem=name) for name in TOPICS}
    (tmp_path / "shop.yaml").write_text(SHOP.format(**topics))
    broker.produce(topics["products"], [NewRecord(b'{"product": "p0", "price": 1.5}', key=b"p0")])
    orders = [json.dumps({"id": number, "product": f"p{number % 3}"}) for number in range(BEFORE)]
    broker.produce(topics["orders"], orders)

    with connect_port():
        said = run_python(PROGRAM, tmp_path, broker.bootstrap, topics["orders"], str(BEFORE), str(AFTER))

    (line,) = [line for line in said.splitlines() if line.startswith("RESULT")]
    told = json.loads(line.removeprefix("RESULT"))
    assert told["session"].startswith("pyspark.sql.connect")
    assert told["before"] == {"totals": [BEFORE, 1], "table": [BEFORE, 1]}
    # The batch is repeated, and then comes what is new.
    assert told["after"] == {"totals": [BEFORE + AFTER, 2], "table": [BEFORE + AFTER, 2]}
    numbers = range(BEFORE + AFTER)
    assert sorted((row["id"], row["price"]) for row in rows(tmp_path / "table")) == [
        (number, 1.5 if number % 3 == 0 else None) for number in numbers
    ]
    changes = [json.loads(value or b"") for value in broker.values(topics["totals"])]
    seen = [(change["product"], change["orders"]) for change in changes]
    # Every change of a count is another one, unless it was written twice.
    assert len(seen) == len(set(seen))
    expected = Counter(f"p{number % 3}" for number in numbers)
    assert {product: max(count for each, count in seen if each == product) for product in expected} == expected
    assert list(told["grouped"].values()) == [True, False, False]


# --- which query a batch is of ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ('{"id":"5e6f6ba3-65f3-4d9f-8f5c-6a3f6a3f6a3f"}', "5e6f6ba3-65f3-4d9f-8f5c-6a3f6a3f6a3f"),
        ('{"id": "x", "more": 1}\n', "x"),
        ('{"id": ""}', None),
        ('{"id": 7}', None),
        ("{}", None),
        ("", None),
        ('{"id": "5e6f', None),
    ],
)
def test_the_id_of_a_query_is_what_spark_has_written_or_nothing(metadata: str, expected: str | None) -> None:
    assert id_in(metadata) == expected


def test_the_id_of_a_query_is_found_in_its_checkpoint_whatever_the_path_looks_like(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("plain", "a [b] {c,d} *", "größer 100 %25", "_ottla"):
        checkpoint = tmp_path / name
        checkpoint.mkdir()
        (checkpoint / METADATA).write_text(json.dumps({"id": name}))
        assert query_id(spark, str(checkpoint)) == name


def test_where_there_is_no_checkpoint_there_is_no_id(spark: SparkSession, tmp_path: Path) -> None:
    assert query_id(spark, str(tmp_path)) is None
    assert text_of(spark, str(tmp_path / "none" / "at all")) is None


def test_a_batch_of_an_unknown_query_is_refused() -> None:
    class Batch:
        sparkSession = None  # noqa: N815

    with pytest.raises(QueryUnknown, match=r"does not say which query this batch is of.*Restore the checkpoint"):
        application_of(Batch())  # type: ignore[arg-type]


# --- what is sent to the server -----------------------------------------------------------------------


class Context:
    """Of a thread that works for a query."""

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return "the query" if name == QUERY_ID else None


class Session:
    _sc = Context()


class Batch:
    sparkSession = Session()  # noqa: N815


@dataclass
class Noted:
    """A target that only notes what it is given."""

    written: ClassVar[list[tuple[object, str, int]]] = []
    name: str = field(default="noted")

    def write(self, rows: Any, *, application: str, batch_id: int) -> None:
        self.written.append((rows, application, batch_id))


def test_what_is_sent_to_another_process_writes_rows_as_they_are_and_tells_nobody_how_many() -> None:
    sent = pickle.loads(pickle.dumps(EachBatchOnce(Noted(), "state/query", RowsOut())))
    batch: Any = Batch()
    Noted.written.clear()

    sent(batch, 7)

    assert Noted.written == [(batch, "the query", 7)]


def test_tables_and_topics_are_sent_as_what_they_are_made_from(tmp_path: Path) -> None:
    sink = TableSink(name="t", place=Place("p.yaml", 1), input="rows", path="t", keys=("id",), order="at")
    table = pickle.loads(pickle.dumps(TableTarget(sink, str(tmp_path / "t"))))
    topic = pickle.loads(pickle.dumps(TopicTarget({"topic": "t"})))

    assert table.__reduce__() == (TableTarget, (sink, str(tmp_path / "t")))
    assert topic == TopicTarget({"topic": "t"})


# --- how queries start --------------------------------------------------------------------------------


class Writer:
    """Fails to start for a while."""

    def __init__(self, said: str, failures: int) -> None:
        self.said = said
        self.failures = failures
        self.attempts = 0

    def start(self) -> str:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise PySparkException(self.said)
        return "the query"


def test_a_query_whose_process_was_too_slow_is_started_again() -> None:
    writer: Any = Writer(f"{TOO_BUSY}.\n\nJVM stacktrace: ...", failures=ATTEMPTS_MAX - 1)

    query: Any = started(writer)

    assert query == "the query"


def test_a_process_that_is_always_too_slow_is_told() -> None:
    writer: Any = Writer(TOO_BUSY, failures=ATTEMPTS_MAX)

    with pytest.raises(PySparkException, match=TOO_BUSY):
        started(writer)


def test_whatever_else_spark_says_against_a_query_is_told_at_once() -> None:
    writer: Any = Writer("[STREAMING_OUTPUT_MODE] ...", failures=1)

    with pytest.raises(PySparkException, match="STREAMING_OUTPUT_MODE"):
        started(writer)
    assert writer.attempts == 1


# --- what was run without it --------------------------------------------------------------------------


def plans_of(directory: Path) -> tuple[QueryPlan, ...]:
    (directory / "shop.yaml").write_text(SHOP.format(**{name: name for name in TOPICS}))
    pipeline = load(directory / "shop.yaml")
    return planned(pipeline, graph(pipeline))


def remembered(**queries: tuple[str, ...]) -> dict[str, Remembered]:
    """Several outputs share a query."""
    return {name: Remembered(outputs, "orders" if len(outputs) > 1 else None) for name, outputs in queries.items()}


def test_outputs_that_have_always_been_alone_go_on_through_spark_connect(tmp_path: Path) -> None:
    refuse_unless_alone(plans_of(tmp_path), remembered(totals=("totals",), table=("table",), gone=("gone",)))


def test_outputs_that_share_a_query_are_refused_since_they_would_begin_anew(tmp_path: Path) -> None:
    told = remembered(totals=("totals",), both=("table", "gone"))

    with pytest.raises(PipelineInvalid, match="`table` has been written together with others") as caught:
        refuse_unless_alone(plans_of(tmp_path), told)

    assert len(caught.value.problems) == 1


def test_an_output_that_nobody_would_remember_is_refused(tmp_path: Path) -> None:
    told = remembered(totals=("totals",))

    with pytest.raises(PipelineInvalid, match="`table` is new in a pipeline that was run without Spark Connect"):
        refuse_unless_alone(plans_of(tmp_path), told)


def test_a_file_that_does_not_say_what_is_shared_is_told() -> None:
    with pytest.raises(QueriesUnreadable, match=r"state/queries\.json.*Restore"):
        remembered_in('{"version": 1}', path="state/queries.json")

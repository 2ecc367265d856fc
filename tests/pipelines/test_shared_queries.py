"""Outputs that share a query, on a real Spark: what they write, what a repeated batch adds, and what is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.values import NewRecord
from ottla.pipelines.frames import Frames
from ottla.pipelines.graph import graph
from ottla.pipelines.reading import load
from ottla.pipelines.remembered_queries import FILE, QueriesUnreadable, RememberedQueries
from ottla.pipelines.runner import run
from ottla.pipelines.sharing import Remembered, is_row_by_row
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
pipeline: shared-{orders}
checkpoints: state
sources:
  orders:
    topic: {orders}
    format: json
    schema: id BIGINT NOT NULL, product STRING, amount DOUBLE
    bad: {bad}
    options: {{maxOffsetsPerTrigger: 40}}
  products: {{topic: {products}, format: json, schema: "product STRING, price DOUBLE", read: latest}}
steps:
  priced:
    sql: SELECT id, product, amount, price FROM orders LEFT JOIN products USING (product)
    expect:
      small: {{where: amount < 1000, otherwise: {{route: {dear}}}}}
  total: SELECT product, count(*) AS orders FROM priced GROUP BY product
sinks:
  copy: {{from: priced, topic: {copies}, key: id}}
  table: {{from: priced, table: table}}
  total: {{from: total, topic: {totals}, key: product, mode: update}}
"""
SHARED = "copy+table+orders.side+priced.side"
ADDED = "  again: {{from: orders, topic: {again}, key: id}}\n"
NAMES = ("orders", "products", "bad", "dear", "copies", "totals", "again")
ORDERS = 100


class Shop:
    """A pipeline whose outputs share a query, but for one."""

    def __init__(self, broker: Broker, spark: SparkSession, directory: Path) -> None:
        self.broker = broker
        self.spark = spark
        self.topics = {name: broker.topic(2 if name == "orders" else 1, stem=name) for name in NAMES}
        self.directory = directory
        self.file = directory / "shop.yaml"
        self.declare(SHOP)
        prices = [NewRecord(json.dumps({"product": p, "price": 1.5}).encode(), key=p.encode()) for p in ("p0", "p1")]
        broker.produce(self.topics["products"], prices)

    def declare(self, text: str) -> None:
        self.file.write_text(text.format(**self.topics))
        self.pipeline = load(self.file)

    def order(self, first: int, count: int) -> None:
        """Most are fine; one is dear and one is none at all."""
        for number in range(first, first + count):
            amount = 5_000.0 if number == first else 1.0
            value = {"id": number, "product": f"p{number % 3}", "amount": amount}
            self.broker.produce(self.topics["orders"], [json.dumps(value)], partition=number % 2)
        self.broker.produce(self.topics["orders"], [f"nonsense {first}"], partition=0)

    def run(self) -> dict[str, int | None]:
        """All that is there; gives the rows that each query wrote."""
        outcome = run(self.pipeline, spark=self.spark, bootstrap=self.broker.bootstrap, once=True)
        assert (outcome.state, outcome.error) == ("stopped", None)
        return {name: totals.rows_out for name, totals in outcome.totals.items()}

    def ids(self, topic: str) -> list[int]:
        return sorted(json.loads(value or b"")["id"] for value in self.broker.values(self.topics[topic]))

    def rows(self) -> list[tuple[int, float | None]]:
        from ottla.pipelines.tables import read_table

        return sorted(
            (row["id"], row["price"]) for row in read_table(self.spark, str(self.directory / "table")).collect()
        )

    def bad(self) -> list[bytes]:
        return sorted(value or b"" for value in self.broker.values(self.topics["bad"]))


@pytest.fixture
def shop(ottla_broker_process: Broker, spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(ottla_broker_process, spark, tmp_path)


def test_every_output_has_each_record_once_though_a_batch_is_repeated_and_one_that_is_added_has_all_of_them(
    shop: Shop,
) -> None:
    shop.order(0, ORDERS)

    found = shop.run()

    fine = list(range(1, ORDERS))
    assert found.keys() == {SHARED, "total"}
    assert found[SHARED] == 2 * len(fine) + 2
    assert found["total"] is not None
    assert 3 <= found["total"] <= 9
    price = {0: 1.5, 1: 1.5, 2: None}
    assert shop.ids("copies") == fine
    assert shop.rows() == [(number, price[number % 3]) for number in fine]
    assert shop.ids("dear") == [0]
    assert shop.bad() == [b"nonsense 0"]
    (sent,) = shop.broker.records(shop.topics["bad"])
    assert dict(sent.headers)["ottla.reason"] == b"the value is no JSON object of the schema"

    # As if the driver had died before it noted that the last batch was done; and an output is added.
    commits = shop.directory / "state" / SHARED / "commits"
    batches = sorted(int(path.name) for path in commits.glob("[0-9]*"))
    assert batches == [0, 1, 2]
    (commits / "2").unlink()
    shop.order(ORDERS, 10)
    shop.declare(SHOP + ADDED)

    assert shop.run().keys() == {SHARED, "total", "again"}

    assert shop.ids("copies") == [*fine, *range(ORDERS + 1, ORDERS + 10)]
    assert [number for number, _ in shop.rows()] == shop.ids("copies")
    assert shop.ids("dear") == [0, ORDERS]
    assert shop.bad() == [b"nonsense 0", b"nonsense 100"]
    assert shop.ids("again") == list(range(ORDERS + 10))


@pytest.mark.parametrize(
    ("query", "is_so"),
    [
        ("SELECT value + 1 AS v FROM numbers WHERE value > 3", True),
        ("WITH big AS (SELECT * FROM numbers WHERE value > 3) SELECT * FROM big", True),
        ("SELECT n.value, f.name FROM numbers n LEFT JOIN fixed f ON f.id = n.value", True),
        ("SELECT value, e FROM numbers LATERAL VIEW explode(array(1, 2)) AS e", True),
        ("SELECT value FROM numbers WHERE value IN (SELECT max(id) FROM fixed)", True),
        ("SELECT value FROM numbers UNION ALL SELECT value + 1 FROM numbers", True),
        ("SELECT n.value FROM numbers n JOIN (SELECT count(*) AS c FROM fixed) ON c = n.value", True),
        ("SELECT count(*) FROM numbers", False),
        ("SELECT DISTINCT value FROM numbers", False),
        ("SELECT a.value FROM numbers a JOIN numbers b USING (value)", False),
        ("SELECT value FROM numbers ORDER BY value", False),
        ("SELECT value FROM numbers LIMIT 3", False),
        ("SELECT row_number() OVER (PARTITION BY value ORDER BY timestamp) FROM numbers", False),
    ],
)
def test_a_query_is_row_by_row_if_no_row_of_it_depends_on_another_row_of_the_stream(
    spark: SparkSession, query: str, is_so: bool
) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("numbers")
    spark.createDataFrame([(1, "one")], "id INT, name STRING").createOrReplaceTempView("fixed")

    assert is_row_by_row(spark.sql(query)) is is_so


def test_queries_from_before_there_was_a_file_stay_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP.format(**{name: name for name in NAMES}))
    pipeline = load(tmp_path / "shop.yaml")
    (tmp_path / "state" / "copy").mkdir(parents=True)
    frames = Frames(pipeline, graph(pipeline), spark, bootstrap="127.0.0.1:1")

    remembered = RememberedQueries(frames.spark, str(tmp_path / "state")).read(["copy", "table"])

    assert remembered == {"copy": Remembered(("copy",))}


def test_what_is_written_is_what_is_remembered_and_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    kept = RememberedQueries(spark, str(tmp_path / "state"))
    queries = {"a+b": Remembered(("a", "b"), "orders"), "c": Remembered(("c",))}
    kept.write({})
    kept.write(queries)

    assert RememberedQueries(spark, str(tmp_path / "state")).read([]) == queries
    assert [path.name for path in (tmp_path / "state").iterdir() if not path.name.startswith(".")] == [FILE]

    (tmp_path / "state" / FILE).write_text('{"version": 1}')
    with pytest.raises(QueriesUnreadable, match=rf"{FILE}.*[Cc]hecksum.*Restore"):
        kept.read([])
    (tmp_path / "state" / f".{FILE}.crc").unlink()
    with pytest.raises(QueriesUnreadable, match=rf"{FILE}.*missing required field `queries`.*Restore"):
        kept.read([])

"""A pipeline of ours that Spark's own engine for pipelines runs, and those that it cannot run; and one without us."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.pipelines.declarative import declare, query_over, why_not
from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.reading import load
from ottla.pipelines.spec import Pipeline
from tests.clients.server_process import running
from tests.spark import spark_page
from tests.spark.brokers import Broker
from tests.spark.programs import connect_port, run

SPECIFICATION = """\
name: ottla_test
storage: file://{directory}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
  # Spark gives its Python processes ten seconds to start, and on a busy machine they need several tries.
  spark.sql.pipelines.execution.maxConcurrentFlows: "2"
  spark.sql.pipelines.maxFlowRetryAttempts: "10"
"""
PIPELINES = str(Path(sys.executable).with_name("spark-pipelines"))
PIPELINE = """\
pipeline: shop
sources:
  orders:
    topic: shop
    format: json
    schema: id BIGINT, product STRING, amount DOUBLE
    bad: orders.bad
    expect:
      positive: {where: amount > 0, otherwise: {route: orders.negative}}
  products: {topic: products, format: json, schema: "product STRING, price DOUBLE", read: latest}
steps:
  priced: |
    WITH dear AS (SELECT * FROM products WHERE price > 1)
    SELECT orders.id, amount * price AS total, '{x}' AS brackets
    FROM Orders LEFT JOIN dear ON orders.product = dear.product
  doubled: {python: "shop_steps:doubled", from: [priced]}
sinks:
  totals: {from: doubled, topic: totals, key: id}
"""
FUNCTION = """\
def doubled(priced):
    return priced.selectExpr("id", "total * 2 AS total", "brackets")
"""
DECLARATION = """\
from pathlib import Path

from ottla.pipelines.declarative import declare
from ottla.pipelines.reading import load

declare(load(Path({directory!r}) / "shop.yaml"), bootstrap={bootstrap!r})
"""
ORDERS = [
    '{"id": 1, "product": "a", "amount": 2}',
    "no order",
    '{"id": 2, "product": "b", "amount": -1}',
    '{"id": 3, "product": "c", "amount": 5}',
]
NUMBERS = [str(n) for n in range(300)]


def read(directory: Path, text: str) -> Pipeline:
    (directory / "p.yaml").write_text(text)
    return load(directory / "p.yaml")


def test_tables_and_other_modes_than_append_are_left_to_our_own_runner(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        "pipeline: p\nsources: {a: {topic: a}}\nsinks:\n"
        "  table: {from: a, table: t}\n  latest: {from: a, topic: b, mode: update}\n  copy: {from: a, topic: c}\n",
    )

    assert [(problem.place.line, problem.fix) for problem in why_not(pipeline)] == [
        (4, "Run it with `ottla pipeline run`"),
        (5, "Run it with `ottla pipeline run`"),
    ]
    with pytest.raises(PipelineInvalid, match=r"(?s)p\.yaml:4: .*p\.yaml:5: "):
        declare(pipeline, bootstrap="127.0.0.1:9092")


def test_it_must_be_said_where_the_brokers_are(tmp_path: Path) -> None:
    pipeline = read(tmp_path, "pipeline: p\nsources: {a: {topic: a}}\nsinks: {b: {from: a, topic: b}}\n")

    with pytest.raises(PipelineInvalid, match="where the brokers are"):
        declare(pipeline)


def test_a_query_gets_its_frames_by_name_and_keeps_its_own_brackets() -> None:
    assert query_over(["a", "b"], "SELECT '{x}' FROM a JOIN b;\n") == (
        "WITH a AS (SELECT * FROM {_ottla_a}), b AS (SELECT * FROM {_ottla_b}) "
        "SELECT * FROM (\nSELECT '{{x}}' FROM a JOIN b\n)"
    )


def test_a_query_without_frames_keeps_its_brackets_as_they_are() -> None:
    assert query_over([], "SELECT '{x}' AS x; -- done") == "SELECT * FROM (\nSELECT '{x}' AS x\n)"


def test_sinks_whose_names_are_one_to_that_engine_are_refused(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        "pipeline: p\nsources: {a: {topic: a, format: json, schema: x INT, bad: a.bad}}\nsinks:\n"
        "  one.two: {from: a, topic: b}\n  one-two: {from: a, topic: c}\n  a_side: {from: a, topic: d}\n",
    )

    assert [(problem.place.line, problem.what) for problem in why_not(pipeline)] == [
        (5, "`one.two` and `one-two` are one name to Spark's own engine: one_two"),
        (2, "`a_side` and `a.side` are one name to Spark's own engine: a_side"),
    ]


class Ran(NamedTuple):
    """What one run of that engine has left behind."""

    topics: dict[str, list[bytes]]
    warehouse: Path


@pytest.fixture(scope="module")
def ran(spark_java: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A project with two files: a pipeline of ours, and the one on the page for Spark users, which needs only Spark.

    Each run of that engine takes half a minute to start.
    """
    directory = tmp_path_factory.mktemp("project")
    (directory / "transformations").mkdir()
    (directory / "spark-pipeline.yml").write_text(SPECIFICATION.format(directory=directory), encoding="utf-8")
    (directory / "shop.yaml").write_text(PIPELINE, encoding="utf-8")
    (directory / "shop_steps.py").write_text(FUNCTION, encoding="utf-8")
    with running(directory / "server") as server:
        broker = Broker(server.address, kind="ottla", server=server)
        files = {
            "shop": DECLARATION.format(directory=str(directory), bootstrap=server.address),
            "page": spark_page.pipeline(server.address),
        }
        for name, text in files.items():
            (directory / "transformations" / f"{name}.py").write_text(text, encoding="utf-8")
        broker.produce("orders", NUMBERS)
        broker.produce("shop", ORDERS)
        with broker.client.producer() as producer:
            for product, price in (("a", 5), ("a", 10), ("c", 1)):
                value = json.dumps({"product": product, "price": price}).encode()
                producer.send("products", value=value, key=product.encode())

        with connect_port():
            run([PIPELINES, "run"], directory, more={"PYSPARK_PYTHON": sys.executable})

        written = ("totals", "orders.bad", "orders.negative", "copies")
        topics = {topic: [value or b"" for value in broker.values(topic)] for topic in written}
        broker.close()
    return Ran(topics, directory / "spark-warehouse")


@pytest.mark.slow
def test_sparks_own_engine_runs_a_pipeline_of_ours(ran: Ran) -> None:
    assert sorted(json.loads(value)["total"] or 0 for value in ran.topics["totals"]) == [0, 40]
    assert ran.topics["orders.bad"] == [ORDERS[1].encode()]
    assert ran.topics["orders.negative"] == [ORDERS[2].encode()]


@pytest.mark.slow
def test_the_pipeline_on_the_page_fills_a_table_and_a_topic_from_a_topic(ran: Ran) -> None:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(ran.warehouse / "orders")
    expected = sorted(number.encode() for number in NUMBERS)

    assert sorted(table["value"].to_pylist()) == expected
    assert sorted(ran.topics["copies"]) == expected

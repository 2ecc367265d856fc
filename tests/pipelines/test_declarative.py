"""A pipeline of ours that Spark's own engine for pipelines runs, and those that it cannot run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ottla.pipelines.declarative import declare, query_over, why_not
from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.reading import load
from ottla.pipelines.spec import Pipeline
from tests.clients.server_process import running
from tests.spark.brokers import Broker
from tests.spark.programs import run

SPECIFICATION = """\
name: ottla_test
storage: file://{directory}/storage
libraries:
  - glob:
      include: transformations/**
"""
PIPELINES = str(Path(sys.executable).with_name("spark-pipelines"))
PIPELINE = """\
pipeline: shop
sources:
  orders:
    topic: orders
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
        "WITH a AS (SELECT * FROM {a}), b AS (SELECT * FROM {b}) SELECT * FROM (\nSELECT '{{x}}' FROM a JOIN b\n)"
    )


@pytest.mark.slow
def test_sparks_own_engine_runs_a_pipeline_of_ours(spark_java: Path, tmp_path: Path) -> None:
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(directory=tmp_path), encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "shop_steps.py").write_text(FUNCTION, encoding="utf-8")
    with running(tmp_path / "server") as server:
        broker = Broker(server.address, kind="ottla", server=server)
        declaration = DECLARATION.format(directory=str(tmp_path), bootstrap=server.address)
        (tmp_path / "transformations" / "all.py").write_text(declaration, encoding="utf-8")
        broker.produce("orders", ORDERS)
        with broker.client.producer() as producer:
            for product, price in (("a", 5), ("a", 10), ("c", 1)):
                value = json.dumps({"product": product, "price": price}).encode()
                producer.send("products", value=value, key=product.encode())

        run([PIPELINES, "run"], tmp_path, more={"PYSPARK_PYTHON": sys.executable})

        totals = sorted(json.loads(value or b"")["total"] or 0 for value in broker.values("totals"))
        away = [broker.values(topic) for topic in ("orders.bad", "orders.negative")]
        broker.close()
    assert totals == [0, 40]
    assert away == [[ORDERS[1].encode()], [ORDERS[2].encode()]]

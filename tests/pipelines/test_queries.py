"""The queries of a pipeline, planned and run: every kind of source, step and sink, and where each record ends up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.values import NewRecord, Record
from ottla.pipelines.frames import Frames
from ottla.pipelines.graph import graph
from ottla.pipelines.queries import QueryPlan, planned
from ottla.pipelines.reading import load
from ottla.pipelines.spec import Pipeline
from ottla.pipelines.starting import queries_for, start, trigger_of
from tests.pipelines.test_formats import AN_ORDER, ORDER, datum
from tests.spark.brokers import Broker
from tests.spark.queries import QUERY_SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WHOLE = """\
pipeline: whole
checkpoints: state
trigger: available-now
sources:
  orders:
    topic: {orders}
    format: json
    schema: id BIGINT, product STRING, amount DOUBLE, at TIMESTAMP
    bad: {bad}
    watermark: at 2 minutes
    expect:
      known: {{where: product IS NOT NULL, otherwise: drop}}
      recent: {{where: "at >= TIMESTAMP'2024-01-01 00:00:00Z'", otherwise: {{route: {late}}}}}
      positive: amount > 0
  products: {{topic: {products}, format: json, schema: "product STRING, price DOUBLE", read: latest}}
  lines: {{topic: {lines}, format: csv, schema: "id BIGINT, name STRING"}}
  packed: {{topic: {packed}, format: avro, schema_file: order.avsc}}
  clicks: {{topic: {clicks}}}
  countries: {{table: countries}}
  uploads: {{files: uploads, format: csv, schema: "id BIGINT, name STRING", stream: true}}
steps:
  priced: SELECT o.id, o.amount, o.at, p.price FROM orders o LEFT JOIN products p USING (product)
  scored:
    python: "steps_of_whole:score"
    from: [priced]
    expect:
      cheap: {{where: score < 18, otherwise: {{route: {dear}}}}}
  per_minute: |
    SELECT window.start AS minute, sum(amount) AS revenue
    FROM priced
    GROUP BY window(at, '1 minute')
  mixed: |
    SELECT l.name, l.id FROM lines l
    UNION ALL SELECT p.item.kind, p.id FROM packed p
    UNION ALL SELECT CAST(value AS STRING), offset FROM clicks
    UNION ALL SELECT c.name, u.id FROM uploads u JOIN countries c ON c.code = u.name
sinks:
  revenue: {{from: per_minute, topic: {revenue}, key: minute, mode: update}}
  scores: {{from: scored, topic: {scores}, key: id, value: "concat_ws(' ', id, score, price)"}}
  orders: {{from: priced, table: tables/orders, partition_by: date(at)}}
  mixed: {{from: mixed, format: json, options: {{path: out/mixed}}}}
"""
STEPS = """
from pyspark.sql import functions as F

def doubled(amount):
    return 2 * amount

def score(frame):
    return frame.withColumn("score", F.udf(doubled, "double")("amount"))
"""
TOPICS = ("orders", "bad", "late", "products", "lines", "packed", "clicks", "dear", "revenue", "scores")
PASSED = 10


def order(number: int, **other: Any) -> NewRecord:
    row = {
        "id": number,
        "product": f"p{number % 3}",
        "amount": 1.0 + number,
        "at": f"2024-05-05T00:0{number % 5}:00Z",
        **other,
    }
    return NewRecord(json.dumps(row).encode(), key=b"k%d" % number)


def whole(spark: SparkSession, broker: Broker, directory: Path) -> tuple[Pipeline, dict[str, str]]:
    """The pipeline with all its inputs, and the names of its topics."""
    topics = {name: broker.topic(2, stem=name) for name in TOPICS}
    (directory / "pipeline.yaml").write_text(WHOLE.format(**topics))
    (directory / "steps_of_whole.py").write_text(STEPS)
    (directory / "order.avsc").write_text(json.dumps(ORDER))
    spark.createDataFrame([("de", "Germany")], "code STRING, name STRING").write.parquet(str(directory / "countries"))
    (directory / "uploads").mkdir()
    (directory / "uploads" / "1.csv").write_text("7,de\n8,xx\n")
    prices = [("p0", 1.0), ("p1", 2.0), ("p0", 5.0), ("p2", 3.0)]
    broker.produce(
        topics["products"],
        [
            *(NewRecord(json.dumps({"product": p, "price": price}).encode(), key=p.encode()) for p, price in prices),
            NewRecord(None, key=b"p2"),
        ],
    )
    broker.produce(
        topics["orders"],
        [
            *(order(number) for number in range(PASSED)),
            order(10, product=None),
            order(11, at="2020-01-01T00:00:00Z", amount=-1),
            NewRecord(b'{"id": "x"}', key=b"bad", headers=(("trace", b"1"),)),
        ],
    )
    broker.produce(topics["lines"], ["1,one", "2,two"])
    broker.produce(topics["packed"], [datum(ORDER, AN_ORDER)])
    broker.produce(topics["clicks"], ["click"], partition=1)
    return load(directory / "pipeline.yaml"), topics


def ended(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX), f"still running after {QUERY_SECONDS_MAX} s: {query.status}"
    finally:
        query.stop()


def run_all(pipeline: Pipeline, spark: SparkSession, broker: Broker, *, only: Iterable[str] = ()) -> None:
    """Run the queries over what is there now, one after the other."""
    frames = Frames(pipeline, graph(pipeline), spark, bootstrap=broker.bootstrap)
    for query in queries_for(planned(pipeline, graph(pipeline)), frames):
        if not only or query.name in only:
            ended(start(query, frames, trigger=pipeline.trigger))


def by_key(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def headers_of(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers)


def test_every_kind_of_source_step_and_sink_in_one_pipeline(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    pipeline, topics = whole(spark, broker, tmp_path)
    run_all(pipeline, spark, broker)

    revenue = by_key(broker.records(topics["revenue"]))
    assert {key: json.loads(value or b"")["revenue"] for key, value in revenue.items()} == {
        b"2024-05-05T00:0%d:00.000000Z" % minute: 7.0 + 2 * minute for minute in range(5)
    }
    scores = by_key(broker.records(topics["scores"]))
    prices = {0: " 5.0", 1: " 2.0", 2: ""}
    assert scores == {
        b"%d" % n: f"{n} {2.0 * (n + 1)}{prices[n % 3]}".encode() for n in range(PASSED) if 2 * (n + 1) < 18
    }
    from ottla.pipelines.tables import read_table

    table = read_table(spark, str(tmp_path / "tables" / "orders"))
    assert sorted(row["id"] for row in table.collect()) == list(range(PASSED))
    mixed = spark.read.json(str(tmp_path / "out" / "mixed"))
    assert Counter((row["name"], row["id"]) for row in mixed.collect()) == {
        ("one", 1): 1,
        ("two", 2): 1,
        ("TOY", 5): 1,
        ("click", 0): 1,
        ("Germany", 7): 1,
    }
    # What was sent away: bad records and those against rules as they came, rows of a step as JSON.
    (bad,) = broker.records(topics["bad"])
    assert (bad.key, bad.value) == (b"bad", b'{"id": "x"}')
    told = headers_of(bad)
    assert told["trace"] == b"1"
    assert told["ottla.reason"] == b"the value is no JSON object of the schema"
    assert (told["ottla.source"] or b"").startswith(topics["orders"].encode() + b"-")
    (late,) = broker.records(topics["late"])
    assert (late.key, headers_of(late)["ottla.rule"]) == (b"k11", b"recent")
    dear = [json.loads(value or b"") for value in broker.values(topics["dear"])]
    assert sorted((row["id"], row["score"]) for row in dear) == [(8, 18.0), (9, 20.0)]

    # As if the driver had died before it noted that the last batch of a query was done.
    commits = tmp_path / "state" / "revenue" / "commits"
    max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    run_all(pipeline, spark, broker, only=["revenue"])
    assert len(broker.records(topics["revenue"])) == len(revenue)


LIVE = """\
pipeline: live
sources:
  orders: {{topic: {orders}, format: json, schema: "id BIGINT, product STRING"}}
  products: {{topic: {products}, format: json, schema: "product STRING, price DOUBLE", read: latest}}
steps:
  priced: SELECT id, price FROM orders JOIN products USING (product) WHERE id > 0
sinks:
  out: {{from: priced, topic: {out}, key: id}}
"""


def test_the_latest_of_each_key_is_looked_up_anew_for_each_batch_and_a_bad_record_ends_the_query(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topics = {name: broker.topic(2 if name == "products" else 1, stem=name) for name in ("orders", "products", "out")}
    (tmp_path / "live.yaml").write_text(LIVE.format(**topics))
    pipeline = load(tmp_path / "live.yaml")
    frames = Frames(pipeline, graph(pipeline), spark, bootstrap=broker.bootstrap)
    (plan,) = planned(pipeline, graph(pipeline))
    query = start(plan, frames, trigger=None)
    try:
        # By offsets where the partition is the same, whatever the timestamps say; by timestamps where it is not.
        for number, (partition, timestamp_ms) in enumerate([(1, 2_000), (1, 1_000), (0, 3_000), (1, 2_500)], start=1):
            price = json.dumps({"product": "p", "price": float(number)}).encode()
            record = NewRecord(price, key=b"p", timestamp_ms=timestamp_ms)
            broker.produce(topics["products"], [record], partition=partition)
            broker.produce(topics["orders"], [json.dumps({"id": number, "product": "p"})])
            query.processAllAvailable()
        assert [json.loads(value or b"")["price"] for value in broker.values(topics["out"])] == [1.0, 2.0, 3.0, 3.0]
        # Its columns are null, and the step's condition would keep it from being noticed.
        broker.produce(topics["orders"], ["no JSON"])
        with pytest.raises(
            Exception, match=rf"the value is no JSON object of the schema at {topics['orders']}-0@4.*`bad:`"
        ):
            query.processAllAvailable()
    finally:
        query.stop()


# --- plans, without Spark -----------------------------------------------------------------------------


def plans_of(directory: Path) -> dict[str, QueryPlan]:
    (directory / "pipeline.yaml").write_text(WHOLE.format(**{name: name for name in TOPICS}))
    (directory / "order.avsc").write_text(json.dumps(ORDER))
    pipeline = load(directory / "pipeline.yaml")
    return {plan.name: plan for plan in planned(pipeline, graph(pipeline))}


def test_each_sink_and_each_node_that_sends_records_away_is_a_query(tmp_path: Path) -> None:
    plans = plans_of(tmp_path)
    assert list(plans) == ["revenue", "scores", "orders", "mixed", "orders.side", "scored.side"]
    assert plans["orders.side"].topics == ("bad", "late")
    assert plans["scored.side"].topics == ("dear",)
    assert plans["orders.side"].sink is None


def test_each_query_has_a_checkpoint_of_its_own_beside_the_file(tmp_path: Path) -> None:
    plans = plans_of(tmp_path)
    assert {plan.checkpoint for plan in plans.values()} == {str(tmp_path / "state" / name) for name in plans}


def test_a_place_with_a_scheme_is_a_place_for_checkpoints(tmp_path: Path) -> None:
    plans_of(tmp_path)
    pipeline = load(tmp_path / "pipeline.yaml")
    elsewhere = replace(pipeline, checkpoints="s3a://bucket/state/")
    assert planned(elsewhere, graph(elsewhere))[0].checkpoint == "s3a://bucket/state/revenue"


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("available-now", {"availableNow": True}),
        ("5 seconds", {"processingTime": "5 seconds"}),
        (None, {"processingTime": "0 seconds"}),
    ],
)
def test_a_trigger_is_an_interval_or_what_is_available_now(trigger: str | None, expected: dict[str, Any]) -> None:
    assert trigger_of(trigger) == expected

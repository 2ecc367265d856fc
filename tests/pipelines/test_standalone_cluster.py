"""A pipeline on a cluster of Spark's own, by the command that a user types."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ottla.client.values import NewRecord
from tests.pipelines.crashes.written import rows
from tests.spark.brokers import Broker
from tests.spark.programs import run
from tests.spark.standalone import standalone_cluster

TEXT = """
pipeline: on-a-cluster
spark: {{spark.executor.memory: 600m, spark.sql.shuffle.partitions: 2}}
sources:
  orders: {{topic: {orders}, format: json, schema: "id BIGINT, product STRING", bad: {bad}}}
  products: {{topic: {products}, format: json, schema: "product STRING, price DOUBLE", read: latest}}
steps:
  shouted: {{python: "steps_of_cluster:shouted", from: [orders]}}
  priced: SELECT id, loud, price FROM shouted JOIN products USING (product)
sinks:
  copies: {{from: priced, topic: {copies}, key: id}}
  table: {{from: priced, table: table}}
"""
STEPS = """
from pyspark.sql.functions import udf

@udf("string")
def loud(text):
    return text.upper()

def shouted(orders):
    return orders.withColumn("loud", loud("product"))
"""
ORDERS = 50


def test_a_cluster_runs_a_pipeline_with_a_function_of_python_and_a_topic_that_is_looked_up(
    ottla_broker_process: Broker, spark_java: Path, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topics = {name: broker.topic(2, stem=name) for name in ("orders", "bad", "products", "copies")}
    (tmp_path / "shop.yaml").write_text(TEXT.format(**topics), encoding="utf-8")
    (tmp_path / "steps_of_cluster.py").write_text(STEPS, encoding="utf-8")
    broker.produce(topics["products"], [NewRecord(json.dumps({"product": "pen", "price": 2.5}).encode(), b"pen")])
    orders = [json.dumps({"id": number, "product": "pen"}) for number in range(ORDERS)]
    broker.produce(topics["orders"], [*orders, "nonsense"])
    with standalone_cluster(tmp_path) as master:
        words = [sys.executable, "-m", "ottla", "pipeline", "run", "shop.yaml", "--once", "--master", master]
        run([*words, "--bootstrap", broker.bootstrap], tmp_path)

    expected = dict.fromkeys(range(ORDERS), ("PEN", 2.5))
    copied = [json.loads(value or b"") for value in broker.values(topics["copies"])]
    assert len(copied) == ORDERS
    assert {each["id"]: (each["loud"], each["price"]) for each in copied} == expected
    found = rows(tmp_path / "table")
    assert len(found) == ORDERS
    assert {row["id"]: (row["loud"], row["price"]) for row in found} == expected
    assert broker.values(topics["bad"]) == [b"nonsense"]

"""A run of Spark Declarative Pipelines that reads a topic into a table and copies it to another topic."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients.server_process import running
from tests.spark import spark_page
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


def test_the_pipeline_on_the_page_fills_a_table_and_a_topic_from_a_topic(spark_java: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(directory=tmp_path), encoding="utf-8")
    with running(tmp_path / "server") as server:
        broker = Broker(server.address, kind="ottla", server=server)
        broker.produce("orders", [str(n) for n in range(300)])
        transformations = spark_page.pipeline(server.address)
        (tmp_path / "transformations" / "all.py").write_text(transformations, encoding="utf-8")

        run([PIPELINES, "run"], tmp_path, more={"PYSPARK_PYTHON": sys.executable})

        copied = broker.values("copies")
        broker.close()
    table = pyarrow.parquet.read_table(tmp_path / "spark-warehouse" / "orders")
    expected = sorted(b"%d" % n for n in range(300))
    assert sorted(table["value"].to_pylist()) == expected
    assert sorted(value or b"" for value in copied) == expected

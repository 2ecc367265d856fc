"""The page for Spark users, held against the code: its programs run, its commands work, its tables are complete."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.spark import kafka_options, option_names, schema, sink_columns
from tests.clients.server_process import ServerProcess, running
from tests.spark import spark_page
from tests.spark.programs import ROOT, run, run_python

OF_THE_SINK = {"topic", "deliveryGuarantee", "txnAppId", "txnVersion"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """As the page starts it: with default settings."""
    with running(tmp_path / "server") as started:
        yield started


def test_a_reader_who_types_the_page_gets_what_it_says(spark_java: Path, server: ServerProcess, tmp_path: Path) -> None:
    said = run_python("\n".join(spark_page.programs(server.address)), tmp_path)
    shell = {"OTTLA_BOOTSTRAP": server.address}
    answers = {
        command: run([sys.executable, "-m", "ottla", *command.split()], tmp_path, more=shell)
        for command in spark_page.ottla_commands()
    }

    assert "customer" in said
    assert said.splitlines()[-1] == "10"
    big = answers["consume big-orders --from beginning --max 10"].split()
    assert sorted(big) == [str(n) for n in range(990, 1_000)]
    assert "orders" in answers["groups describe big-orders"]


def test_the_example_copies_each_big_order_once(spark_java: Path, tmp_path: Path) -> None:
    said = run([sys.executable, str(ROOT / "examples" / "spark_first_query.py"), str(tmp_path / "data")], tmp_path)

    assert "The topic has 1000 orders." in said
    assert said.splitlines()[-1].endswith(str(list(range(990, 1_000))))


def test_the_page_has_every_option_in_its_tables() -> None:
    pytest.importorskip("pyspark")
    listed = spark_page.first_cells("Options of the source") | spark_page.first_cells("Options of the sink")

    assert listed - {"kafka.bootstrap.servers", "kafka.group.id"} == set(option_names.NAMES)


def test_the_page_has_the_options_of_the_sink_in_a_table_of_their_own() -> None:
    assert spark_page.first_cells("Options of the sink") >= OF_THE_SINK
    assert not spark_page.first_cells("Options of the source") & OF_THE_SINK


def test_the_page_has_every_column() -> None:
    pytest.importorskip("pyspark")

    assert spark_page.first_cells("Columns") == {*schema.ALL_COLUMNS, sink_columns.TIMESTAMP}


def test_the_page_names_every_setting_of_kafkas_that_is_refused() -> None:
    text = spark_page.section("Settings of Kafka's")
    refused = kafka_options.REFUSED_READING.keys() | kafka_options.REFUSED_WRITING.keys()
    by_kind = {name for name in refused if name.endswith("serializer")}

    assert {name for name in refused - by_kind if f"`kafka.{name}`" not in text} == set()

"""The page for Spark users, held against the code: its programs run, its commands work, its tables are complete."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.spark import kafka_options, option_names, schema, sink_columns
from tests.clients.server_process import running
from tests.spark import spark_page
from tests.spark.programs import ROOT, run, run_python

BETWEEN = "the example:"
OF_THE_SINK = {"topic", "deliveryGuarantee", "txnAppId", "txnVersion"}


class Read(NamedTuple):
    """What a reader sees who types the page into one Python, runs the example in it, and then types the commands."""

    page: str
    example: str
    answers: dict[str, str]
    """By command."""


@pytest.fixture(scope="module")
def read(spark_java: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Both in one program, as the second Spark of a program starts much more quickly than another program's."""
    directory = tmp_path_factory.mktemp("page")
    example = [f"print({BETWEEN!r})", "import runpy, sys", f"sys.argv = ['', {str(directory / 'data')!r}]"]
    example.append(f"runpy.run_path({str(ROOT / 'examples' / 'spark_first_query.py')!r}, run_name='__main__')")
    # As the page starts it: with default settings.
    with running(directory / "server") as server:
        said = run_python("\n".join([*spark_page.programs(server.address), "spark.stop()", *example]), directory)
        shell = {"OTTLA_BOOTSTRAP": server.address}
        answers = {
            command: run([sys.executable, "-m", "ottla", *command.split()], directory, more=shell)
            for command in spark_page.ottla_commands()
        }
    page, _, rest = said.partition(f"{BETWEEN}\n")
    return Read(page, rest, answers)


def test_a_reader_who_types_the_page_gets_what_it_says(read: Read) -> None:
    assert "customer" in read.page
    assert read.page.splitlines()[-1] == "10"
    big = read.answers["consume big-orders --from beginning --max 10"].split()
    assert sorted(big) == [str(n) for n in range(990, 1_000)]
    assert "orders" in read.answers["groups describe big-orders"]


def test_the_example_copies_each_big_order_once(read: Read) -> None:
    assert "The topic has 1000 orders." in read.example
    assert read.example.splitlines()[-1].endswith(str(list(range(990, 1_000))))


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

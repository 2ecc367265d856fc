"""A topic as a table, as a pipeline; and what `ottla table` prints. Without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.pipelines.graph import graph
from ottla.pipelines.spec import Json, Raw, SqlStep, TableSink, TopicSource
from ottla.pipelines.tables.from_topic import InvalidRequest, TopicTable, bad_topic, pipeline_of
from ottla.testing.server_thread import ServerThread
from tests.pipelines.tables.plain_rows import plain_table

SCHEMA = "id BIGINT, name STRING"


def _wanted(**more: Any) -> TopicTable:
    return TopicTable(**{"topic": "users", "path": "/tables/users", **more})


def test_a_topic_becomes_a_source_and_a_table_that_keeps_its_own_place() -> None:
    pipeline = pipeline_of(_wanted(format="json", schema=SCHEMA, partition_by=("date(at)",)), directory=Path("/here"))

    source, sink = pipeline.sources["records"], pipeline.sinks["rows"]
    assert isinstance(source, TopicSource)
    assert isinstance(sink, TableSink)
    assert (source.topic, source.format, source.starting, source.bad) == (
        "users",
        Json(SCHEMA),
        "earliest",
        "users.bad",
    )
    assert (sink.input, sink.path, sink.partition_by, sink.keys) == ("records", "/tables/users", ("date(at)",), ())
    assert pipeline.checkpoints == "/tables/users/_ottla/queries/users"
    assert bad_topic(pipeline) == "users.bad"
    assert graph(pipeline).warnings == ()


def test_two_tables_of_one_topic_are_two_runs() -> None:
    """A second run of one name would be refused."""
    names = {pipeline_of(_wanted(path=path), directory=Path("/here")).name for path in ("/a", "/b", "/a")}

    assert len(names) == 2


def test_two_topics_in_one_table_have_a_place_each() -> None:
    places = {pipeline_of(_wanted(topic=topic), directory=Path("/here")).checkpoints for topic in ("a", "b")}

    assert len(places) == 2


def test_by_key_a_record_without_a_value_deletes_and_is_not_bad() -> None:
    pipeline = pipeline_of(_wanted(format="json", schema=SCHEMA, by_key=True), directory=Path("/here"))

    source, step, sink = pipeline.sources["records"], pipeline.steps["latest"], pipeline.sinks["rows"]
    assert isinstance(source, TopicSource)
    assert isinstance(step, SqlStep)
    assert isinstance(sink, TableSink)
    assert source.format == Raw()
    assert source.expect[0].where.startswith("value IS NULL OR")
    assert "value IS NULL AS _deleted" in step.sql
    assert (sink.input, sink.keys, sink.deleted) == ("latest", ("_key",), "_deleted")
    assert bad_topic(pipeline) == "users.bad"


def test_by_key_what_every_record_has_can_be_the_order() -> None:
    wanted = _wanted(format="json", schema=SCHEMA, by_key=True, order="_timestamp")

    sink = pipeline_of(wanted, directory=Path("/here")).sinks["rows"]

    assert isinstance(sink, TableSink)
    assert sink.order == "_timestamp"


def test_records_as_they_are_have_none_that_are_bad() -> None:
    assert bad_topic(pipeline_of(_wanted(), directory=Path("/here"))) is None
    assert bad_topic(pipeline_of(_wanted(by_key=True), directory=Path("/here"))) is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"format": "json"}, "needs --schema"),
        ({"format": "avro"}, "needs --schema-file"),
        ({"format": "xml"}, "no format 'xml'"),
        ({"schema": SCHEMA}, "give --format too"),
        ({"by_key": True, "keys": ("id",)}, "not both"),
        ({"order": "id"}, "give --keys or --by-key"),
        ({"by_key": True, "format": "csv", "schema": SCHEMA}, "json or raw"),
        ({"by_key": True, "format": "json", "schema": SCHEMA, "order": "id"}, "could not delete its row"),
    ],
)
def test_what_contradicts_itself_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        pipeline_of(_wanted(**more), directory=Path("/here"))


def _ottla_table(*arguments: str) -> subprocess.CompletedProcess[str]:
    # The commands of tables alone: nothing here needs the others.
    program = "import typer; from ottla.cli.main import Commands; from ottla.cli.table import app; "
    program += "main = typer.Typer(cls=Commands, pretty_exceptions_enable=False); "
    program += "main.add_typer(app, name='table'); main()"
    return subprocess.run(
        [sys.executable, "-c", program, "table", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def ottla_broker(tmp_path: Path) -> Iterator[ServerThread]:
    server = ServerThread(str(tmp_path / "data"), None)
    server.start()
    yield server
    server.stop()


def test_a_slip_of_the_pen_makes_no_topic_for_bad_records(tmp_path: Path, ottla_broker: ServerThread) -> None:
    words = ("--path", str(tmp_path / "t"), "--format", "json", "--schema", SCHEMA)

    done = _ottla_table("create", "oders", *words, "--bootstrap", ottla_broker.bootstrap)

    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no topic 'oders'" in done.stderr
    with ottla.connect(ottla_broker.bootstrap) as client:
        assert client.admin().describe_topic("oders.bad") is None


def test_a_table_is_shown_with_its_columns_versions_and_applications(tmp_path: Path) -> None:
    table, _ = plain_table(tmp_path / "t", keys=("id",), merged_always_bytes=1_000)
    for number in range(2):
        table.write_batch([{"id": 1, "name": "a"}], application="the query", batch_id=number)

    shown = _ottla_table("show", str(tmp_path / "t"))

    assert shown.returncode == 0, shown.stderr
    assert "version 2, 1 rows in 1 files" in shown.stdout
    assert "name\tstring" in shown.stdout
    assert "the query\t1" in shown.stdout
    assert "no longer held: 1 files" in shown.stdout


def test_a_table_is_shown_as_json(tmp_path: Path) -> None:
    table, _ = plain_table(tmp_path / "t")
    table.write_batch([{"id": 1}], application="q", batch_id=0)

    shown = json.loads(_ottla_table("show", str(tmp_path / "t"), "--json").stdout)

    assert (shown["version"], shown["rows"], shown["applications"]) == (
        1,
        1,
        [{"application": "q", "batches": [[0, 0]]}],
    )


def test_a_vacuum_says_what_it_deleted(tmp_path: Path) -> None:
    table, _ = plain_table(tmp_path / "t", keys=("id",), merged_always_bytes=1_000)
    for number in range(2):
        table.write_batch([{"id": 1}], application="q", batch_id=number)

    done = _ottla_table("vacuum", str(tmp_path / "t"), "--grace-minutes", "0")

    assert done.returncode == 0, done.stderr
    assert "1 files deleted, 10 bytes" in done.stdout
    assert len(list((tmp_path / "t" / "_ottla" / "files").iterdir())) == 1


def test_where_no_table_is_the_command_says_so(tmp_path: Path) -> None:
    shown = _ottla_table("show", str(tmp_path))

    assert shown.returncode == 1
    assert "there is no table here" in shown.stderr

"""Pipelines are read from YAML as they are declared, and everything that is wrong with a file is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.formats import HIDDEN
from ottla.pipelines.reading import load
from ottla.pipelines.spec import (
    Avro,
    Csv,
    FileSource,
    FormatSink,
    Json,
    Pipeline,
    Place,
    PythonStep,
    Raw,
    Rule,
    SqlStep,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
    Watermark,
)

BROKEN = Path(__file__).parent / "broken"
FILES = sorted(path.stem for path in BROKEN.glob("*.yaml"))
LEAST = "pipeline: p\nsources: {a: {topic: a}}\nsinks: {b: {from: a, topic: b}}\n"


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


class Reader:
    """Reads pipelines from texts."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "p.yaml"

    def __call__(self, text: str | bytes) -> Pipeline:
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(self.path)

    def refused(self, text: str | bytes) -> list[str]:
        """One line for each problem, without the directory."""
        with pytest.raises(PipelineInvalid) as caught:
            self(text)
        return str(caught.value).replace(f"{self.path.parent}/", "").splitlines()

    def place(self, line: int) -> Place:
        return Place(str(self.path), line)


# --- broken files -------------------------------------------------------------------------------------


def test_there_are_at_least_twenty_broken_files() -> None:
    assert len(FILES) >= 20


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused_with_every_problem_its_line_and_its_fix(name: str) -> None:
    with pytest.raises(PipelineInvalid) as caught:
        load(BROKEN / f"{name}.yaml")

    message = str(caught.value).replace(f"{BROKEN}/", "")
    assert message == (BROKEN / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


def test_problems_are_sorted_by_line() -> None:
    with pytest.raises(PipelineInvalid) as caught:
        load(BROKEN / "unknown_keys.yaml")

    lines = [problem.place.line for problem in caught.value.problems]
    assert lines == sorted(lines)
    assert len(lines) > 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalid, match=r"missing\.yaml:1: there is no such file"):
        load(tmp_path / "missing.yaml")


def test_a_directory_is_no_pipeline(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").mkdir()

    with pytest.raises(PipelineInvalid, match="cannot be read"):
        load(tmp_path / "p.yaml")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalid, match=r"\.json.*ends in \.yaml, \.yml or \.py"):
        load(tmp_path / "p.json")


def test_bytes_that_are_no_text_are_refused(read: Reader) -> None:
    assert read.refused(b"pipeline: \xff\xfe") == ["p.yaml:1: the file is not UTF-8. Save it as UTF-8 text."]


def test_a_control_character_is_found_in_its_line(read: Reader) -> None:
    assert read.refused(f"pipeline: p\nbootstrap: \x07\n{LEAST}")[0].startswith("p.yaml:2: a character stands here")


def test_brackets_without_end_are_refused_and_break_nothing(read: Reader) -> None:
    assert "nested too deeply" in read.refused("pipeline: " + "[" * 100_000)[0]


# --- whole files --------------------------------------------------------------------------------------


def test_the_least_that_a_pipeline_needs_is_a_name_a_source_and_a_sink(read: Reader) -> None:
    assert read(LEAST) == Pipeline(
        name="p",
        place=read.place(1),
        checkpoints=".ottla/p",
        sources={"a": TopicSource(name="a", place=read.place(2), topic="a", format=Raw())},
        steps={},
        sinks={"b": TopicSink(name="b", place=read.place(3), input="a", topic="b")},
    )


def test_the_top_of_the_file_is_read_as_it_is_written(read: Reader) -> None:
    pipeline = read(
        "bootstrap: one:9092,two\ncheckpoints: state\ntrigger: 1 hour 30 minutes\n"
        f"spark: {{spark.sql.shuffle.partitions: 4, spark.ui.enabled: no}}\n{LEAST}"
    )

    assert (pipeline.bootstrap, pipeline.checkpoints) == ("one:9092,two", "state")
    assert pipeline.trigger == "1 hour 30 minutes"
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}


def test_a_pipeline_may_take_what_is_there_and_end(read: Reader) -> None:
    assert read(f"trigger: available-now\n{LEAST}").trigger == "available-now"


def test_a_byte_order_mark_in_front_is_no_mistake(read: Reader) -> None:
    assert read(b"\xef\xbb\xbf" + LEAST.encode()).name == "p"


def test_words_that_yaml_takes_for_switches_are_names_like_any_other(read: Reader) -> None:
    pipeline = read("pipeline: no\nsources:\n  yes: {topic: on}\nsinks:\n  off: {from: yes, topic: y}\n")

    assert pipeline.name == "no"
    assert pipeline.sources["yes"].name == "yes"
    assert pipeline.sinks["off"] == TopicSink(name="off", place=read.place(5), input="yes", topic="y")


def test_parts_that_are_alike_can_be_shared_with_an_anchor(read: Reader) -> None:
    pipeline = read(
        "pipeline: p\nsources:\n"
        "  a: &json {topic: a, format: json, schema: id BIGINT}\n"
        "  b: {<<: *json, topic: b}\n"
        "sinks: {c: {from: a, topic: c}, d: {from: b, topic: d}}\n"
    )

    assert pipeline.sources["b"] == TopicSource(name="b", place=read.place(4), topic="b", format=Json("id BIGINT"))


# --- sources ------------------------------------------------------------------------------------------


def test_a_topic_is_read_with_all_that_it_says(read: Reader) -> None:
    pipeline = read(
        """\
pipeline: p
sources:
  orders:
    topic: shop.orders
    format: json
    schema: id BIGINT, paid STRUCT<amount:DOUBLE, currency:STRING>, time TIMESTAMP
    starting: -10m
    bad: shop.bad
    watermark: time 2 minutes
    expect:
      positive: paid.amount > 0
      known: {where: id IS NOT NULL, otherwise: drop}
      early: {where: "time < _timestamp", otherwise: {route: shop.late}}
    options: {maxOffsetsPerTrigger: 100000, failOnDataLoss: off}
sinks: {copy: {from: orders, topic: copy}}
"""
    )

    assert pipeline.sources["orders"] == TopicSource(
        name="orders",
        place=read.place(3),
        topic="shop.orders",
        format=Json("id BIGINT, paid STRUCT<amount:DOUBLE, currency:STRING>, time TIMESTAMP"),
        starting="-10m",
        bad="shop.bad",
        watermark=Watermark("time", "2 minutes"),
        expect=(
            Rule("positive", read.place(11), "paid.amount > 0", "fail"),
            Rule("known", read.place(12), "id IS NOT NULL", "drop"),
            Rule("early", read.place(13), "time < _timestamp", "route", "shop.late"),
        ),
        options={"maxOffsetsPerTrigger": "100000", "failOnDataLoss": "false"},
    )


def test_a_topic_may_be_read_as_the_latest_of_each_key(read: Reader) -> None:
    source = read(LEAST.replace("{a: {topic: a}}", "{a: {topic: a}, t: {topic: t, read: latest}}")).sources["t"]

    assert isinstance(source, TopicSource)
    assert source.latest_by_key


def test_values_may_be_separated_by_tabs(read: Reader) -> None:
    source = read(
        LEAST.replace("{topic: a}", r'{topic: a, format: csv, schema: "id BIGINT, name STRING", separator: "\t"}')
    ).sources["a"]

    assert isinstance(source, TopicSource)
    assert source.format == Csv("id BIGINT, name STRING", "\t")


def test_avro_has_its_schema_in_a_file_beside_the_pipeline(read: Reader) -> None:
    (read.path.parent / "order.avsc").write_text('{"type": "record", "name": "Order", "fields": []}')
    source = read(LEAST.replace("{topic: a}", "{topic: a, format: avro, schema_file: order.avsc, jar: true}"))

    assert source.sources["a"] == TopicSource(
        name="a", place=read.place(2), topic="a", format=Avro("order.avsc", jar=True)
    )


def test_tables_and_files_are_sources_too(read: Reader) -> None:
    pipeline = read(
        """\
pipeline: p
sources:
  countries: {table: tables/countries, expect: {known: code IS NOT NULL}}
  uploads: {files: in, format: csv, schema: id BIGINT, stream: yes, options: {header: true}}
steps:
  both: SELECT * FROM uploads CROSS JOIN countries
sinks: {copy: {from: both, topic: copy}}
"""
    )

    assert pipeline.sources == {
        "countries": TableSource(
            name="countries",
            place=read.place(3),
            path="tables/countries",
            expect=(Rule("known", read.place(3), "code IS NOT NULL", "fail"),),
        ),
        "uploads": FileSource(
            name="uploads",
            place=read.place(4),
            path="in",
            format="csv",
            schema="id BIGINT",
            stream=True,
            options={"header": "true"},
        ),
    }


# --- steps and sinks ----------------------------------------------------------------------------------


def test_a_step_is_a_text_in_sql_or_a_function_in_python(read: Reader) -> None:
    pipeline = read(
        """\
pipeline: p
sources: {a: {topic: a}}
steps:
  plain: SELECT * FROM a
  block: |
    SELECT *
    FROM plain
  section:
    sql: |
      SELECT * FROM block
    watermark: timestamp 1 hour
    expect: {keyed: key IS NOT NULL}
  scored: {python: "scores.model:score", from: [section, plain]}
sinks: {b: {from: scored, topic: b}}
"""
    )

    assert list(pipeline.steps.values()) == [
        SqlStep(name="plain", place=read.place(4), sql="SELECT * FROM a", sql_place=read.place(4)),
        SqlStep(name="block", place=read.place(5), sql="SELECT *\nFROM plain\n", sql_place=read.place(6)),
        SqlStep(
            name="section",
            place=read.place(8),
            sql="SELECT * FROM block\n",
            sql_place=read.place(10),
            watermark=Watermark("timestamp", "1 hour"),
            expect=(Rule("keyed", read.place(12), "key IS NOT NULL", "fail"),),
        ),
        PythonStep(name="scored", place=read.place(13), function="scores.model:score", inputs=("section", "plain")),
    ]


def test_sinks_are_topics_tables_and_formats(read: Reader) -> None:
    pipeline = read(
        """\
pipeline: p
sources: {a: {topic: a}}
sinks:
  topic: {from: a, topic: b, key: lower(key), value: value, mode: update, options: {kafka.linger.ms: 5}}
  table: {from: a, table: t, partition_by: date(timestamp), keys: [key], deleted: value IS NULL, order: offset}
  small: {from: a, table: u, partition_by: [topic, date(timestamp)], file_bytes_min: 1_000_000}
  shown: {from: a, format: console, mode: complete, options: {truncate: false}}
"""
    )

    assert list(pipeline.sinks.values()) == [
        TopicSink(
            name="topic",
            place=read.place(4),
            input="a",
            topic="b",
            key="lower(key)",
            value="value",
            mode="update",
            options={"kafka.linger.ms": "5"},
        ),
        TableSink(
            name="table",
            place=read.place(5),
            input="a",
            path="t",
            partition_by=("date(timestamp)",),
            keys=("key",),
            deleted="value IS NULL",
            order="offset",
        ),
        TableSink(
            name="small",
            place=read.place(6),
            input="a",
            path="u",
            partition_by=("topic", "date(timestamp)"),
            file_bytes_min=1_000_000,
        ),
        FormatSink(
            name="shown",
            place=read.place(7),
            input="a",
            format="console",
            mode="complete",
            options={"truncate": "false"},
        ),
    ]


def test_a_sink_may_have_the_name_of_a_source(read: Reader) -> None:
    assert set(read("pipeline: p\nsources: {a: {topic: a}}\nsinks: {a: {from: a, table: t}}\n").sinks) == {"a"}


def test_columns_may_stand_in_backquotes_and_the_day_of_one_may_have_a_name(read: Reader) -> None:
    sink = read(
        "pipeline: p\nsources: {a: {topic: a}}\n"
        'sinks: {t: {from: a, table: t, keys: ["`order id`", id], partition_by: date(timestamp) AS day}}\n'
    ).sinks["t"]

    assert isinstance(sink, TableSink)
    assert (sink.keys, sink.partition_by) == (("order id", "id"), ("date(timestamp) AS day",))


def test_one_directory_written_in_two_ways_is_one(read: Reader, tmp_path: Path) -> None:
    paths = {"b": "t", "c": f"{tmp_path}/x/../t", "d": f"file://{tmp_path}/t"}
    sinks = "".join(f"  {name}: {{from: a, table: '{path}'}}\n" for name, path in paths.items())
    told = read.refused(f"pipeline: p\nsources: {{a: {{topic: a}}}}\nsinks:\n{sinks}")

    assert ["`b` and `c` both" in told[0], "`b` and `d` both" in told[1]] == [True, True]


def test_files_that_are_read_as_they_appear_are_not_written_by_the_same_pipeline(read: Reader) -> None:
    told = read.refused(
        "pipeline: p\nsources: {a: {files: in, format: json, schema: x INT, stream: true}}\n"
        "sinks: {b: {from: a, format: json, options: {path: ./in/}}}\n"
    )

    assert told == [
        "p.yaml:3: the sink `b` writes to `in`, where the source `a` reads: the pipeline would feed itself. "
        "Write to another path."
    ]


def test_a_sink_does_not_write_into_the_checkpoints(read: Reader) -> None:
    told = read.refused(
        "pipeline: p\ncheckpoints: tables\nsources: {a: {topic: a}}\n"
        "sinks:\n  b: {from: a, table: tables/b}\n  c: {from: a, table: ./tables}\n  d: {from: a, table: tables/e}\n"
    )

    assert [line.split(". ")[0] for line in told] == [
        "p.yaml:5: the sink `b` writes to `tables/b`, where the checkpoints of the pipeline are",
        "p.yaml:6: the sink `c` writes to `tables`, where the checkpoints of the pipeline are",
    ]


def test_sinks_that_differ_only_in_case_would_share_a_directory_on_some_disks(read: Reader) -> None:
    told = read.refused(
        "pipeline: p\nsources: {a: {topic: a}}\nsinks:\n  b: {from: a, topic: b}\n  B: {from: a, topic: c}\n"
    )

    assert told == ["p.yaml:5: the sinks `b` and `B` differ only in case. Give one of the two another name."]


def test_a_file_that_is_a_link_has_its_neighbours_where_it_leads_to(read: Reader, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "p.yaml").symlink_to(read.path)
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    read.path.write_text(
        "pipeline: p\nsources: {a: {topic: a, format: avro, schema_file: order.avsc}}\n"
        "sinks: {b: {from: a, topic: b}}\n"
    )

    assert load(tmp_path / "links" / "p.yaml").sources["a"].name == "a"


def test_columns_that_would_be_hidden_are_refused(read: Reader) -> None:
    source = f"{{topic: a, format: json, schema: 'id INT, {HIDDEN}x INT'}}"
    told = read.refused(f"pipeline: p\nsources: {{a: {source}}}\nsinks: {{b: {{from: a, topic: b}}}}\n")

    assert told == [
        f"p.yaml:2: the source `a`: the column `{HIDDEN}x` begins with `{HIDDEN}`, which is kept for Ottla. Leave it "
        "out, or read the topic raw and take the values apart in a step."
    ]


def test_a_query_of_too_many_brackets_is_told_with_its_line(read: Reader) -> None:
    brackets = "(" * 5_000 + "1" + ")" * 5_000
    told = read.refused(
        "pipeline: p\nsources: {a: {topic: a}}\n"
        f"steps:\n  s: |\n    SELECT\n    {brackets}\n    FROM a\nsinks: {{b: {{from: a, topic: b}}}}\n"
    )

    assert told == ["p.yaml:6: the step `s`: brackets are nested more than 150 deep. Divide it into steps."]

"""A topic as a table, as a pipeline of one source and one sink. Pure: knows neither Spark nor a broker."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ottla.errors import OttlaError
from ottla.pipelines.spec import (
    Avro,
    Csv,
    Format,
    Json,
    Pipeline,
    Place,
    Raw,
    Rule,
    Source,
    SqlStep,
    Step,
    TableSink,
    TopicSource,
)

SOURCE = "records"
STEP = "latest"
SINK = "rows"
CHECKPOINTS = "_ottla/queries"
"""In the table's own directory: a table that is deleted takes its place in the topic with it."""


RECORD_COLUMNS = frozenset({"_key", "_partition", "_offset", "_timestamp", "_deleted"})
"""What a row of `--by-key` has of its record and not of the record's value."""


class InvalidRequest(OttlaError, ValueError):
    """What was asked for contradicts itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable:
    """What somebody wants to have as a table."""

    topic: str
    path: str
    format: str = "raw"
    schema: str | None = None
    schema_file: str | None = None
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    by_key: bool = False
    order: str | None = None
    trigger: str | None = None


def pipeline_of(wanted: TopicTable, *, directory: Path) -> Pipeline:
    """The pipeline that keeps the table. Paths that are not whole begin at `directory`."""
    place = Place(str(directory / "ottla table create"), 1)
    form = _format(wanted)
    if wanted.by_key and wanted.keys:
        raise InvalidRequest("give --keys, the columns, or --by-key, the key of the records; not both")
    if wanted.order and not (wanted.keys or wanted.by_key):
        raise InvalidRequest("--order says which row of a key counts: give --keys or --by-key too")
    if wanted.order and wanted.by_key and isinstance(form, Json):
        _refuse_order_without_value(wanted.order)
    steps: dict[str, Step] = {}
    source: Source
    if wanted.by_key:
        source, steps[STEP] = _latest(wanted, form, place)
    else:
        bad = None if isinstance(form, Raw) else f"{wanted.topic}.bad"
        source = TopicSource(name=SOURCE, place=place, topic=wanted.topic, format=form, bad=bad)
    sink = TableSink(
        name=SINK,
        place=place,
        input=STEP if wanted.by_key else SOURCE,
        path=wanted.path,
        partition_by=wanted.partition_by,
        keys=(_key_column(form),) if wanted.by_key else wanted.keys,
        deleted="_deleted" if wanted.by_key else None,
        order=wanted.order,
    )
    return Pipeline(
        # Of one topic there may be several tables, each with a run of its own.
        name=f"table-{wanted.topic}-{sha256(wanted.path.encode()).hexdigest()[:8]}",
        place=place,
        # And into one table may come several topics: the place in one of them says nothing of another.
        checkpoints=f"{wanted.path}/{CHECKPOINTS}/{wanted.topic}",
        sources={SOURCE: source},
        steps=steps,
        sinks={SINK: sink},
        trigger=wanted.trigger,
    )


def _refuse_order_without_value(order: str) -> None:
    """A column of the value is null where there is no value: such a record would come before all, and delete nothing.

    Expressions are left to those who write them.
    """
    column = order.strip().strip("`")
    if column.isidentifier() and column.lower() not in RECORD_COLUMNS:
        raise InvalidRequest(
            f"--order {column} with --by-key: a record without a value has no {column}, and could not delete its row. "
            "Order by _timestamp or _offset, or give --keys instead of --by-key"
        )


def bad_topic(pipeline: Pipeline) -> str | None:
    """Where the records go that are not of the format."""
    source = pipeline.sources[SOURCE]
    assert isinstance(source, TopicSource), "a table is made of a topic"
    return source.bad or next((rule.topic for rule in source.expect), None)


def _format(wanted: TopicTable) -> Format:
    if wanted.format in {"json", "csv"}:
        if wanted.schema is None:
            raise InvalidRequest(f"--format {wanted.format} needs --schema, such as 'id BIGINT, name STRING'")
        return Json(wanted.schema) if wanted.format == "json" else Csv(wanted.schema)
    if wanted.format == "avro":
        if wanted.schema_file is None:
            raise InvalidRequest("--format avro needs --schema-file, the Avro schema as JSON")
        return Avro(wanted.schema_file)
    if wanted.format != "raw":
        raise InvalidRequest(f"there is no format {wanted.format!r}; there are json, csv, avro and raw")
    if wanted.schema is not None or wanted.schema_file is not None:
        raise InvalidRequest("records as they are have no schema: give --format too, or leave the schema out")
    return Raw()


def _key_column(form: Format) -> str:
    return "key" if isinstance(form, Raw) else "_key"


def _latest(wanted: TopicTable, form: Format, place: Place) -> tuple[TopicSource, SqlStep]:
    """Records by their keys. One without a value is a deletion and not a bad record, so they are parsed in a step."""
    if isinstance(form, Raw):
        source = TopicSource(name=SOURCE, place=place, topic=wanted.topic, format=form)
        sql = f"SELECT *, partition AS _partition, offset AS _offset, value IS NULL AS _deleted FROM {SOURCE}"
        return source, SqlStep(name=STEP, place=place, sql=sql, sql_place=place)
    if not isinstance(form, Json):
        raise InvalidRequest("--by-key takes json or raw records; for others give --keys, the columns")
    parsed = _parsed(form.schema)
    rule = Rule(
        name="format",
        place=place,
        where=(
            f"value IS NULL OR ({parsed}.__corrupt IS NULL AND {parsed}.end = 1 AND size({parsed}.items) = 1 "
            f"AND {parsed}.items[0] IS NOT NULL)"
        ),
        otherwise="route",
        topic=f"{wanted.topic}.bad",
    )
    source = TopicSource(name=SOURCE, place=place, topic=wanted.topic, format=Raw(), expect=(rule,))
    sql = (
        "SELECT item.*, key AS _key, partition AS _partition, offset AS _offset, timestamp AS _timestamp, _deleted "
        f"FROM (SELECT *, value IS NULL AS _deleted, {parsed}.items[0] AS item FROM {SOURCE})"
    )
    return source, SqlStep(name=STEP, place=place, sql=sql, sql_place=place)


def _parsed(schema: str) -> str:
    """Values parsed strictly: as the one item of an array, so that text behind an object is seen."""
    text = schema.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "from_json(concat('{\"items\":[', CAST(value AS STRING), '],\"end\":1}'), "
        f"'items ARRAY<STRUCT<{text}>>, end INT, __corrupt STRING', "
        "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '__corrupt', 'timeZone', 'UTC'))"
    )

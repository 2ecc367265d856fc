"""Sources as a pipeline declares them: topics, tables and files. Asks neither a broker nor Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.pipelines import declared_rules
from ottla.pipelines.ddl import columns_in
from ottla.pipelines.fields import Fields, Problems, whole_section
from ottla.pipelines.formats import HIDDEN
from ottla.pipelines.spec import Avro, Csv, FileSource, Format, Json, Raw, Source, TableSource, TopicSource
from ottla.pipelines.yaml_places import Entry
from ottla.spark.errors import InvalidOption
from ottla.spark.options import read_options

TOPIC_KEYS = (
    "topic",
    "format",
    "schema",
    "schema_file",
    "separator",
    "jar",
    "starting",
    "read",
    "bad",
    "watermark",
    "expect",
    "options",
)
TABLE_KEYS = ("table", "expect")
FILE_KEYS = ("files", "format", "schema", "stream", "watermark", "expect", "options")
KINDS = ("topic", "table", "files")
FORMATS = ("json", "csv", "avro", "raw")
ADDED_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp")
"""What a parsed source has besides the columns of its schema."""
SET_BY_US = {
    "subscribe": "Name the topic with `topic:`",
    "subscribepattern": "Name the topic with `topic:`",
    "assign": "Name the topic with `topic:`",
    "startingoffsets": "Use `starting:`",
    "kafka.bootstrap.servers": "Use `bootstrap:` at the top of the file",
    "includeheaders": "Leave it out; headers are there where they are needed",
    "columns": "Leave it out, and select columns in a step",
    "holdfile": "Leave it out",
}
"""Options of `format("ottla")` that a pipeline decides itself, in lower case."""
STARTS_BY_TIME = frozenset({"startingtimestamp", "startingoffsetsbytimestamp"})
"""Options that come before `startingOffsets`, in lower case."""
_NESTED = ("ARRAY", "MAP", "STRUCT")
_SCHEMA = "id BIGINT, amount DOUBLE"
_ANY_ADDRESS = "localhost:9092"
"""Options are checked as a whole, and without an address they are none; nobody is called there."""


def source(entry: Entry, problems: Problems, *, directory: Path) -> Source | None:
    """The source, or None when too much of it is wrong; `directory` is where paths begin."""
    what = f"the source `{entry.key}`"
    section = whole_section(entry.node, problems, what=what, fix="Write `topic:`, `table:` or `files:` below it")
    if section is None:
        return None
    fields = Fields(section, problems, what=what)
    fields.line = entry.line
    kinds = [kind for kind in KINDS if kind in fields]
    if len(kinds) != 1:
        said = "has none of" if not kinds else "has more than one of"
        problems.report(entry.line, f"{what} {said} `topic`, `table` and `files`", "Give it exactly one of them")
        fields.only(tuple(dict.fromkeys((*TOPIC_KEYS, *TABLE_KEYS, *FILE_KEYS))))
        return None
    if kinds == ["topic"]:
        return _topic_source(entry, fields, directory)
    return _table_source(entry, fields) if kinds == ["table"] else _file_source(entry, fields)


# --- topics -------------------------------------------------------------------------------------------


def _topic_source(entry: Entry, fields: Fields, directory: Path) -> TopicSource | None:
    fields.only(TOPIC_KEYS, elsewhere={"stream": "is for files; a topic is a stream unless it says `read: latest`"})
    topic = declared_rules.topic(fields, "topic", written=False)
    form = _format(fields, directory)
    latest = fields.word("read", ("stream", "latest"), default="stream") == "latest"
    starting = fields.text("starting", example="earliest") or "earliest"
    watermark = declared_rules.watermark(fields)
    if latest and "watermark" in fields:
        what = "a watermark is for streams, and `read: latest` makes a table of the topic"
        fields.report("watermark", what, "Leave one of the two out")
    if latest and "starting" in fields and starting != "earliest":
        what = "`read: latest` always begins at the first record, or keys would be missing"
        fields.report("starting", what, "Leave `starting` out")
        starting = "earliest"
    bad = declared_rules.topic(fields, "bad", written=True)
    if bad is not None and isinstance(form, Raw) and not latest:
        fields.report("bad", "`bad` is set, but raw records are never bad", "Leave `bad` out, or name a `format`")
    options = fields.settings("options", example="{maxOffsetsPerTrigger: 100000}")
    expect = declared_rules.rules(fields)
    if topic is None or form is None:
        return None
    _check_read_options(fields, topic, starting, options, latest=latest)
    return TopicSource(
        name=entry.key,
        place=fields.problems.place(entry.line),
        topic=topic,
        format=form,
        starting=starting,
        latest_by_key=latest,
        bad=bad,
        watermark=watermark,
        expect=expect,
        options=options,
    )


def _format(fields: Fields, directory: Path) -> Format | None:
    name = fields.word("format", FORMATS, default="raw")
    if "format" in fields and fields.text("format", example="json") not in FORMATS:
        return None
    if name == "avro":
        return _avro(fields, directory)
    _refuse_keys(fields, {"schema_file": "is for `format: avro`", "jar": "is for `format: avro`"})
    if name != "csv":
        _refuse_keys(fields, {"separator": "is for `format: csv`"})
    if name == "raw":
        if "schema" in fields:
            fields.report("schema", "there is a schema, but raw records have none", "Add `format: json`, csv or avro")
        return Raw()
    if not fields.required("schema", fix=f"Write what a value holds, as `schema: {_SCHEMA}`"):
        return None
    schema = _schema(fields, is_of_topic=True)
    if name == "json":
        return None if schema is None else Json(schema)
    separator = _separator(fields)
    nested = [column for column in columns_in(schema or "") if column.type.upper().startswith(_NESTED)]
    if nested:
        what = f"the column `{nested[0].name}` is {nested[0].type}, which no line of csv can hold"
        fields.report("schema", what, "Declare it as STRING, and take it apart in a step")
        return None
    return None if schema is None or separator is None else Csv(schema, separator)


def _separator(fields: Fields) -> str | None:
    node = fields.node("separator")
    # A tab or a space is a separator too, so that this text is not stripped as others are.
    said = getattr(node, "text", None) if node is not None else ","
    if not said:
        fields.report("separator", "`separator` is empty", 'Write it as `separator: ";"`')
        return None
    if said == "\\" or any(character in said for character in '"\r\n'):
        what = "`separator` is a quote, a line break or a backslash, which mean something else in csv"
        fields.report("separator", what, 'Write it as `separator: ";"`')
        return None
    return str(said)


def _avro(fields: Fields, directory: Path) -> Avro | None:
    if "schema" in fields:
        fields.report("schema", "Avro has its schema in a file", "Use `schema_file: order.avsc`")
    _refuse_keys(fields, {"separator": "is for `format: csv`"})
    jar = fields.switch("jar")
    if not fields.required("schema_file", fix="Write it as `schema_file: order.avsc`"):
        return None
    name = fields.text("schema_file", example="order.avsc")
    if name is None:
        return None
    try:
        schema = json.loads((directory / name).read_text(encoding="utf-8"))
    except OSError:
        fields.report("schema_file", f"there is no file `{name}`", "Paths begin where the pipeline's file is")
        return None
    except ValueError:
        fields.report("schema_file", f"`{name}` is not JSON", "Put an Avro schema there, as JSON")
        return None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        fields.report("schema_file", f"`{name}` is not the schema of a record", 'Its `type` must be "record"')
        return None
    columns = [field.get("name") for field in schema.get("fields", ()) if isinstance(field, dict)]
    problem = _name_problem([column for column in columns if isinstance(column, str)], is_of_topic=True)
    if problem is not None:
        fields.report("schema_file", *problem)
        return None
    return Avro(name, jar)


def _schema(fields: Fields, *, is_of_topic: bool = False) -> str | None:
    schema = fields.text("schema", example=_SCHEMA)
    if schema is None:
        return None
    columns = columns_in(schema)
    for column in columns:
        if not column.name or not column.type:
            what = f"the schema has a column without a type: `{column.name}`" if column.name else "a column is missing"
            fields.report("schema", what, f"Write names and types, as `schema: {_SCHEMA}`")
            return None
    problem = _name_problem([column.name for column in columns], is_of_topic=is_of_topic)
    if problem is not None:
        fields.report("schema", *problem)
        return None
    return schema


def _name_problem(columns: Sequence[str], *, is_of_topic: bool) -> tuple[str, str] | None:
    """What is wrong with the names of columns, and what to do about it; records of topics bring some of their own."""
    seen = Counter(column.lower() for column in columns)
    for column in columns:
        if is_of_topic and column.lower() in ADDED_COLUMNS:
            return f"the column `{column}` is there already", "Give it another name"
        if is_of_topic and column.startswith(HIDDEN):
            fix = "Leave it out, or read the topic raw and take the values apart in a step"
            return f"the column `{column}` begins with `{HIDDEN}`, which is kept for Ottla", fix
        if seen[column.lower()] > 1:
            return f"the schema has the column `{column}` twice", "Give each column a name of its own"
    return None


def _check_read_options(fields: Fields, topic: str, starting: str, options: Mapping[str, str], *, latest: bool) -> None:
    allowed = {}
    for name, value in options.items():
        if name.lower() in SET_BY_US:
            fields.report("options", f"the option `{name}` is set by the pipeline", SET_BY_US[name.lower()])
        else:
            allowed[name] = value
    _check_starts(fields, topic, starting, allowed, latest=latest)
    whole = {"kafka.bootstrap.servers": _ANY_ADDRESS, "subscribe": topic, "startingOffsets": starting, **allowed}
    try:
        read_options(whole, streaming=not latest)
    except InvalidOption as error:
        is_start = error.option == "startingOffsets"
        # Spark hands names over in lower case, and so the error may spell them; users find their own spelling again.
        spelled = next((name for name in allowed if name.lower() == error.option.lower()), error.option)
        key, name = ("starting", "starting") if is_start else ("options", spelled)
        fields.report(key, f"`{name}`: {error.problem}", error.fix or "Give it another value, or leave it out")


def _check_starts(fields: Fields, topic: str, starting: str, options: Mapping[str, str], *, latest: bool) -> None:
    """A start is said once, and it is one of this topic."""
    others = [name for name in options if name.lower() in STARTS_BY_TIME]
    if others and latest:
        what = f"`{others[0]}`: `read: latest` always begins at the first record, or keys would be missing"
        fields.report("options", what, "Leave it out")
    elif others and "starting" in fields:
        what = f"`{others[0]}` comes before `starting`, which then means nothing"
        fields.report("options", what, "Leave one of the two out")
    try:
        offsets = json.loads(starting)
    except ValueError:
        return
    foreign = sorted(set(offsets) - {topic}) if isinstance(offsets, dict) else []
    if foreign:
        what = f"`starting` has offsets of `{foreign[0]}`, and the source reads `{topic}`"
        fields.report("starting", what, f"Name `{topic}` there, and no other topic")


# --- tables and files ---------------------------------------------------------------------------------


def _table_source(entry: Entry, fields: Fields) -> TableSource | None:
    others = dict.fromkeys(TOPIC_KEYS, "is for topics") | dict.fromkeys(FILE_KEYS, "is for topics and files")
    fields.only(TABLE_KEYS, elsewhere=others)
    path = fields.text("table", example="tables/countries")
    expect = declared_rules.rules(fields)
    _refuse_routes(fields, expect_routes=any(rule.otherwise == "route" for rule in expect), kind="a table")
    if path is None:
        return None
    return TableSource(name=entry.key, place=fields.problems.place(entry.line), path=path, expect=expect)


def _file_source(entry: Entry, fields: Fields) -> FileSource | None:
    fields.only(FILE_KEYS, elsewhere=dict.fromkeys(TOPIC_KEYS, "is for topics"))
    path = fields.text("files", example="in")
    fields.required("format", fix="Name a format that Spark reads, as `format: csv`")
    form = fields.text("format", example="csv")
    schema = _schema(fields)
    stream = fields.switch("stream")
    watermark = declared_rules.watermark(fields)
    expect = declared_rules.rules(fields)
    options = fields.settings("options", example="{header: true}")
    if stream and "schema" not in fields and form is not None and form != "text":
        fields.required("schema", fix=f"A stream of files needs to know it: write `schema: {_SCHEMA}`")
    if not stream:
        if "watermark" in fields:
            fields.report("watermark", "a watermark is for streams", "Add `stream: true`, or leave it out")
        _refuse_routes(fields, expect_routes=any(rule.otherwise == "route" for rule in expect), kind="files")
    if path is None or form is None:
        return None
    return FileSource(
        name=entry.key,
        place=fields.problems.place(entry.line),
        path=path,
        format=form,
        schema=schema,
        stream=stream,
        watermark=watermark,
        expect=expect,
        options=options,
    )


def _refuse_routes(fields: Fields, *, expect_routes: bool, kind: str) -> None:
    """Rows are routed by a streaming query of their own, and what is read anew for each batch is no stream."""
    if expect_routes:
        what = f"a rule routes rows away, which needs a stream, and {kind} read as a whole is none"
        fields.report("expect", what, "Use `otherwise: drop` or `fail`, or put the rule on the step that uses it")


def _refuse_keys(fields: Fields, keys: Mapping[str, str]) -> None:
    for key, reason in keys.items():
        if key in fields:
            fields.report(key, f"`{key}` {reason}", "Leave it out, or change the format")

"""Sinks as a pipeline declares them: topics, tables, and Spark's formats by name. Knows the file's form only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ottla.pipelines import declared_rules, names
from ottla.pipelines.fields import Fields, Problems, whole_section
from ottla.pipelines.spec import FormatSink, OutputMode, Sink, TableSink, TopicSink
from ottla.pipelines.yaml_places import Entry
from ottla.spark.errors import InvalidOption
from ottla.spark.options import write_options

TOPIC_KEYS = ("from", "topic", "key", "value", "mode", "options")
TABLE_KEYS = ("from", "table", "partition_by", "keys", "deleted", "order", "file_bytes_min")
FORMAT_KEYS = ("from", "format", "mode", "options")
KINDS = ("topic", "table", "format")
MODES: tuple[OutputMode, ...] = ("append", "update", "complete")
FILE_FORMATS = frozenset({"csv", "json", "orc", "parquet", "text", "xml"})
"""Spark writes these as files that are never changed again."""
SET_BY_US = {"checkpointlocation": "Use `checkpoints:` at the top of the file"}
"""Options that a pipeline decides itself, in lower case."""
SET_BY_US_FOR_TOPICS = SET_BY_US | {
    "topic": "Name the topic with `topic:`",
    "kafka.bootstrap.servers": "Use `bootstrap:` at the top of the file",
}
_ANY_ADDRESS = "localhost:9092"
_NEEDS_KEYS = "It is for upserts: write `keys: [id]`, or leave it out"


def sink(entry: Entry, problems: Problems) -> Sink | None:
    """The sink, or None when too much of it is wrong."""
    what = f"the sink `{entry.key}`"
    section = whole_section(entry.node, problems, what=what, fix="Write `from:`, and `topic:`, `table:` or `format:`")
    if section is None:
        return None
    fields = Fields(section, problems, what=what)
    fields.line = entry.line
    fields.required("from", fix="Name the source or step whose rows it writes, as `from: orders`")
    kinds = [kind for kind in KINDS if kind in fields]
    if len(kinds) != 1:
        said = "has none of" if not kinds else "has more than one of"
        problems.report(entry.line, f"{what} {said} `topic`, `table` and `format`", "Give it exactly one of them")
        fields.only(tuple(dict.fromkeys((*TOPIC_KEYS, *TABLE_KEYS, *FORMAT_KEYS))))
        return None
    origin = fields.text("from", example="orders")
    if kinds == ["topic"]:
        return _topic_sink(entry, fields, origin)
    return _table_sink(entry, fields, origin) if kinds == ["table"] else _format_sink(entry, fields, origin)


def _topic_sink(entry: Entry, fields: Fields, origin: str | None) -> TopicSink | None:
    fields.only(TOPIC_KEYS, elsewhere=dict.fromkeys(TABLE_KEYS, "is for tables"))
    topic = declared_rules.topic(fields, "topic", written=True)
    key = fields.text("key", example="order_id")
    value = fields.text("value", example="amount")
    mode = fields.word("mode", MODES, default="append")
    options = _options(fields, SET_BY_US_FOR_TOPICS, example="{deliveryGuarantee: exactly-once}")
    if topic is None or origin is None:
        return None
    try:
        whole = {"kafka.bootstrap.servers": _ANY_ADDRESS, "topic": topic, **options}
        write_options(whole, streaming=True)
    except InvalidOption as error:
        spelled = next((name for name in options if name.lower() == error.option.lower()), error.option)
        fix = error.fix or "Give it another value, or leave it out"
        fields.report("options", f"`{spelled}`: {error.problem}", fix)
    return TopicSink(
        name=entry.key,
        place=fields.problems.place(entry.line),
        input=origin,
        topic=topic,
        key=key,
        value=value,
        mode=mode,
        options=options,
    )


def _table_sink(entry: Entry, fields: Fields, origin: str | None) -> TableSink | None:
    only_topics = dict.fromkeys(TOPIC_KEYS, "is for topics")
    fields.only((*TABLE_KEYS, "mode"), elsewhere=only_topics | {"options": "is for topics and formats"})
    if "mode" in fields and fields.word("mode", MODES, default="append") != "append":
        what = "a table has no mode but append"
        fields.report("mode", what, "Leave `mode` out; with `keys: [id]` a row replaces the one before it")
    path = fields.text("table", example="tables/orders")
    partition_by = fields.texts("partition_by", example="[date(event_time)]")
    for text in partition_by:
        if not names.is_partitioning(text):
            what = f"a table cannot be partitioned by `{text}`"
            fields.report("partition_by", what, "Name columns, or `date(column)`; several of them in a list")
    keys = fields.texts("keys", example="[order_id]")
    for text in keys:
        if not names.is_column(text):
            fields.report("keys", f"`{text}` is not a column", "Name columns; several of them in a list")
    for name in ("deleted", "order"):
        if name in fields and "keys" not in fields:
            fields.report(name, f"`{name}` means nothing without `keys`", _NEEDS_KEYS)
    deleted = fields.text("deleted", example="value IS NULL")
    order = fields.text("order", example="event_time")
    bytes_min = fields.number("file_bytes_min", lowest=1)
    if path is None or origin is None:
        return None
    made = TableSink(
        name=entry.key,
        place=fields.problems.place(entry.line),
        input=origin,
        path=path,
        partition_by=partition_by,
        keys=tuple(map(names.column_name, keys)),
        deleted=deleted,
        order=order,
    )
    return made if bytes_min is None else replace(made, file_bytes_min=bytes_min)


def _format_sink(entry: Entry, fields: Fields, origin: str | None) -> FormatSink | None:
    fields.only(
        FORMAT_KEYS,
        elsewhere=dict.fromkeys(TABLE_KEYS, "is for tables") | dict.fromkeys(("key", "value"), "is for topics"),
    )
    form = fields.text("format", example="csv")
    mode = fields.word("mode", MODES, default="append")
    options = _options(fields, SET_BY_US, example="{path: out/audit}")
    if form is not None and form.lower() in ("ottla", "kafka"):
        fields.report("format", f"`{form}` writes to a topic", "Use `topic:` in place of `format:`")
        return None
    if form is not None and form.lower() in FILE_FORMATS:
        if mode != "append":
            what = f"files of {form} cannot be changed, so `mode: {mode}` is not for them"
            fields.report("mode", what, "Leave `mode` out, or write to a table with `keys`, or to a topic")
        if "path" not in {name.lower() for name in options}:
            what = f"it does not say where the files of {form} go"
            fields.report("format", what, "Add `options: {path: out/some-directory}`")
    if form is None or origin is None:
        return None
    place = fields.problems.place(entry.line)
    return FormatSink(name=entry.key, place=place, input=origin, format=form, mode=mode, options=options)


def _options(fields: Fields, set_by_us: Mapping[str, str], *, example: str) -> dict[str, str]:
    allowed = {}
    for name, value in fields.settings("options", example=example).items():
        if name.lower() in set_by_us:
            fields.report("options", f"the option `{name}` is set by the pipeline", set_by_us[name.lower()])
        else:
            allowed[name] = value
    return allowed

"""What a pipeline is, as its file declares it: sources, steps and sinks by name. Plain data, without YAML and Spark.

Every part knows the place where it was declared, so that a mistake can be shown where it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

AVAILABLE_NOW = "available-now"
"""The trigger of a pipeline that takes what is there and ends."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


# --- formats of records -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Raw:
    """The columns that a topic has in Spark, as they are: key and value in bytes, topic, partition, offset, ..."""


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON object in each value."""

    schema: str
    """In Spark's DDL: `id BIGINT, amount DOUBLE`."""


@dataclass(frozen=True, slots=True)
class Csv:
    """A line of separated values in each value."""

    schema: str
    separator: str = ","


@dataclass(frozen=True, slots=True)
class Avro:
    """An Avro datum in each value, without a header."""

    schema_file: str
    jar: bool = False
    """Decoded by Spark's own `from_avro`, whose jar the user's Spark has; otherwise by fastavro in Python."""


Format = Raw | Json | Csv | Avro


# --- quality ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold for every row of a source or a step, and what becomes of rows for which it does not."""

    name: str
    place: Place
    where: str
    """A predicate in SQL. A row for which it is unknown (NULL) does not fulfil it."""
    otherwise: Literal["drop", "fail", "route"]
    topic: str | None = None
    """Where they go, for `route`."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How long a step with windows waits for what is late."""

    column: str
    delay: str
    """As Spark writes intervals: `2 minutes`."""


# --- sources ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Records of a topic, as a stream; or the latest of each key, as a table that is looked up anew for each batch."""

    name: str
    place: Place
    topic: str
    format: Format
    starting: str = "earliest"
    latest_by_key: bool = False
    bad: str | None = None
    """The topic for records that are not of the format; None: the first one fails the query, with its offset."""
    watermark: Watermark | None = None
    expect: tuple[Rule, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of `format("ottla")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table that a pipeline of ours keeps, or a directory of Parquet files, as it is when a batch begins."""

    name: str
    place: Place
    path: str
    expect: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files that Spark can read, in any of its formats; as a stream, each file once, where `stream` says so."""

    name: str
    place: Place
    path: str
    format: str
    schema: str | None = None
    stream: bool = False
    watermark: Watermark | None = None
    expect: tuple[Rule, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


Source = TopicSource | TableSource | FileSource


# --- steps --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A query over sources and other steps, which it calls by their names."""

    name: str
    place: Place
    sql: str
    sql_place: Place
    """Where the text itself begins."""
    watermark: Watermark | None = None
    expect: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """A function that takes frames and returns one."""

    name: str
    place: Place
    function: str
    """`module:function`; modules beside the pipeline's file are found."""
    inputs: tuple[str, ...]
    """Handed over in this order."""
    watermark: Watermark | None = None
    expect: tuple[Rule, ...] = ()


Step = SqlStep | PythonStep


# --- sinks --------------------------------------------------------------------------------------------

OutputMode = Literal["append", "update", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Rows as records of a topic."""

    name: str
    place: Place
    input: str
    topic: str
    key: str | None = None
    """An expression in SQL whose text becomes the key."""
    value: str | None = None
    """The same for the value; None: all columns, as a JSON object."""
    mode: OutputMode = "append"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """Rows as a table of ours: Parquet files and a log of commits."""

    name: str
    place: Place
    input: str
    path: str
    partition_by: tuple[str, ...] = ()
    """Columns, or `date(column)`."""
    keys: tuple[str, ...] = ()
    """Not empty: a row replaces the one with the same keys. Otherwise rows are appended."""
    deleted: str | None = None
    """With keys, a predicate in SQL: rows for which it holds delete theirs."""
    order: str | None = None
    """With keys, an expression in SQL: of rows with the same keys the greatest counts; None: the last that came."""
    file_bytes_min: int = 32 * 1024 * 1024
    """Smaller files are put together in the background of the table's life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSink:
    """Any format that Spark can write a stream to, by its name."""

    name: str
    place: Place
    input: str
    format: str
    mode: OutputMode = "append"
    options: Mapping[str, str] = field(default_factory=dict)


Sink = TopicSink | TableSink | FormatSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole file."""

    name: str
    place: Place
    checkpoints: str
    """Below it, each query has a directory of its own. Relative to the pipeline's file, as all paths."""
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    bootstrap: str | None = None
    """None: what the command line or the environment says."""
    trigger: str | None = None
    """`available-now`, or an interval such as `5 seconds`; None: as soon as there is news."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""

"""The sources and steps of a pipeline as Spark's frames: what passes, and what is sent away.

Each `Frames` has a Spark session of its own, so that steps of two pipelines may have the same name; queries that are
started from its frames belong to that session (`Frames.spark`). Nothing runs here: frames are plans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ottla.pipelines import formats, quality
from ottla.pipelines.avro_rows import AvroUnsupported
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.graph import Graph
from ottla.pipelines.python_steps import called
from ottla.pipelines.quality import Check
from ottla.pipelines.references import statement_in
from ottla.pipelines.spark_errors import problem_of
from ottla.pipelines.spec import (
    FileSource,
    Pipeline,
    Place,
    Rule,
    Source,
    SqlStep,
    Step,
    TableSource,
    TopicSource,
    Watermark,
)
from ottla.pipelines.tables.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TIME_ZONE = "spark.sql.session.timeZone"
COPIED_SETTINGS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.execution.arrow.pyspark.enabled",
    "spark.sql.streaming.stopTimeout",
    "spark.sql.streaming.noDataProgressEventInterval",
)
"""What is set in a running session: a new one begins with what the first one, or the server, was started with."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LINES_BEFORE = 1


class Opener(Protocol):
    """How a source is opened: for real, or as a frame without rows."""

    def topic(self, source: TopicSource, *, streaming: bool, headers: bool) -> DataFrame:
        """The records of a topic, with the columns that Spark has for them."""

    def is_small(self, source: TopicSource) -> bool:
        """Whether the topic has so few records that joins had better send its table to every task."""

    def table(self, source: TableSource) -> DataFrame:
        """A table as it is."""

    def files(self, source: FileSource) -> DataFrame:
        """Files as rows."""


class Opened:
    """Sources as they are: topics at a broker, and files."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, *, bootstrap: str, hold_file: str | None) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._bootstrap = bootstrap
        self._hold_file = hold_file

    def topic(self, source: TopicSource, *, streaming: bool, headers: bool) -> DataFrame:
        from ottla.pipelines.topic_now import TopicNow

        options = topic_options(source, bootstrap=self._bootstrap, streaming=streaming, headers=headers)
        if streaming and self._hold_file is not None:
            options["holdFile"] = self._hold_file
        if not streaming:
            self._spark.dataSource.register(TopicNow)
            return self._spark.read.format(TopicNow.name()).options(**options).load()
        return self._spark.readStream.format("ottla").options(**options).load()

    def is_small(self, source: TopicSource) -> bool:
        from ottla.pipelines.topic_now import is_small

        return is_small(topic_options(source, bootstrap=self._bootstrap, streaming=False, headers=False))

    def table(self, source: TableSource) -> DataFrame:
        from ottla.pipelines.table_now import read_now

        return read_now(self._spark, path_of(self._pipeline, source.path))

    def files(self, source: FileSource) -> DataFrame:
        reader = self._spark.readStream if source.stream else self._spark.read
        reader = reader.format(source.format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(path_of(self._pipeline, source.path))


def topic_options(source: TopicSource, *, bootstrap: str, streaming: bool, headers: bool) -> dict[str, str]:
    """The options of `format("ottla")` for a source."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": source.topic,
        # Sinks of pipelines write in transactions, and what they take back was never there.
        "kafka.isolation.level": "read_committed",
        "startingOffsets": source.starting if streaming and not source.latest_by_key else "earliest",
    }
    if headers:
        options["includeHeaders"] = "true"
    of_streams = {"maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "maxbytespertrigger"}
    given = {name: value for name, value in source.options.items() if streaming or name.lower() not in of_streams}
    taken = {name.lower() for name in given}
    return {name: value for name, value in options.items() if name.lower() not in taken} | given


def path_of(pipeline: Pipeline, path: str) -> str:
    """A path as it is in the file, which begins where the file is; addresses with a scheme are left alone."""
    if _SCHEME.match(path):
        return path
    return str(directory_of(pipeline) / path)


def directory_of(pipeline: Pipeline) -> Path:
    """Where the pipeline's file is."""
    return Path(pipeline.place.file).resolve().parent


class Frames:
    """The frames of one pipeline, made as they are asked for."""

    def __init__(
        self,
        pipeline: Pipeline,
        graph: Graph,
        spark: SparkSession,
        *,
        bootstrap: str,
        hold_file: str | None = None,
        opener: Callable[[SparkSession], Opener] | None = None,
        has_own_session: bool = True,
    ) -> None:
        """Without a session of its own it works in the one that is given, whose views and settings it then uses."""
        self.pipeline = pipeline
        self.graph = graph
        self.bootstrap = bootstrap
        self.spark = session_of(pipeline, spark) if has_own_session else spark
        self._parent = spark
        self._hold_file = hold_file
        made = opener(self.spark) if opener is not None else None
        self._opener = made or Opened(pipeline, self.spark, bootstrap=bootstrap, hold_file=hold_file)
        self._frames: dict[str, DataFrame] = {}
        self._sides: dict[str, DataFrame | None] = {}

    def held_by(self, hold_file: str | None) -> Frames:
        """The same pipeline, whose topics say that there is no news while that file exists."""
        if hold_file == self._hold_file:
            return self
        return Frames(self.pipeline, self.graph, self._parent, bootstrap=self.bootstrap, hold_file=hold_file)

    def close(self) -> None:
        """Let go of the session, once its queries have ended."""
        # With Spark Connect it is a connection of its own. Left open, it would call the server when the program ends,
        # and wait for one that was started for the program and is gone by then.
        client = getattr(self.spark, "_client", None)
        if client is not None and self.spark is not self._parent:
            client.close()

    def frame(self, name: str) -> DataFrame:
        """The rows of a source or a step that pass its rules; a stream where anything in it is one."""
        if name not in self._frames:
            node = self._node(name)
            with _placed(node):
                rows, checks = self._checked(node, of_side=False)
                passed = quality.passing(rows, checks)
                if isinstance(node, TopicSource) and node.latest_by_key:
                    passed = _latest_of_each_key(passed, is_small=self._opener.is_small(node))
                if isinstance(node, TopicSource):
                    # Rows of a step may have two columns of one name, as `SELECT *` from a join has: nobody else asks.
                    passed = passed.select(*formats.public_columns(passed))
                self._frames[name] = _watermarked(passed, node)
        return self._frames[name]

    def side_frame(self, name: str) -> DataFrame | None:
        """The records that a source or a step sends away, with their topics; None: it sends none."""
        if name not in self._sides:
            node = self._node(name)
            self._sides[name] = self._sent_away(node) if sends_away(node) else None
        return self._sides[name]

    def source_rows(self, source: TopicSource, *, streaming: bool, headers: bool) -> DataFrame:
        """The records of a topic as columns, those included that no user sees; nothing is decided about them yet."""
        records = self._opener.topic(source, streaming=streaming, headers=headers)
        return formats.opened(records, source.format, directory=directory_of(self.pipeline))

    def _node(self, name: str) -> Source | Step:
        return self.pipeline.sources[name] if name in self.pipeline.sources else self.pipeline.steps[name]

    def _sent_away(self, node: Source | Step) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        with _placed(node):
            rows, checks = self._checked(node, of_side=True)
            if isinstance(node, TopicSource):
                key, value, headers = (F.col(formats.hidden(part)) for part in ("key", "value", "headers"))
                return quality.sent_away(rows, checks, key=key, value=value, headers=headers)
            key = F.col("_key").cast("binary") if "_key" in rows.columns else F.lit(None).cast("binary")
            value = formats.as_json(formats.public_columns(rows))
            return quality.sent_away(rows, checks, key=key, value=value, headers=None)

    def _checked(self, node: Source | Step, *, of_side: bool) -> tuple[DataFrame, list[Check]]:
        """The rows of a node, with all that is asked about them."""
        from pyspark.sql import functions as F  # noqa: N812

        if isinstance(node, TopicSource):
            return self._checked_records(node, of_side=of_side)
        if isinstance(node, TableSource):
            rows = self._opener.table(node)
        elif isinstance(node, FileSource):
            rows = self._opener.files(node)
        else:
            rows = self._step(node)
        check_rules(rows, node.expect, node=node.name)
        row = formats.as_json(formats.public_columns(rows)) if node.expect else F.lit("")
        return rows, quality.rule_checks(node.expect, node=node.name, origin=F.lit(node.name), row=row)

    def _checked_records(self, source: TopicSource, *, of_side: bool) -> tuple[DataFrame, list[Check]]:
        from pyspark.sql import functions as F  # noqa: N812

        # What a table of the latest sends away is sent once, as the stream that the topic is.
        streaming = of_side or not source.latest_by_key
        rows = self.source_rows(source, streaming=streaming, headers=of_side)
        check_rules(rows, source.expect, node=source.name)
        part = {name: F.col(formats.hidden(name)) for name in ("key", "value", "topic", "partition", "offset")}
        origin = F.format_string("%s-%d@%d", part["topic"], part["partition"], part["offset"])
        problem = F.col(formats.PROBLEM)
        if source.latest_by_key:
            problem = F.when(part["key"].isNull(), F.lit("the record has no key")).otherwise(problem)
        shown = part["value"].cast("string")
        checks = [
            _format_check(source, problem, origin),
            *quality.rule_checks(source.expect, node=source.name, origin=origin, row=F.coalesce(shown, F.lit("null"))),
        ]
        if source.latest_by_key:
            # A record without a value says that its key is gone: it is neither bad nor against a rule.
            is_gone = part["value"].isNull() & part["key"].isNotNull()
            checks = [_unless(is_gone, check) for check in checks]
        return rows, checks

    def _step(self, step: Step) -> DataFrame:
        inputs = self.graph.inputs(step.name)
        frames = [self.frame(name) for name in inputs]
        if not isinstance(step, SqlStep):
            by_name = {name.lower(): frame for name, frame in zip(inputs, frames, strict=True)}
            given = [by_name[name.lower()] for name in step.inputs]
            return called(step, given, directory=directory_of(self.pipeline))
        for name, frame in zip(inputs, frames, strict=True):
            frame.createOrReplaceTempView(name)
        return self._query(step)

    def _query(self, step: SqlStep) -> DataFrame:
        from pyspark.errors import ParseException

        text = statement_in(step.sql)
        what = f"step `{step.name}`"
        try:
            # As a part of another query, so that nothing else is taken: Spark carries out other statements at once.
            found = self.spark.sql(f"SELECT * FROM (\n{text}\n)")
            # Under Spark Connect nothing is looked at before that.
            _ = found.schema
        except ParseException as e:
            raise PipelineInvalid([self._misread(step, text, e)]) from e
        except _spark_error() as e:
            raise PipelineInvalid([problem_of(e, step.sql_place, what=what, lines_before=_LINES_BEFORE)]) from e
        return found

    def _misread(self, step: SqlStep, text: str, error: Exception) -> Problem:
        """What is wrong with a text that is no query, without the words that we put around it."""
        what = f"step `{step.name}`"
        try:
            self.spark.sql(f"EXPLAIN\n{text}")
        except _spark_error() as e:
            return problem_of(e, step.sql_place, what=what, lines_before=_LINES_BEFORE)
        return Problem(step.sql_place, f"{what} is a statement but no query", "Write a SELECT")


class BatchFrames(Frames):
    """The frames of one batch of a stream, whose rows are given for the source that they come from."""

    def __init__(self, of: Frames, source: str, rows: DataFrame) -> None:
        super().__init__(of.pipeline, of.graph, rows.sparkSession, bootstrap=of.bootstrap, has_own_session=False)
        self._source = source
        self._rows = rows

    def source_rows(self, source: TopicSource, *, streaming: bool, headers: bool) -> DataFrame:
        if source.name == self._source:
            return self._rows
        return super().source_rows(source, streaming=streaming, headers=headers)


def sends_away(node: Source | Step) -> bool:
    """Whether records or rows of it go to other topics than those of sinks."""
    routed = any(rule.otherwise == "route" for rule in node.expect)
    return routed or (isinstance(node, TopicSource) and node.bad is not None)


def session_of(pipeline: Pipeline, spark: SparkSession) -> SparkSession:
    """A session for this pipeline alone: its views, its settings, and times in UTC unless it says otherwise."""
    made = spark.newSession()
    settings = {name: spark.conf.get(name, None) for name in COPIED_SETTINGS}
    for name, value in {**settings, TIME_ZONE: "UTC", **pipeline.spark}.items():
        # Others count when Spark is started, which is over.
        if value is not None and made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made


def check_rules(rows: DataFrame, rules: tuple[Rule, ...], *, node: str) -> None:
    """Raise for rules that are none for these rows, all at once."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import BooleanType

    problems = []
    for rule in rules:
        what = f"the rule `{rule.name}` of `{node}`"
        try:
            # Beside the columns, so that an aggregate is refused here and with its place.
            kind = rows.select("*", F.expr(rule.where)).schema.fields[-1].dataType
        except _spark_error() as e:
            problems.append(problem_of(e, rule.place, what=what, in_text=False))
            continue
        if not isinstance(kind, BooleanType):
            said = f"{what} is no predicate but {kind.simpleString()}"
            problems.append(Problem(rule.place, said, f"Compare it with something, as in `{rule.where} > 0`"))
        if (word := quality.unsteady(rule.where)) is not None:
            said = f"{what} depends on more than the row: {word}"
            fix = "Compare with `_timestamp`, the time of the record, or with another column"
            problems.append(Problem(rule.place, said, fix))
    if problems:
        raise PipelineInvalid(problems)


@contextmanager
def _placed(node: Source | Step) -> Iterator[None]:
    """Tell errors of Spark and of schemas where they belong."""
    kind = "source" if isinstance(node, Source) else "step"
    try:
        yield
    except AvroUnsupported as e:
        fix = "Change the schema, or set `jar: true` if your Spark has spark-avro"
        raise PipelineInvalid([Problem(node.place, f"{kind} `{node.name}`: {e}", fix)]) from e
    except _spark_error() as e:
        raise PipelineInvalid([problem_of(e, node.place, what=f"{kind} `{node.name}`", in_text=False)]) from e
    except TableError as e:
        fix = "Let the pipeline that writes it run first, or correct the path"
        raise PipelineInvalid([Problem(node.place, f"{kind} `{node.name}`: {e}", fix)]) from e


def _spark_error() -> type[Exception]:
    from pyspark.errors import PySparkException

    return PySparkException


def _format_check(source: TopicSource, problem: Column, origin: Column) -> Check:
    from pyspark.sql import functions as F  # noqa: N812

    place: Place = source.place
    fix = ". Name a topic for such records with `bad:` to go on without them"
    return Check(
        failed=problem.isNotNull(),
        otherwise="fail" if source.bad is None else "route",
        message=F.concat(F.lit(f"{place}: source `{source.name}`: "), problem, F.lit(" at "), origin, F.lit(fix)),
        topic=source.bad,
        headers=((quality.REASON_HEADER, problem), (quality.SOURCE_HEADER, origin)),
    )


def _unless(exempt: Column, check: Check) -> Check:
    return Check(~exempt & check.failed, check.otherwise, check.message, check.topic, check.headers)


def _latest_of_each_key(rows: DataFrame, *, is_small: bool) -> DataFrame:
    """The last record of each key, without those that say that their key is gone.

    Of a partition that is the record with the highest offset. A key is in several partitions where some were added or a
    producer chose them by itself: then the youngest of those counts.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = ("key", "value", "partition", "offset", "timestamp")
    key, value, partition, offset, timestamp = (F.col(formats.hidden(name)) for name in names)
    columns = formats.public_columns(rows)
    whole = F.struct(value.isNull().alias("is_gone"), timestamp.alias("at"), F.struct(*columns).alias("row"))
    of_partitions = rows.groupBy(key, partition).agg(F.max_by(whole, offset).alias("last"))
    latest = of_partitions.groupBy(key).agg(F.max_by("last", F.struct("last.at", partition)).alias("latest"))
    table = latest.where("NOT latest.is_gone").select("latest.row.*")
    # Spark does not know how large it is, and would move and sort the whole stream for a join with it.
    return F.broadcast(table) if is_small else table


def _watermarked(frame: DataFrame, node: Source | Step) -> DataFrame:
    watermark: Watermark | None = None if isinstance(node, TableSource) else node.watermark
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)

"""A pipeline handed over to Spark's own engine for pipelines, where that can run it: `spark-pipelines run` does so.

    # in a file that spark-pipeline.yml names; the YAML is not among those
    from pathlib import Path

    from ottla.pipelines.declarative import declare
    from ottla.pipelines.reading import load

    declare(load(Path(__file__).parents[1] / "orders.yaml"))

Each sink becomes one of that engine's sinks with a flow that appends to it, and so does what sources and steps send
away. That engine takes what is there and ends, writes no tables of ours, and knows no other mode than append.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.frames import TIME_ZONE, Frames, Opened, path_of, topic_options
from ottla.pipelines.graph import Graph, graph
from ottla.pipelines.queries import QueryPlan, planned, records_of
from ottla.pipelines.references import statement_in
from ottla.pipelines.spec import Pipeline, SqlStep, Step, TableSink, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HANDED_OVER = "_ottla_"
"""Before the names of frames, which would otherwise meet the names that `spark.sql` has for its own arguments."""
_OTHER_RUNNER = "Run it with `ottla pipeline run`"


def declare(pipeline: Pipeline, *, bootstrap: str | None = None) -> None:
    """Declare the pipeline to the engine that is loading the file which calls this.

    `bootstrap` comes before what the pipeline says. Raises PipelineInvalid where that engine could not run it.
    """
    made = graph(pipeline)
    address = bootstrap or pipeline.bootstrap
    problems = why_not(pipeline)
    if address is None:
        what = "it is not said where the brokers are"
        problems.append(Problem(pipeline.place, what, "Write `bootstrap: 127.0.0.1:9092`, or hand it to `declare`"))
    if problems or address is None:
        raise PipelineInvalid(problems)
    from pyspark.sql import SparkSession

    frames = EngineFrames(pipeline, made, SparkSession.active(), bootstrap=address)
    for plan in planned(pipeline, made):
        _declare_flow(plan, frames)


def why_not(pipeline: Pipeline) -> list[Problem]:
    """What keeps Spark's own engine from running the pipeline."""
    problems = []
    for sink in pipeline.sinks.values():
        if isinstance(sink, TableSink):
            what = f"the sink `{sink.name}` is a table, which Spark's own engine cannot write"
            problems.append(Problem(sink.place, what, _OTHER_RUNNER))
        elif sink.mode != "append":
            what = f"the sink `{sink.name}` has the mode {sink.mode}, and Spark's own engine only appends"
            problems.append(Problem(sink.place, what, _OTHER_RUNNER))
    first: dict[str, str] = {}
    for plan in planned(pipeline, graph(pipeline)):
        other = first.setdefault(engine_name(plan.name).lower(), plan.name)
        if other != plan.name:
            what = f"`{other}` and `{plan.name}` are one name to Spark's own engine: {engine_name(plan.name)}"
            problems.append(Problem(plan.place, what, "Give the sink another name"))
    return problems


class EngineOpened(Opened):
    """Sources as the engine takes them: a run ends, so that a topic as a table is the one of the run's beginning."""

    def topic(self, source: TopicSource, *, streaming: bool, headers: bool) -> DataFrame:
        if streaming:
            return super().topic(source, streaming=streaming, headers=headers)
        # The source that looks anew for each batch is registered with the session; `spark-pipelines` of Spark 4.3 then
        # fails after a run that was complete, since such sources report figures that it does not know.
        options = topic_options(source, bootstrap=self._bootstrap, streaming=False, headers=headers)
        return self._spark.read.format("ottla").options(**options).load()


class EngineFrames(Frames):
    """Frames in the one session that the engine has, whose views and settings may not be changed."""

    def __init__(self, pipeline: Pipeline, graph: Graph, spark: SparkSession, *, bootstrap: str) -> None:
        super().__init__(
            pipeline,
            graph,
            spark,
            bootstrap=bootstrap,
            opener=lambda session: EngineOpened(pipeline, session, bootstrap=bootstrap, hold_file=None),
            has_own_session=False,
        )

    def _step(self, step: Step) -> DataFrame:
        if not isinstance(step, SqlStep):
            return super()._step(step)
        inputs = self.graph.inputs(step.name)
        frames: dict[str, Any] = {HANDED_OVER + name: self.frame(name) for name in inputs}
        return self.spark.sql(query_over(inputs, step.sql), **frames)


def query_over(names: Iterable[str], sql: str) -> str:
    """A query that takes frames in place of views; those are handed over beside it, as `spark.sql` has it.

    Each frame gets its name by WITH, so that the query itself stays as it is, whatever it calls them by.
    """
    named = list(names)
    text = statement_in(sql)
    if not named:
        # Where nothing is handed over, Spark puts nothing in, and brackets stay as they are.
        return f"SELECT * FROM (\n{text}\n)"
    views = ", ".join(f"{name} AS (SELECT * FROM {{{HANDED_OVER}{name}}})" for name in named)
    escaped = text.replace("{", "{{").replace("}", "}}")
    return f"WITH {views} SELECT * FROM (\n{escaped}\n)"


def _declare_flow(plan: QueryPlan, frames: EngineFrames) -> None:
    from pyspark import pipelines as engine

    pipeline = frames.pipeline
    sink = plan.sink
    if sink is None:
        rows = frames.side_frame(plan.node)
        assert rows is not None, "it was planned because there is one"
        form, options = "ottla", {"kafka.bootstrap.servers": frames.bootstrap}
    elif isinstance(sink, TopicSink):
        rows = records_of(sink, frames.frame(sink.input))
        form = "ottla"
        options = {"kafka.bootstrap.servers": frames.bootstrap, **sink.options, "topic": sink.topic}
    else:
        assert not isinstance(sink, TableSink), "it was refused"
        rows = frames.frame(sink.input)
        form = sink.format
        options = {
            name: path_of(pipeline, value) if name.lower() == "path" else value for name, value in sink.options.items()
        }
    name = engine_name(plan.name)
    engine.create_sink(name, form, options)
    settings = {TIME_ZONE: "UTC", **pipeline.spark}
    engine.append_flow(target=name, name=f"{name}_flow", spark_conf=settings)(_returning(rows))


def engine_name(name: str) -> str:
    """A name that the engine takes for one and not for a path of several."""
    return re.sub(r"\W", "_", name)


def _returning(rows: DataFrame) -> Callable[[], DataFrame]:
    # The frame is made before: while the engine asks for it, nothing may be looked up.
    return lambda: rows

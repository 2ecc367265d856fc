"""Which outputs of a pipeline are written by one query, so that their topic is read and parsed once for all of them.

Outputs share a query when they come from the same topic and no row depends on earlier ones. What shares one does so for
good: an output that is added later gets a query of its own, since it has to begin at the start of the topic. Decides;
`remembered_queries` keeps what was decided, and `shared_query` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.frames import Frames
from ottla.pipelines.graph import Graph
from ottla.pipelines.queries import QueryPlan
from ottla.pipelines.spec import FileSource, Pipeline, Place, PythonStep, TableSink, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOINED_BY = "+"
"""Between the names of outputs; no name has it inside."""
NAME_CHARACTERS_MAX = 120

_ROW_BY_ROW = frozenset(
    {
        "CTERelationDef",
        "CTERelationRef",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "Join",
        "Project",
        "ResolvedHint",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "Union",
        "UnresolvedHint",
        "View",
        "WithCTE",
    }
)
"""Of Spark's logical plans, those whose rows depend on no other row of the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlan:
    """A query that writes several outputs."""

    name: str
    source: str
    outputs: tuple[QueryPlan, ...]
    checkpoint: str

    @property
    def place(self) -> Place:
        return self.outputs[0].place


@dataclass(frozen=True, slots=True)
class Remembered:
    """A query that was started before, by the names of its outputs."""

    outputs: tuple[str, ...]
    source: str | None = None
    """None: it has one output and never shared anything."""


def assigned(
    plans: Sequence[QueryPlan],
    remembered: Mapping[str, Remembered],
    *,
    source_of: Callable[[QueryPlan], str | None],
    checkpoints: str,
) -> list[QueryPlan | SharedPlan]:
    """The queries for these outputs; `source_of` gives the topic that an output may share, or None."""
    homes = {output: name for name, query in remembered.items() for output in query.outputs}
    groups: dict[str, list[QueryPlan]] = {}
    shared = {name: query.source for name, query in remembered.items() if query.source is not None}
    newcomers: dict[str, list[QueryPlan]] = {}
    problems = []
    for plan in plans:
        home = homes.get(plan.name)
        if home is not None:
            groups.setdefault(home, []).append(plan)
            if home in shared and source_of(plan) != shared[home]:
                problems.append(_no_longer_shared(plan, shared[home]))
        elif (source := source_of(plan)) is not None:
            newcomers.setdefault(source, []).append(plan)
        else:
            groups[plan.name] = [plan]
    if problems:
        raise PipelineInvalid(problems)
    for source, group in newcomers.items():
        name = name_of([plan.name for plan in group])
        groups[name] = group
        if len(group) > 1:
            shared[name] = source
    return [
        SharedPlan(name=name, source=shared[name], outputs=tuple(group), checkpoint=f"{checkpoints}/{name}")
        if name in shared
        else group[0]
        for name, group in groups.items()
    ]


def _no_longer_shared(plan: QueryPlan, source: str) -> Problem:
    return Problem(
        plan.place,
        f"`{plan.name}` has been written together with others, row by row from `{source}`, and cannot be any more",
        "Give it another name, so that it begins anew, or remove the pipeline's checkpoints",
    )


def name_of(outputs: Sequence[str]) -> str:
    """What the query of these outputs is called."""
    joined = JOINED_BY.join(outputs)
    if len(joined) <= NAME_CHARACTERS_MAX:
        return joined
    return f"{outputs[0][:NAME_CHARACTERS_MAX]}{JOINED_BY}{len(outputs) - 1}"


def remembrance(
    queries: Sequence[QueryPlan | SharedPlan], remembered: Mapping[str, Remembered]
) -> dict[str, Remembered]:
    """What is to be remembered of queries that are started now, beside what is known of earlier ones."""
    now = {
        query.name: Remembered(tuple(plan.name for plan in query.outputs), query.source)
        if isinstance(query, SharedPlan)
        else Remembered((query.name,))
        for query in queries
    }
    # An output that is out of the file for a while comes back to where it was.
    return {**now, **remembered}


# --- what may be shared -------------------------------------------------------------------------------


def shareable_source(plan: QueryPlan, frames: Frames) -> str | None:
    """The topic whose rows an output may take from a query that others take part in; None: it needs its own."""
    source = only_stream(frames.pipeline, frames.graph, plan.node)
    sink = plan.sink
    if source is None or not (sink is None or isinstance(sink, TableSink) or is_appended(sink)):
        return None
    frame = frames.side_frame(plan.node) if sink is None else frames.frame(plan.node)
    return source if frame is not None and is_row_by_row(frame) else None


def is_appended(sink: object) -> bool:
    """Whether it is a topic to which rows are added."""
    return isinstance(sink, TopicSink) and sink.mode == "append"


def only_stream(pipeline: Pipeline, graph: Graph, node: str) -> str | None:
    """The one topic that a node's rows come from, if they do: no other stream, and no function of the user's.

    Such a function would be called for every batch anew, which nobody who wrote it expects.
    """
    streams: set[str] = set()
    todo = [node]
    while todo:
        name = todo.pop()
        if name in pipeline.steps:
            if isinstance(pipeline.steps[name], PythonStep):
                return None
            todo += graph.inputs(name)
            continue
        source = pipeline.sources[name]
        if isinstance(source, FileSource) and source.stream:
            return None
        if isinstance(source, TopicSource) and not source.latest_by_key:
            streams.add(name)
    return streams.pop() if len(streams) == 1 else None


def is_row_by_row(frame: DataFrame) -> bool:
    """Whether each row of the stream is made from one row alone. Spark Connect does not show its plans: False."""
    classic: Any = getattr(frame, "_jdf", None)
    if classic is None:
        return False
    todo = [classic.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        if not node.isStreaming():
            continue
        children = node.children()
        inner = [children.apply(number) for number in range(children.size())]
        name = str(node.nodeName())
        if name not in _ROW_BY_ROW or (name == "Join" and all(child.isStreaming() for child in inner)):
            return False
        todo += inner
    return True

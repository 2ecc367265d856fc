"""How the sources and steps of a pipeline hang together: what reads what, and in which order they can be made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.fields import nearest, quoted
from ottla.pipelines.references import Reference, TooDeep, references_in
from ottla.pipelines.spec import (
    FileSource,
    Pipeline,
    Place,
    PythonStep,
    Step,
    TableSource,
    TopicSource,
)


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline's sources and steps, which share their names, and the sinks behind them, which have their own."""

    order: tuple[str, ...]
    """Sources and steps, each after all that it reads; otherwise as in the file."""
    input_names: Mapping[str, tuple[str, ...]]
    sink_names: Mapping[str, tuple[str, ...]]
    streams: frozenset[str]
    """Those that go on for ever; the others are read as a whole for each batch."""
    warnings: tuple[Problem, ...] = ()
    """What is most likely a mistake, and can be run all the same."""

    def inputs(self, name: str) -> tuple[str, ...]:
        """What a step reads, in the order of its first use; a source reads nothing."""
        return self.input_names[name]

    def used_by(self, name: str) -> tuple[str, ...]:
        """The steps that read it."""
        return tuple(other for other in self.order if name in self.input_names[other])

    def sinks_of(self, name: str) -> tuple[str, ...]:
        """The sinks that write its rows."""
        return self.sink_names[name]


def graph(pipeline: Pipeline) -> Graph:
    """Raises PipelineInvalid with every name that nobody has and every circle."""
    inputs, problems = _inputs(pipeline, frozenset())
    order, circles = _ordered(pipeline, inputs)
    problems += circles
    streams = _streams(pipeline, inputs, order)
    if not problems:
        problems = _without_stream(pipeline, streams)
    if problems:
        raise PipelineInvalid(problems)
    sinks = {name: tuple(sink.name for sink in pipeline.sinks.values() if sink.input == name) for name in order}
    return Graph(order, inputs, sinks, streams, _unused(pipeline, inputs))


def problems_in(pipeline: Pipeline, *, unread: Iterable[str] = ()) -> list[Problem]:
    """What `graph` would refuse. `unread` are names that are declared, but with mistakes of their own."""
    known = frozenset(unread)
    inputs, problems = _inputs(pipeline, known)
    order, circles = _ordered(pipeline, inputs)
    problems += circles
    if not problems and not known:
        problems = _without_stream(pipeline, _streams(pipeline, inputs, order))
    return problems


# --- what reads what ----------------------------------------------------------------------------------


def _inputs(pipeline: Pipeline, unread: frozenset[str]) -> tuple[dict[str, tuple[str, ...]], list[Problem]]:
    """Inputs of every node by the names that they were declared with; only SQL may spell them in any case."""
    declared = {name.lower(): name for name in (*pipeline.sources, *pipeline.steps)}
    known = {**{name.lower(): name for name in unread}, **declared}
    problems: list[Problem] = []
    inputs: dict[str, tuple[str, ...]] = dict.fromkeys(pipeline.sources, ())
    for step in pipeline.steps.values():
        found: list[str] = []
        try:
            references = _references(step)
        except TooDeep as error:
            inputs[step.name] = ()
            place = Place(step.place.file, _sql_line(step) + error.line - 1)
            problems.append(Problem(place, f"the step `{step.name}`: {error}", "Divide it into steps"))
            continue
        for reference, place in references:
            if "." in reference.name:
                # A table of Spark's catalog, or a file by its path: not ours to know.
                continue
            own = known.get(reference.name.lower())
            if own is None or (isinstance(step, PythonStep) and own != reference.name):
                said = f"the step `{step.name}` reads `{reference.name}`"
                in_sql = not isinstance(step, PythonStep)
                problems.append(_unknown(said, reference, place, known, in_sql=in_sql))
            elif own.lower() in declared and own not in found:
                found.append(own)
        inputs[step.name] = tuple(found)
    for sink in pipeline.sinks.values():
        if sink.input not in declared.values() and sink.input not in unread:
            reference = Reference(sink.input, 1)
            said = f"the sink `{sink.name}` is from `{sink.input}`"
            problems.append(_unknown(said, reference, sink.place, known, in_sql=False))
    return inputs, problems


def _references(step: Step) -> list[tuple[Reference, Place]]:
    if isinstance(step, PythonStep):
        return [(Reference(name, 1), step.place) for name in step.inputs]
    first = step.sql_place
    return [(found, Place(first.file, first.line + found.line - 1)) for found in references_in(step.sql)]


def _sql_line(step: Step) -> int:
    return step.place.line if isinstance(step, PythonStep) else step.sql_place.line


def _unknown(said: str, reference: Reference, place: Place, known: Mapping[str, str], *, in_sql: bool) -> Problem:
    near = nearest(reference.name, known.values())
    if near is not None:
        fix = f"Write `{near}`"
    elif in_sql:
        fix = "Declare it; a table of Spark's own catalog is written with its database, as `default.name`"
    else:
        fix = f"Declare it; there are {quoted(known.values())}" if known else "Declare it"
    return Problem(place, f"{said}, and there is no source or step of that name", fix)


# --- the order ----------------------------------------------------------------------------------------


def _ordered(pipeline: Pipeline, inputs: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], list[Problem]]:
    """Each node after its inputs. What a circle keeps from having a place is left out, and the circle is told."""
    order = list(pipeline.sources)
    waiting = list(pipeline.steps)
    placed = set(order)
    while True:
        ready = [name for name in waiting if placed.issuperset(inputs[name])]
        if not ready:
            break
        # One at a time, so that the order of the file is kept as far as it can be.
        order.append(ready[0])
        placed.add(ready[0])
        waiting.remove(ready[0])
    problems = []
    in_circles: set[str] = set()
    for name in waiting:
        circle = _circle(name, inputs)
        if circle and not in_circles.intersection(circle):
            in_circles.update(circle)
            way = ", which reads ".join(f"`{one}`" for one in (*circle[1:], circle[0]))
            what = f"the steps go round in a circle: `{circle[0]}` reads {way}"
            problems.append(Problem(pipeline.steps[name].place, what, "Take one of them out of the circle"))
    return tuple(order), problems


def _circle(start: str, inputs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A shortest way from a node along its inputs back to itself; empty when there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = set()
    for way in ways:
        for name in inputs[way[-1]]:
            if name == start:
                return way
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return ()


# --- streams and what nobody uses ---------------------------------------------------------------------


def _streams(pipeline: Pipeline, inputs: Mapping[str, tuple[str, ...]], order: Iterable[str]) -> frozenset[str]:
    streams: set[str] = set()
    for name in order:
        source = pipeline.sources.get(name)
        if isinstance(source, TopicSource):
            is_stream = not source.latest_by_key
        elif isinstance(source, FileSource):
            is_stream = source.stream
        elif isinstance(source, TableSource):
            is_stream = False
        else:
            is_stream = not streams.isdisjoint(inputs[name])
        if is_stream:
            streams.add(name)
    return frozenset(streams)


def _without_stream(pipeline: Pipeline, streams: frozenset[str]) -> list[Problem]:
    """Sinks and routes are streaming queries, and rows that are read as a whole each time are no stream."""
    routes = [
        Problem(
            rule.place,
            f"the rule `{rule.name}` routes rows of `{step.name}` away, which has no stream behind it",
            "Use `otherwise: drop` or `fail`",
        )
        for step in pipeline.steps.values()
        for rule in step.expect
        if rule.otherwise == "route" and step.name not in streams
    ]
    return routes + [
        Problem(
            sink.place,
            f"the sink `{sink.name}` has no stream behind it: all that `{sink.input}` is made from is read as a whole",
            "Read a topic without `read: latest`, or files with `stream: true`",
        )
        for sink in pipeline.sinks.values()
        if sink.input not in streams
    ]


def _unused(pipeline: Pipeline, inputs: Mapping[str, tuple[str, ...]]) -> tuple[Problem, ...]:
    used = {name for names in inputs.values() for name in names}
    used.update(sink.input for sink in pipeline.sinks.values())
    nodes = (*pipeline.sources.values(), *pipeline.steps.values())
    return tuple(
        Problem(node.place, f"nothing uses `{node.name}`", "Take it out, or read it in a step or a sink")
        for node in nodes
        if node.name not in used
    )

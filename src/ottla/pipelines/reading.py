"""A pipeline from its file. Every mistake that can be found without a broker and without Spark is found, all at once.

Knows the top of the file and what must fit together across it; each kind of source, step and sink is read in a module
of its own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ottla.client.errors import InvalidSetting
from ottla.client.settings import parse_addresses
from ottla.pipelines import graph, names
from ottla.pipelines.declared_sinks import FILE_FORMATS, sink
from ottla.pipelines.declared_sources import source
from ottla.pipelines.declared_steps import step
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.fields import Fields, Problems, whole_section
from ottla.pipelines.spec import (
    AVAILABLE_NOW,
    FileSource,
    FormatSink,
    Pipeline,
    Place,
    Sink,
    Source,
    Step,
    TableSink,
    TopicSink,
    TopicSource,
)
from ottla.pipelines.yaml_places import Entry, Node, Section, Text, parsed

KEYS = ("pipeline", "bootstrap", "checkpoints", "trigger", "spark", "sources", "steps", "sinks")
CHECKPOINTS_DEFAULT = ".ottla"
_SOURCE = "{orders: {topic: orders}}"
_STEP = "{big: SELECT * FROM orders WHERE amount > 100}"
_SINK = "{big: {from: big, topic: orders.big}}"

Declared = TypeVar("Declared")


def load(path: Path) -> Pipeline:
    """The pipeline that a file declares, YAML or Python. Raises PipelineInvalid with everything that is wrong."""
    if path.suffix == ".py":
        # Only who declares in Python pays for it.
        from ottla.pipelines.decorators import load_python

        return load_python(path)
    file = str(path)
    if path.suffix not in (".yaml", ".yml"):
        what = f"a pipeline is not declared in a file of the kind `{path.suffix}`"
        raise PipelineInvalid([Problem(Place(file, 1), what, "Its name ends in .yaml, .yml or .py")])
    node, problems = parsed(read_text(path), file)
    if node is None:
        raise PipelineInvalid([Problem(Place(file, 1), "the file is empty", "Begin with `pipeline: some-name`")])
    return declared(node, file, problems)


def read_text(path: Path) -> str:
    """The text of a pipeline's file."""
    place = Place(str(path), 1)
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise PipelineInvalid([Problem(place, "there is no such file", "Check its name and directory")]) from error
    except UnicodeDecodeError as error:
        raise PipelineInvalid([Problem(place, "the file is not UTF-8", "Save it as UTF-8 text")]) from error
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise PipelineInvalid([Problem(place, what, "Check what it is and who may read it")]) from error


def declared(node: Node, file: str, problems: Iterable[Problem] = ()) -> Pipeline:
    """The pipeline in a tree of sections; `problems` are those that were found before."""
    found = Problems(file)
    found.found.extend(problems)
    section = whole_section(node, found, what="the file", fix="Begin with `pipeline: some-name`")
    if section is None:
        raise PipelineInvalid(found.found)
    top = Fields(section, found, what="the pipeline")
    top.line = 1
    top.only(KEYS)
    name = _name(top)
    # As everywhere: a file that is a link is where it leads to.
    directory = Path(file).resolve().parent
    sources: dict[str, Source] = _all(top, "sources", _SOURCE, lambda entry: source(entry, found, directory=directory))
    steps: dict[str, Step] = _all(top, "steps", _STEP, lambda entry: step(entry, found))
    sinks: dict[str, Sink] = _all(top, "sinks", _SINK, lambda entry: sink(entry, found))
    _check_names(top)
    for key, example in (("sources", _SOURCE), ("sinks", _SINK)):
        if _is_empty(top.node(key)):
            top.problems.report(top.line_of(key), f"the pipeline has no {key}", f"Write them as `{key}: {example}`")
    pipeline = Pipeline(
        name=name,
        place=found.place(top.line_of("pipeline")),
        checkpoints=top.text("checkpoints", example="state") or f"{CHECKPOINTS_DEFAULT}/{name}",
        sources=sources,
        steps=steps,
        sinks=sinks,
        bootstrap=_bootstrap(top),
        trigger=_trigger(top),
        spark=_spark(top),
    )
    _check_feeding(pipeline, found)
    _check_places(pipeline, found)
    nodes = (*top.entries("sources", example=_SOURCE), *top.entries("steps", example=_STEP))
    unread = [entry.key for entry in nodes if entry.key not in sources and entry.key not in steps]
    found.found.extend(graph.problems_in(pipeline, unread=unread))
    if found.found:
        raise PipelineInvalid(found.found)
    return pipeline


def _all(top: Fields, key: str, example: str, read: Callable[[Entry], Declared | None]) -> dict[str, Declared]:
    read_entries = [(entry.key, read(entry)) for entry in top.entries(key, example=example)]
    return {name: made for name, made in read_entries if made is not None}


def _is_empty(node: Node | None) -> bool:
    """Whether there is nothing there, rather than something wrong, which is told elsewhere."""
    return node is None or (isinstance(node, Text) and node.kind == "nothing") or node == Section(node.line, ())


# --- the top of the file ------------------------------------------------------------------------------


def _name(top: Fields) -> str:
    if not top.required("pipeline", fix="Give it a name, as `pipeline: orders`"):
        return "pipeline"
    name = top.text("pipeline", example="orders")
    if name is None:
        return "pipeline"
    why_not = names.why_not_pipeline(name)
    if why_not is not None:
        top.report("pipeline", f"its name cannot be `{name}`", f"A name {why_not}")
    return name


def _bootstrap(top: Fields) -> str | None:
    bootstrap = top.text("bootstrap", example="127.0.0.1:9092")
    if bootstrap is None:
        return None
    try:
        parse_addresses(bootstrap)
    except InvalidSetting:
        what = f"`bootstrap` is not an address: `{bootstrap}`"
        top.report("bootstrap", what, "Write it as `bootstrap: 127.0.0.1:9092`; several with commas")
    return bootstrap


def _trigger(top: Fields) -> str | None:
    trigger = top.text("trigger", example="5 seconds")
    if trigger is None or trigger == AVAILABLE_NOW or names.is_interval(trigger):
        return trigger
    fix = f"Write an interval such as `5 seconds`, or `{AVAILABLE_NOW}`"
    top.report("trigger", f"`trigger` is not an interval: `{trigger}`", fix)
    return None


def _spark(top: Fields) -> dict[str, str]:
    settings = top.settings("spark", example="{spark.sql.shuffle.partitions: 4}")
    for name in settings:
        if not name.startswith("spark."):
            top.report("spark", f"`{name}` is not a setting of Spark", f"Write `spark.{name}`, or leave it out")
    return settings


def _check_names(top: Fields) -> None:
    lines: dict[str, tuple[str, str, int]] = {}
    for key, kind, example in (("sources", "source", _SOURCE), ("steps", "step", _STEP)):
        for entry in top.entries(key, example=example):
            why_not = names.why_not_node(entry.key)
            if why_not is not None:
                what = f"a {kind} cannot be called `{entry.key}`"
                top.problems.report(entry.line, what, f"A name {why_not}")
            first = lines.setdefault(entry.key.lower(), (entry.key, kind, entry.line))
            if first[2] != entry.line or first[0] != entry.key or first[1] != kind:
                spelled = "" if first[0] == entry.key else f" `{first[0]}`, the same name to SQL,"
                what = f"`{entry.key}` is taken:{spelled} a {first[1]} has it in line {first[2]}"
                top.problems.report(entry.line, what, "Give one of the two another name")
    sinks: dict[str, Entry] = {}
    for entry in top.entries("sinks", example=_SINK):
        why_not = names.why_not_sink(entry.key)
        if why_not is not None:
            top.problems.report(entry.line, f"a sink cannot be called `{entry.key}`", f"A name {why_not}")
        other = sinks.setdefault(entry.key.lower(), entry)
        if other.key != entry.key:
            # Each has a directory of its name, and to some disks theirs would be one.
            what = f"the sinks `{other.key}` and `{entry.key}` differ only in case"
            top.problems.report(entry.line, what, "Give one of the two another name")


# --- what must fit together ---------------------------------------------------------------------------


def _check_feeding(pipeline: Pipeline, problems: Problems) -> None:
    """What the pipeline writes must not be what it reads, or it would never come to an end."""
    read: dict[str | None, TopicSource] = {}
    for origin in pipeline.sources.values():
        if isinstance(origin, TopicSource):
            read.setdefault(origin.topic, origin)
    for found in pipeline.sinks.values():
        if isinstance(found, TopicSink) and found.topic in read:
            _report_feeding(problems, found.place, f"the sink `{found.name}`", found.topic, read[found.topic].name)
    # Not by their topics: two sources may read the same one.
    for origin in pipeline.sources.values():
        if isinstance(origin, TopicSource) and origin.bad in read:
            what = f"`bad` of the source `{origin.name}`"
            _report_feeding(problems, origin.place, what, origin.bad, read[origin.bad].name)
    for node in (*pipeline.sources.values(), *pipeline.steps.values()):
        for rule in node.expect:
            if rule.topic in read:
                what = f"the rule `{rule.name}` of `{node.name}`"
                _report_feeding(problems, rule.place, what, rule.topic, read[rule.topic].name)


def _report_feeding(problems: Problems, place: Place, what: str, topic: str | None, reader: str) -> None:
    said = f"{what} writes to the topic `{topic}`, which the source `{reader}` reads: the pipeline would feed itself"
    problems.report(place.line, said, "Write to another topic")


def _check_places(pipeline: Pipeline, problems: Problems) -> None:
    """Two queries that write the same directory would spoil each other's work; and one must not feed itself."""
    directory = str(Path(pipeline.place.file).resolve().parent)
    read = {
        _whole_path(directory, found.path): found.name
        for found in pipeline.sources.values()
        if isinstance(found, FileSource) and found.stream
    }
    checkpoints = _whole_path(directory, pipeline.checkpoints)
    taken = {checkpoints, *(posixpath.join(checkpoints, name) for name in pipeline.sinks)}
    first: dict[str, Sink] = {}
    for found in pipeline.sinks.values():
        path = _written_path(found)
        if path is None:
            continue
        whole = _whole_path(directory, path)
        if whole in taken:
            what = f"the sink `{found.name}` writes to `{path}`, where the checkpoints of the pipeline are"
            problems.report(found.place.line, what, "Give it another path, or name another directory in `checkpoints`")
        if whole in read:
            what = f"the sink `{found.name}` writes to `{path}`, where the source `{read[whole]}` reads"
            problems.report(found.place.line, f"{what}: the pipeline would feed itself", "Write to another path")
        other = first.setdefault(whole, found)
        if other is not found:
            what = f"the sinks `{other.name}` and `{found.name}` both write to `{path}`"
            fix = "Give each of them a path of its own, or put their rows together in a step with UNION ALL"
            problems.report(found.place.line, what, fix)


def _whole_path(directory: str, path: str) -> str:
    """The same place can be written in several ways."""
    return posixpath.normpath(posixpath.join(directory, posixpath.normpath(path).removeprefix("file:")))


def _written_path(found: Sink) -> str | None:
    if isinstance(found, TableSink):
        return posixpath.normpath(found.path)
    if isinstance(found, FormatSink) and found.format.lower() in FILE_FORMATS:
        path = next((value for name, value in found.options.items() if name.lower() == "path"), None)
        return None if path is None else posixpath.normpath(path)
    return None

"""A pipeline declared in Python, in the words that its YAML has, with functions as steps.

    from ottla.pipelines import decorators as op

    pipeline = op.pipeline("orders", trigger="5 seconds")
    pipeline.topic("orders", format="json", schema="id BIGINT, product STRING, amount DOUBLE")
    pipeline.topic("products", format="json", schema="product STRING, price DOUBLE", read="latest")

    @pipeline.step(expect={"priced": "price IS NOT NULL"})
    def priced(orders, products):
        return orders.join(products, "product", "left")

    pipeline.to_topic("priced", from_="priced", topic="orders.priced", key="product")

What is declared is checked as YAML is, by the same code, with the lines of the Python file. Knows nothing of Spark:
functions are called when the pipeline runs.
"""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.reading import declared, read_text
from ottla.pipelines.spec import Pipeline, Place
from ottla.pipelines.yaml_places import Entry, Section, Text, as_node

Function = TypeVar("Function", bound=Callable[..., Any])
Expect = Mapping[str, str | Mapping[str, object]]
"""Rules by name: a predicate, or `{"where": ..., "otherwise": "drop"}` as in YAML."""
Options = Mapping[str, object]
OWN_PACKAGES = ("ottla", "pyspark_ottla")
"""They may come from elsewhere than where packages are installed."""


def pipeline(
    name: str,
    *,
    bootstrap: str | None = None,
    checkpoints: str | None = None,
    trigger: str | None = None,
    spark: Options | None = None,
) -> Declaration:
    """A pipeline to declare sources, steps and sinks on. One file declares one."""
    frame = _caller()
    top = {"pipeline": name, "bootstrap": bootstrap, "checkpoints": checkpoints, "trigger": trigger, "spark": spark}
    return Declaration(frame.f_code.co_filename, frame.f_lineno, _given(top))


class Declaration:
    """What was declared so far. Nothing is checked before it is complete, so that all mistakes are told at once."""

    def __init__(self, file: str, line: int, top: Mapping[str, object]) -> None:
        self._file = file
        self._line = line
        self._top = top
        self._parts: dict[str, list[Entry]] = {"sources": [], "steps": [], "sinks": []}
        self._problems: list[tuple[int, str, str]] = []
        self._functions: list[tuple[int, Callable[..., Any]]] = []

    # --- sources ------------------------------------------------------------------------------------------

    def topic(
        self,
        name: str,
        *,
        topic: str | None = None,
        format: str | None = None,  # noqa: A002 - as YAML and Spark call it
        schema: str | None = None,
        schema_file: str | None = None,
        separator: str | None = None,
        jar: bool | None = None,
        starting: str | None = None,
        read: str | None = None,
        bad: str | None = None,
        watermark: str | None = None,
        expect: Expect | None = None,
        options: Options | None = None,
    ) -> None:
        """A source from a topic, which has the source's name unless `topic` says another."""
        self._add("sources", name, {**_except(locals()), "topic": name if topic is None else topic})

    def table(self, name: str, *, path: str, expect: Expect | None = None) -> None:
        """A source from a table, as it is when a batch begins."""
        self._add("sources", name, {"table": path, "expect": expect})

    def files(
        self,
        name: str,
        *,
        path: str,
        format: str,  # noqa: A002
        schema: str | None = None,
        stream: bool | None = None,
        watermark: str | None = None,
        expect: Expect | None = None,
        options: Options | None = None,
    ) -> None:
        """A source from files in any format of Spark's; as a stream, each file once."""
        fields = _except(locals(), "path")
        self._add("sources", name, {"files": path, **fields})

    # --- steps --------------------------------------------------------------------------------------------

    def sql(self, name: str, query: str, *, watermark: str | None = None, expect: Expect | None = None) -> None:
        """A step in SQL, which calls sources and other steps by their names."""
        self._add("steps", name, {"sql": query, "watermark": watermark, "expect": expect})

    def step(
        self,
        *,
        name: str | None = None,
        inputs: Sequence[str] | None = None,
        watermark: str | None = None,
        expect: Expect | None = None,
    ) -> Callable[[Function], Function]:
        """A step from a function that takes frames and returns one.

        The step has the function's name, and reads what its parameters are called, unless `name` and `inputs` say
        otherwise. The function itself stays as it is.
        """

        def declare(function: Function) -> Function:
            line = function.__code__.co_firstlineno if inspect.isfunction(function) else self._line
            names = list(inputs) if inputs is not None else self._parameters(function, line)
            fields = {
                "python": f"{function.__module__}:{function.__qualname__}",
                "from": names,
                "watermark": watermark,
                "expect": expect,
            }
            if not _is_reachable(function):
                what = f"the step `{function.__name__}` is a function inside of something else"
                self._problems.append((line, what, "Define it with `def` at the top of a module"))
            else:
                self._put("steps", name or function.__name__, line, fields)
                self._functions.append((line, function))
            return function

        return declare

    def _parameters(self, function: Callable[..., Any], line: int) -> list[str]:
        parameters = inspect.signature(function).parameters.values()
        simple = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or any(parameter.kind not in simple for parameter in parameters):
            what = "it cannot be told from the parameters of the function what the step reads"
            self._problems.append((line, what, "Call them as the sources and steps are called, or give `inputs=`"))
        return [parameter.name for parameter in parameters]

    # --- sinks --------------------------------------------------------------------------------------------

    def to_topic(
        self,
        name: str,
        *,
        from_: str,
        topic: str | None = None,
        key: str | None = None,
        value: str | None = None,
        mode: str | None = None,
        options: Options | None = None,
    ) -> None:
        """A sink into a topic, which has the sink's name unless `topic` says another."""
        fields = _except(locals(), "from_")
        self._add("sinks", name, {"from": from_, **fields, "topic": name if topic is None else topic})

    def to_table(
        self,
        name: str,
        *,
        from_: str,
        path: str,
        partition_by: str | Sequence[str] | None = None,
        keys: str | Sequence[str] | None = None,
        deleted: str | None = None,
        order: str | None = None,
        file_bytes_min: int | None = None,
    ) -> None:
        """A sink into a table of ours; with `keys`, a row replaces the one with the same keys."""
        fields = _except(locals(), "from_", "path")
        self._add("sinks", name, {"from": from_, "table": path, **fields})

    def to_format(
        self,
        name: str,
        *,
        from_: str,
        format: str,  # noqa: A002
        mode: str | None = None,
        options: Options | None = None,
    ) -> None:
        """A sink into any format that Spark can write a stream to."""
        self._add("sinks", name, {"from": from_, "format": format, "mode": mode, "options": options})

    # --- the whole ----------------------------------------------------------------------------------------

    def declared(self, file: str | None = None, *, query_lines: Mapping[int, int] | None = None) -> Pipeline:
        """The pipeline, once it is complete. Raises PipelineInvalid with everything that is wrong.

        `file` is how messages call the file, and paths begin where it is; None: the file that made the declaration.
        `query_lines` says where the texts of queries begin, by the lines of the calls that they are given to.
        """
        named = self._file if file is None else file
        parts = {**self._parts, "steps": [_with_line(entry, query_lines or {}) for entry in self._parts["steps"]]}
        sections = [Entry(key, self._line, Section(self._line, tuple(entries))) for key, entries in parts.items()]
        top = as_node(self._top, self._line)
        assert isinstance(top, Section)
        problems = [Problem(Place(named, line), what, fix) for line, what, fix in (*self._problems, *self._lost())]
        return declared(Section(self._line, (*top.entries, *sections)), named, problems)

    def _lost(self) -> Iterator[tuple[int, str, str]]:
        """Functions that a later definition of the same name has taken the place of."""
        for line, function in self._functions:
            there = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
            if there is None or inspect.unwrap(there) is not inspect.unwrap(function):
                what = f"the function `{function.__qualname__}` cannot be found again under its name"
                yield line, what, "Give each function a name of its own, and let it be a part of its module"

    def _add(self, part: str, name: str, fields: Mapping[str, object]) -> None:
        # From here two calls up: a method of this class, then the line that declares.
        self._put(part, name, _caller(2).f_lineno, fields)

    def _put(self, part: str, name: str, line: int, fields: Mapping[str, object]) -> None:
        first = next((entry for entry in self._parts[part] if entry.key == name), None)
        if first is not None:
            what = f"`{name}` is declared twice among the {part}; the first one is in line {first.line}"
            self._problems.append((line, what, "Keep one of the two"))
            return
        self._parts[part].append(Entry(name, line, as_node(_given(fields), line)))


def _with_line(step: Entry, query_lines: Mapping[int, int]) -> Entry:
    """A step whose query, if it is one, stands where its text begins."""
    line = query_lines.get(step.line)
    if line is None or not isinstance(step.node, Section):
        return step
    entries = [
        replace(entry, node=replace(entry.node, text_line=line))
        if entry.key == "sql" and isinstance(entry.node, Text)
        else entry
        for entry in step.node.entries
    ]
    return replace(step, node=replace(step.node, entries=tuple(entries)))


def _except(given: Mapping[str, object], *names: str) -> dict[str, object]:
    """The arguments of a method as fields, without those that are none."""
    return {name: value for name, value in given.items() if name not in ("self", "name", *names)}


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    """What was said; None stands for what was left out."""
    return {name: value for name, value in fields.items() if value is not None}


def _caller(levels: int = 1) -> FrameType:
    """The frame of whoever called the function that asks, or of one further up."""
    frame = inspect.currentframe()
    for _ in range(levels + 1):
        assert frame is not None, "every function that asks was called by somebody"
        frame = frame.f_back
    assert frame is not None
    return frame


def _is_reachable(function: Callable[..., Any]) -> bool:
    """Whether the function can be found again by the name of its module and its own."""
    return getattr(function, "__qualname__", "<locals>").isidentifier()


# --- files --------------------------------------------------------------------------------------------


def load_python(path: Path) -> Pipeline:
    """The pipeline that a Python file declares. The file is run for it, as a module of its own name."""
    file = str(path)
    text = read_text(path)
    name = path.stem
    if not name.isidentifier() or _is_taken(name):
        what = f"`{path.name}` cannot be loaded as a module, which steps in Python need"
        fix = "Name it like `orders_pipeline.py`, and not like a module of Python itself or one that is installed"
        raise _invalid(file, 1, what, fix)
    module = _run(path, name, text)
    found = list({id(value): value for value in vars(module).values() if isinstance(value, Declaration)}.values())
    if len(found) != 1:
        what = "no pipeline is declared here" if not found else f"{len(found)} pipelines are declared here"
        raise _invalid(file, 1, what, 'Write one `pipeline = op.pipeline("some-name")` at the top of the module')
    return found[0].declared(file, query_lines=_query_lines(text))


def _query_lines(text: str) -> dict[int, int]:
    """Where the texts of queries begin: most often further down than the calls `pipeline.sql(...)` that hold them."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sql":
            named = [word.value for word in node.keywords if word.arg == "query"]
            for query in (*node.args[1:2], *named):
                if isinstance(query, ast.Constant):
                    found[node.lineno] = query.lineno
    return found


def _is_taken(name: str) -> bool:
    """Whether others import a module by this name: it would get this file in its place."""
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    is_installed = PathFinder.find_spec(name, installed) is not None
    return is_installed or name in sys.stdlib_module_names or name in OWN_PACKAGES


def _run(path: Path, name: str, text: str) -> ModuleType:
    resolved = path.resolve()
    module = ModuleType(name)
    module.__file__ = str(resolved)
    directory = str(resolved.parent)
    if directory not in sys.path:
        # Modules beside the file are found, as they are when it runs as a program.
        sys.path.insert(0, directory)
    before = sys.modules.get(name)
    # Steps find their functions again by the name of their module.
    sys.modules[name] = module
    try:
        # Compiled anew each time: a cache goes by seconds, and a file may be changed and run again within one.
        # As if nobody had called it: annotations here are texts, and those of the file are what it says itself.
        exec(compile(text, resolved, "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if isinstance(error, PipelineInvalid) or not isinstance(error, Exception | SystemExit):
            raise
        line = _line_of(error, path)
        raise _invalid(str(path), line, f"the file fails with {_told(error)}", "Correct it") from error
    return module


def _line_of(error: BaseException, path: Path) -> int:
    """The last line of this file on the way to the error."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return error.lineno
    resolved = str(path.resolve())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == resolved]
    return next((line for line in reversed(lines) if line is not None), 1)


def _told(error: BaseException) -> str:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(said.split())}"


def _invalid(file: str, line: int, what: str, fix: str) -> PipelineInvalid:
    return PipelineInvalid([Problem(Place(file, line), what, fix)])

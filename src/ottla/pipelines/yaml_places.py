"""A YAML text as sections, lists and texts that know their lines. Knows nothing of pipelines.

A scalar stays the text that was written: `on`, `no` and `1.0` are no mistakes as names, and only whoever asks for a
switch or a number turns a text into one. Keys that appear twice are found, which most readers of YAML let pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import yaml

from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.spec import Place

ScalarKind = Literal["text", "number", "switch", "nothing"]
"""What a scalar would be to YAML: quoted ones are always texts."""

_KINDS: dict[str, ScalarKind] = {
    "tag:yaml.org,2002:int": "number",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:bool": "switch",
    "tag:yaml.org,2002:null": "nothing",
}
_STANDARD_TAGS = "tag:yaml.org,2002:"
_MERGE_TAG = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar, as it was written."""

    line: int
    text: str
    kind: ScalarKind = "text"
    text_line: int = 0
    """Where the text itself begins: below the line of its key when it is a block (`|`)."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    line: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Keys and what they hold, in the order of the file."""

    line: int
    entries: tuple[Entry, ...]


Node = Text | Items | Section


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a section."""

    key: str
    line: int
    node: Node


def parsed(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The document in `text` (None: there is none), and what is wrong with it as YAML.

    Raises PipelineInvalid where the text is no YAML at all; after the first such error nothing else can be told.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            return None, []
        translation = _Translation(file)
        return translation.node(root), translation.problems
    except yaml.MarkedYAMLError as error:
        raise PipelineInvalid([_syntax_problem(error, file)]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = "a character stands here that YAML does not allow"
        raise PipelineInvalid([Problem(Place(file, line), what, "Take it out; the file is plain text")]) from error
    except RecursionError as error:
        what = "lists or sections are nested too deeply"
        raise PipelineInvalid([Problem(Place(file, 1), what, "A pipeline needs six levels at most")]) from error


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1 if mark is not None else 1)
    said = error.problem or "it cannot be read"
    if "\\t" in said:
        return Problem(place, "a tab stands where YAML wants spaces", "Indent with spaces only")
    if "mapping values are not allowed" in said:
        what = "a `key: value` stands where YAML does not expect one"
        return Problem(place, what, "Check the indentation, and put a text that has `: ` in it in quotes")
    if "expected a single document" in str(error.context):
        return Problem(place, "a second document begins here", "Keep one pipeline in a file, without `---` in between")
    begun = error.context_mark
    since = f" that begins in line {begun.line + 1}" if begun is not None and begun.line + 1 != place.line else ""
    doing = f" {error.context}{since}," if error.context else ""
    return Problem(place, f"this is not YAML:{doing} {said}", "Check the indentation, the quotes and the brackets")


class _Translation:
    """Turns the nodes of the YAML library into ours; each shared node (an alias) is translated once."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._done: dict[int, Node] = {}
        self._under_way: set[int] = set()
        self.problems: list[Problem] = []

    def node(self, node: yaml.Node) -> Node:
        if id(node) in self._done:
            return self._done[id(node)]
        line = node.start_mark.line + 1
        if id(node) in self._under_way:
            self._report(line, "an alias (`*`) stands inside of what it stands for", "Write it out")
            return Text(line, "", "nothing", line)
        if not node.tag.startswith(_STANDARD_TAGS):
            self._report(line, f"the tag `{node.tag}` means nothing here", "Leave it out")
        self._under_way.add(id(node))
        translated = self._translated(node, line)
        self._under_way.discard(id(node))
        self._done[id(node)] = translated
        return translated

    def _translated(self, node: yaml.Node, line: int) -> Node:
        if isinstance(node, yaml.ScalarNode):
            is_block = node.style in ("|", ">")
            kind = _KINDS.get(node.tag, "text")
            return Text(line, node.value, kind, line + 1 if is_block else line)
        if isinstance(node, yaml.SequenceNode):
            return Items(line, tuple(self.node(item) for item in node.value))
        assert isinstance(node, yaml.MappingNode)
        return self._section(node, line)

    def _section(self, node: yaml.MappingNode, line: int) -> Section:
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "":
                self._report(key_line, "a key is not a text", "Write `key: value`, with a simple name as the key")
                continue
            key = key_node.value
            if key_node.tag == _MERGE_TAG:
                merged.update({entry.key: entry for entry in self._merged(value_node)})
            elif key in own:
                what = f"the key `{key}` is there twice; the first one is in line {own[key].line}"
                self._report(key_line, what, "Keep one of the two")
            else:
                own[key] = Entry(key, key_line, self.node(value_node))
        return Section(line, (*own.values(), *(entry for key, entry in merged.items() if key not in own)))

    def _merged(self, node: yaml.Node) -> tuple[Entry, ...]:
        translated = self.node(node)
        sections = translated.nodes if isinstance(translated, Items) else (translated,)
        found: dict[str, Entry] = {}
        for section in sections:
            if not isinstance(section, Section):
                self._report(translated.line, "`<<` takes in something that has no keys", "Name a section with `*`")
                continue
            for entry in section.entries:
                found.setdefault(entry.key, entry)
        return tuple(found.values())

    def _report(self, line: int, what: str, fix: str) -> None:
        self.problems.append(Problem(Place(self._file, line), what, fix))


def as_node(value: object, line: int) -> Node:
    """A value of Python as if it had been written at that line, so that both ways to declare share their checks."""
    if isinstance(value, Mapping):
        return Section(line, tuple(Entry(str(key), line, as_node(held, line)) for key, held in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Items(line, tuple(as_node(item, line) for item in value))
    if value is None:
        return Text(line, "", "nothing", line)
    if isinstance(value, bool):
        return Text(line, "true" if value else "false", "switch", line)
    return Text(line, str(value), "number" if isinstance(value, int | float) else "text", line)

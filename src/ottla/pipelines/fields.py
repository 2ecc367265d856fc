"""Asking a section of a declaration for what it should hold; what it holds instead is noted as a problem.

Knows kinds of values (texts, switches, numbers, lists, sections), not what they mean to a pipeline. Nothing is raised
here: a value that is wrong reads as missing, so that one pass finds everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from ottla.pipelines.errors import Problem
from ottla.pipelines.spec import Place
from ottla.pipelines.yaml_places import Entry, Items, Node, Section, Text

Word = TypeVar("Word", bound=str)

LIKENESS = 0.6
"""How alike two names must be for one to be offered in place of the other."""
DIGITS_MAX = 18
"""Of a number: so many fit into 64 bits."""
_TRUE = ("true", "yes", "on", "y")


class Problems:
    """What was found wrong so far in one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def place(self, line: int) -> Place:
        return Place(self.file, line)

    def report(self, line: int, what: str, fix: str) -> None:
        self.found.append(Problem(self.place(line), what, fix))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant."""
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=LIKENESS)
    return by_lower[close[0]] if close else None


def quoted(names: Iterable[str]) -> str:
    """Names in a sentence, one after the other."""
    return ", ".join(f"`{name}`" for name in names)


def whole_section(node: Node, problems: Problems, *, what: str, fix: str) -> Section | None:
    """The node, if it has keys."""
    if isinstance(node, Section):
        return node
    problems.report(node.line, f"{what} has no keys", fix)
    return None


class Fields:
    """One section; `what` names it in messages, as `the source `orders``."""

    def __init__(self, section: Section, problems: Problems, *, what: str) -> None:
        self._entries = {entry.key: entry for entry in section.entries}
        self.line = section.line
        self.problems = problems
        self.what = what

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def line_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return self.line if entry is None else entry.line

    def report(self, key: str, what: str, fix: str) -> None:
        """A problem with the value of that key."""
        self.problems.report(self.line_of(key), f"{self.what}: {what}", fix)

    def only(self, known: Sequence[str], *, elsewhere: Mapping[str, str] | None = None) -> None:
        """Every other key is a mistake; `elsewhere` says what keys are for that other sections of this kind have."""
        for entry in self._entries.values():
            if entry.key in known:
                continue
            if elsewhere is not None and entry.key in elsewhere:
                what = f"{self.what}: `{entry.key}` {elsewhere[entry.key]}"
                self.problems.report(entry.line, what, "Leave it out")
                continue
            if " " in entry.key and isinstance(entry.node, Text) and entry.node.kind == "nothing":
                # `{schema: a INT, b INT}` has a key `b INT` to YAML: by far the most likely reason for such a key.
                what = f"{self.what} has an unknown key `{entry.key}`, most likely the rest of a text with a comma"
                self.problems.report(entry.line, what, "Put texts that have commas in them in quotes")
                continue
            near = nearest(entry.key, known)
            fix = f"Write `{near}`" if near is not None else f"The keys are {quoted(known)}"
            self.problems.report(entry.line, f"{self.what} has an unknown key `{entry.key}`", fix)

    def required(self, key: str, *, fix: str) -> bool:
        """Whether the key is there; reported when it is not."""
        if key not in self._entries:
            self.problems.report(self.line, f"{self.what} has no `{key}`", fix)
            return False
        return True

    def node(self, key: str) -> Node | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.node

    def text(self, key: str, *, example: str) -> str | None:
        """The text of a scalar, whatever YAML takes it for; None when the key is missing or holds something else."""
        found = self.scalar(key, example=example)
        return None if found is None else found.text.strip()

    def scalar(self, key: str, *, example: str) -> Text | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        fix = f"Write it as `{key}: {example}`"
        if not isinstance(entry.node, Text):
            kind = "a list" if isinstance(entry.node, Items) else "a section"
            self.problems.report(entry.line, f"{self.what}: `{key}` is {kind} and should be a text", fix)
            return None
        if entry.node.kind == "nothing" or not entry.node.text.strip():
            self.problems.report(entry.line, f"{self.what}: `{key}` is empty", fix)
            return None
        return entry.node

    def word(self, key: str, words: Sequence[Word], *, default: Word) -> Word:
        """One of these words."""
        found = self.text(key, example=words[0])
        if found is None:
            return default
        for word in words:
            if found == word:
                return word
        near = nearest(found, words)
        fix = f"Write `{near}`" if near is not None else f"It is one of {quoted(words)}"
        self.report(key, f"`{key}` cannot be `{found}`", fix)
        return default

    def switch(self, key: str) -> bool:
        """False when the key is missing."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        if isinstance(entry.node, Text) and entry.node.kind == "switch":
            return entry.node.text.lower() in _TRUE
        self.report(key, f"`{key}` is neither true nor false", f"Write `{key}: true`, or leave it out")
        return False

    def number(self, key: str, *, lowest: int) -> int | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        text = entry.node.text.replace("_", "") if isinstance(entry.node, Text) else ""
        if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) >= lowest:
            return int(text)
        self.report(key, f"`{key}` is not a whole number of at least {lowest}", f"Write it as `{key}: {lowest}`")
        return None

    def texts(self, key: str, *, example: str) -> tuple[str, ...]:
        """A list of texts; one text alone is a list of one."""
        entry = self._entries.get(key)
        if entry is None:
            return ()
        if isinstance(entry.node, Text):
            found = self.text(key, example=example)
            return () if found is None else (found,)
        nodes = entry.node.nodes if isinstance(entry.node, Items) else ()
        found_all = [node.text.strip() for node in nodes if isinstance(node, Text) and node.text.strip()]
        if not found_all or len(found_all) < len(nodes):
            self.report(key, f"`{key}` is not a list of texts", f"Write it as `{key}: {example}`")
        doubles = sorted({text for text in found_all if found_all.count(text) > 1})
        if doubles:
            self.report(key, f"`{key}` names {quoted(doubles)} more than once", "Name each of them once")
        return tuple(dict.fromkeys(found_all))

    def settings(self, key: str, *, example: str) -> dict[str, str]:
        """A section of names and texts, such as options; empty when it is missing."""
        found: dict[str, str] = {}
        for entry in self.entries(key, example=example):
            if isinstance(entry.node, Text) and entry.node.kind != "nothing":
                is_switch = entry.node.kind == "switch"
                found[entry.key] = _switch_text(entry.node.text) if is_switch else entry.node.text
            else:
                what = f"{self.what}: `{key}` has `{entry.key}` without a simple value"
                self.problems.report(entry.line, what, "Write it as `name: value`")
        return found

    def entries(self, key: str, *, example: str) -> tuple[Entry, ...]:
        """What the section under that key holds; empty when it is missing or has nothing in it."""
        entry = self._entries.get(key)
        if entry is None or (isinstance(entry.node, Text) and entry.node.kind == "nothing"):
            return ()
        if isinstance(entry.node, Section):
            return entry.node.entries
        self.report(key, f"`{key}` should have keys of its own", f"Write it as `{key}: {example}`")
        return ()


def _switch_text(text: str) -> str:
    """Options are texts to Spark, which knows `true` and `false` and no other word for them."""
    return "true" if text.lower() in _TRUE else "false"

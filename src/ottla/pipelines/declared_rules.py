"""Quality rules and watermarks as sources and steps declare them. Knows their form; SQL is Spark's to judge."""

from __future__ import annotations

from typing import Literal

from ottla.pipelines import names
from ottla.pipelines.fields import Fields, nearest, quoted
from ottla.pipelines.references import has_subquery
from ottla.pipelines.spec import Rule, Watermark
from ottla.pipelines.yaml_places import Entry, Items, Node, Section, Text

_EXPECT = "{positive: amount > 0}"
_ROUTE = "`otherwise: {route: some.topic}`"
_OUTCOMES: tuple[Literal["drop"], Literal["fail"]] = ("drop", "fail")


def rules(fields: Fields) -> tuple[Rule, ...]:
    """What `expect` says, in the order of the file."""
    found = [_rule(entry, fields) for entry in fields.entries("expect", example=_EXPECT)]
    return tuple(rule for rule in found if rule is not None)


def watermark(fields: Fields) -> Watermark | None:
    """What `watermark` says."""
    text = fields.text("watermark", example="event_time 2 minutes")
    if text is None:
        return None
    parts = names.watermark_parts(text)
    if parts is None:
        if names.is_column(text):
            what = f"the watermark on `{text}` does not say how long to wait for what is late"
            fields.report("watermark", what, f"Write it as `watermark: {text} 2 minutes`")
        else:
            what = f"the watermark `{text}` is not a column and an interval"
            fields.report("watermark", what, "Write it as `watermark: event_time 2 minutes`")
        return None
    return Watermark(*parts)


def topic(fields: Fields, key: str, *, written: bool) -> str | None:
    """The name of a topic under that key; one that is written to is not one of those kept for Ottla."""
    name = fields.text(key, example="orders")
    if name is None:
        return None
    return name if _is_usable_topic(fields, key, fields.line_of(key), name, written=written) else None


def _is_usable_topic(fields: Fields, key: str, line: int, name: str, *, written: bool) -> bool:
    if not names.is_topic(name):
        what = f"{fields.what}: no topic can be called `{name}`"
        fields.problems.report(line, what, "A name has up to 249 letters, digits, `.`, `_` and `-`")
        return False
    if written and names.is_internal_topic(name):
        what = f"{fields.what}: `{key}` writes to `{name}`, and topics with `__` in front are kept for Ottla"
        fields.problems.report(line, what, "Choose another name")
        return False
    return True


def _rule(entry: Entry, fields: Fields) -> Rule | None:
    place = fields.problems.place(entry.line)
    what = f"{fields.what}: the rule `{entry.key}`"
    if names.why_not_sink(entry.key) is not None:
        said = f"{what} has a name that it cannot have"
        fields.problems.report(entry.line, said, "Use letters, digits, `-`, `_` and `.`")
        return None
    if isinstance(entry.node, Text):
        if entry.node.kind == "nothing" or not entry.node.text.strip():
            fields.problems.report(entry.line, f"{what} says nothing", f"Write it as `{entry.key}: amount > 0`")
            return None
        text = entry.node.text.strip()
        return Rule(entry.key, place, text, "fail") if _is_of_row(fields, entry.line, what, text) else None
    if isinstance(entry.node, Items):
        fields.problems.report(entry.line, f"{what} is a list", "Write one predicate in SQL, joined by AND")
        return None
    inner = Fields(entry.node, fields.problems, what=what)
    inner.only(("where", "otherwise"))
    inner.required("where", fix="Write `where: amount > 0`, a predicate in SQL")
    where = inner.text("where", example="amount > 0")
    outcome = _otherwise(inner)
    if where is None or outcome is None or not _is_of_row(fields, inner.line_of("where"), what, where):
        return None
    return Rule(entry.key, place, where, outcome[0], outcome[1])


def _is_of_row(fields: Fields, line: int, what: str, where: str) -> bool:
    """Rows that pass and rows that are sent away are told apart twice, and another query may answer otherwise then."""
    if has_subquery(where):
        fix = "Join what it asks for in a step, and put the rule there"
        fields.problems.report(line, f"{what} depends on more than the row: it asks a query", fix)
        return False
    return True


def _otherwise(rule: Fields) -> tuple[Literal["drop", "fail", "route"], str | None] | None:
    node = rule.node("otherwise")
    if node is None:
        return "fail", None
    if isinstance(node, Section):
        return _route(rule, node)
    text = node.text if isinstance(node, Text) else ""
    for outcome in _OUTCOMES:
        if text == outcome:
            return outcome, None
    if text == "route":
        rule.report("otherwise", "`route` does not say to which topic", f"Write it as {_ROUTE}")
        return None
    rule.report("otherwise", *_unknown_otherwise(node, text))
    return None


def _unknown_otherwise(node: Node, text: str) -> tuple[str, str]:
    if not isinstance(node, Text) or node.kind == "nothing":
        return "`otherwise` has no value that means something", f"Write `drop`, `fail` or {_ROUTE}"
    near = nearest(text, (*_OUTCOMES, "route"))
    if near == "route":
        return f"`otherwise` cannot be `{text}`", f"Write it as {_ROUTE}"
    fix = f"Write `{near}`" if near is not None else f"It is {quoted(_OUTCOMES)} or {_ROUTE}"
    return f"`otherwise` cannot be `{text}`", fix


def _route(rule: Fields, section: Section) -> tuple[Literal["route"], str] | None:
    inner = Fields(section, rule.problems, what=f"{rule.what}, `otherwise`")
    inner.only(("route",))
    if not inner.required("route", fix=f"Write it as {_ROUTE}"):
        return None
    name = topic(inner, "route", written=True)
    return None if name is None else ("route", name)

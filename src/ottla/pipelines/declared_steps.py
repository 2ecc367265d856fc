"""Steps as a pipeline declares them: a query in SQL, or a function in Python. Knows their form, not what they do."""

from __future__ import annotations

from ottla.pipelines import declared_rules, names
from ottla.pipelines.fields import Fields, Problems
from ottla.pipelines.spec import PythonStep, SqlStep, Step
from ottla.pipelines.yaml_places import Entry, Section, Text

SQL_KEYS = ("sql", "watermark", "expect")
PYTHON_KEYS = ("python", "from", "watermark", "expect")
_SQL = "SELECT * FROM orders"


def step(entry: Entry, problems: Problems) -> Step | None:
    """The step, or None when too much of it is wrong."""
    what = f"the step `{entry.key}`"
    if isinstance(entry.node, Text):
        # A text alone is the query: it is looked at as if it stood behind `sql`.
        section = Section(entry.line, (Entry("sql", entry.line, entry.node),))
    elif isinstance(entry.node, Section):
        section = entry.node
    else:
        problems.report(entry.line, f"{what} is a list", f"Write the query, as `{entry.key}: {_SQL}`")
        return None
    fields = Fields(section, problems, what=what)
    fields.line = entry.line
    kinds = [kind for kind in ("sql", "python") if kind in fields]
    if len(kinds) != 1:
        said = "has neither `sql` nor `python`" if not kinds else "has both `sql` and `python`"
        problems.report(entry.line, f"{what} {said}", "Give it exactly one of them")
        fields.only(("sql", *PYTHON_KEYS))
        return None
    return _sql_step(entry, fields) if kinds == ["sql"] else _python_step(entry, fields)


def _sql_step(entry: Entry, fields: Fields) -> SqlStep | None:
    fields.only(SQL_KEYS, elsewhere={"from": "is for Python; SQL names what it reads itself"})
    sql = fields.scalar("sql", example=_SQL)
    watermark = declared_rules.watermark(fields)
    expect = declared_rules.rules(fields)
    if sql is None:
        return None
    return SqlStep(
        name=entry.key,
        place=fields.problems.place(entry.line),
        sql=sql.text,
        sql_place=fields.problems.place(sql.text_line or sql.line),
        watermark=watermark,
        expect=expect,
    )


def _python_step(entry: Entry, fields: Fields) -> PythonStep | None:
    fields.only(PYTHON_KEYS)
    function = fields.text("python", example='"steps:score"')
    watermark = declared_rules.watermark(fields)
    expect = declared_rules.rules(fields)
    has_inputs = fields.required("from", fix="Name what the function takes, as `from: [orders]`")
    inputs = fields.texts("from", example="[orders]")
    if function is not None and not names.is_function(function):
        what = f"`{function}` is not a function in a module"
        fields.report("python", what, 'Write it as `python: "steps:score"`: the module, a colon, the function')
        return None
    if function is None or not has_inputs:
        return None
    return PythonStep(
        name=entry.key,
        place=fields.problems.place(entry.line),
        function=function,
        inputs=inputs,
        watermark=watermark,
        expect=expect,
    )

"""The style guide as functions: the source of a file in, what is wrong with it out.

Nothing here reads a file; `test_tidy.py` does, and `exceptions.py` says which findings are accepted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
SENTENCE_WORDS_MIN = 3

BANNED_NAMES = frozenset({"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"})

BANNED_CALLS = {
    "time.time": "take a Clock and ask now_ms()",
    "time.time_ns": "take a Clock and ask now_ms()",
    "time.monotonic": "take a Clock",
    "time.sleep": "wait for what you wait for",
    "datetime.now": "take a Clock and ask now_ms()",
    "datetime.utcnow": "take a Clock and ask now_ms()",
    "datetime.datetime.now": "take a Clock and ask now_ms()",
    "datetime.datetime.utcnow": "take a Clock and ask now_ms()",
    "open": "take a Disk and use its open()",
    "os.open": "take a Disk and use its open()",
    "io.open": "take a Disk and use its open()",
    "os.urandom": "take chance through the constructor",
    "uuid.uuid4": "take chance through the constructor",
    "asyncio.create_task": "start it in a TaskGroup, which owns it",
    "print": "return it, or use logging",
}

BANNED_TEST_CALLS = {
    "time.sleep": "wait for what you wait for; no sleeps",
    "asyncio.sleep": "wait for what you wait for; no sleeps",
    "mock.patch": "hand in the fake that the package ships",
    "patch": "hand in the fake that the package ships",
}

# Spelled in two parts, so that this file does not find itself.
REGISTRY_HOSTS = tuple(
    f"{name}.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo1.maven", "org"),
        ("repo.maven.apache", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
    )
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """One thing that is against the guide."""

    rule: str
    line: int
    message: str


Rule = Callable[[str, ast.Module], Iterator[Finding]]


def file_length(source: str, tree: ast.Module) -> Iterator[Finding]:
    """A file is one idea; one that is too long holds two."""
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        yield Finding("file-length", lines, f"{lines} lines, at most {FILE_LINES_MAX}: split it by idea")


def function_length(source: str, tree: ast.Module) -> Iterator[Finding]:
    """Counted without the docstring, which may be as long as it needs to be."""
    for function in _functions(tree):
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > FUNCTION_LINES_MAX:
            message = f"{function.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            yield Finding("function-length", function.lineno, message)


def module_docstring(source: str, tree: ast.Module) -> Iterator[Finding]:
    """Every module says what it is for."""
    if ast.get_docstring(tree) is None:
        yield Finding("module-docstring", 1, "no docstring says what this module is for")


def banned_calls(source: str, tree: ast.Module) -> Iterator[Finding]:
    """The world comes in through the constructor."""
    yield from _calls(tree, BANNED_CALLS)


def banned_test_calls(source: str, tree: ast.Module) -> Iterator[Finding]:
    """Tests do not sleep and do not patch our own code."""
    yield from _calls(tree, BANNED_TEST_CALLS)


def patched_code(source: str, tree: ast.Module) -> Iterator[Finding]:
    """The operating system may be replaced in a test of the code that talks to it; our own code may not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func) == "monkeypatch.setattr" and node.args:
            target = _dotted(node.args[0])
            if target != "os":
                yield Finding(
                    "patched-code", node.lineno, f"{target or 'this'} is patched: hand in what the test needs"
                )


def chance(source: str, tree: ast.Module) -> Iterator[Finding]:
    """The module-level functions of `random` share one hidden state; a `Random` that is handed in does not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            if name.startswith("random.") and name != "random.Random":
                yield Finding("chance", node.lineno, f"{name}(): take a random.Random through the constructor")


def swallowed_errors(source: str, tree: ast.Module) -> Iterator[Finding]:
    """An error that is caught broadly and dropped hides a bug."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = node.type is None or _dotted(node.type) in {"Exception", "BaseException"}
        silent = all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
        if node.type is None:
            yield Finding("swallowed-error", node.lineno, "a bare except: name the error")
        elif broad and silent:
            yield Finding("swallowed-error", node.lineno, "everything is caught and nothing is done: name the error")


def keyword_only(source: str, tree: ast.Module) -> Iterator[Finding]:
    """A bare True, or two bare numbers, cannot be read at the place of the call.

    Functions inside functions are left alone: whoever calls them stands next to them, or set their shape.
    """
    owners: list[ast.Module | ast.ClassDef] = [tree]
    owners += [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    public = [node for owner in owners for node in owner.body if isinstance(node, Function)]
    for function in public:
        if function.name.startswith("_"):
            continue
        positional = [*function.args.posonlyargs, *function.args.args]
        annotations = [_dotted(argument.annotation) if argument.annotation else "" for argument in positional]
        if "bool" in annotations:
            yield Finding("keyword-only", function.lineno, f"{function.name}: a bool is keyword-only")
        if annotations.count("int") > 1:
            yield Finding("keyword-only", function.lineno, f"{function.name}: two ints are keyword-only")


def sentence_names(source: str, tree: ast.Module) -> Iterator[Finding]:
    """The name of a test is a sentence."""
    for function in _functions(tree):
        words = [word for word in function.name.split("_") if word]
        if words[:1] == ["test"] and len(words) <= SENTENCE_WORDS_MIN:
            yield Finding("test-name", function.lineno, f"{function.name} is not a sentence")


def unfailing_tests(source: str, tree: ast.Module) -> Iterator[Finding]:
    """`assert True` and a test without a statement prove nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            yield Finding("cannot-fail", node.lineno, "this assertion always holds")
    for function in _functions(tree):
        if function.name.startswith("test_") and all(_is_empty(statement) for statement in function.body):
            yield Finding("cannot-fail", function.lineno, f"{function.name} does nothing")


def unfinished(source: str, tree: ast.Module) -> Iterator[Finding]:
    """Notes to oneself belong somewhere else."""
    for number, line in enumerate(source.splitlines(), 1):
        found = re.search(r"#.*\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", line)
        if found:
            yield Finding("unfinished", number, f"{found.group(1)}: do it, or write down why not")


def registry_hosts(text: str) -> Iterator[Finding]:
    """Where packages come from is the machine's business, not the repository's. For any text file."""
    for number, line in enumerate(text.splitlines(), 1):
        for host in REGISTRY_HOSTS:
            if host in line.lower():
                yield Finding("registry-host", number, f"names {host}")


def banned_file_name(stem: str) -> Iterator[Finding]:
    """A file is named by a noun of Kafka. `stem` is its name without the ending."""
    if BANNED_NAMES & set(stem.lower().split("_")):
        yield Finding("file-name", 1, f"{stem} says nothing about what is in it")


def _calls(tree: ast.Module, banned: dict[str, str]) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            if name in banned:
                yield Finding("banned-call", node.lineno, f"{name}(): {banned[name]}")


def _functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def _dotted(node: ast.expr) -> str:
    """`a.b.c` as text; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _is_empty(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


SOURCE_RULES: tuple[Rule, ...] = (
    file_length,
    function_length,
    module_docstring,
    banned_calls,
    chance,
    swallowed_errors,
    keyword_only,
    unfinished,
)
TEST_RULES: tuple[Rule, ...] = (
    module_docstring,
    banned_test_calls,
    patched_code,
    swallowed_errors,
    sentence_names,
    unfailing_tests,
    unfinished,
)
TOOL_RULES: tuple[Rule, ...] = (file_length, function_length, module_docstring, swallowed_errors, unfinished)

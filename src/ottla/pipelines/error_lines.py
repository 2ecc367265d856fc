"""The one line that matters in an error of Spark's, which may be pages long. Pure."""

from __future__ import annotations

import re

LINE_LENGTH_MAX = 400
TRACEBACK = "Traceback (most recent call last):"
STATE_OF_QUERY = "=== Streaming Query ==="
"""Below it Spark tells how the query stood."""
_SQLSTATE = re.compile(r"(?:\s*SQLSTATE: \w{5})+\s*$")
_JAVA_CAUSE = re.compile(r"Caused by: (?:[a-z]\w*\.)*([\w$]+: .*)")
_JAVA_ERROR = re.compile(r"(?:[a-z]\w*\.)+([A-Z][\w$]*(?:Exception|Error): .*)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ")
TERMINATED = "terminated with exception: "
RAISED = "[USER_RAISED_EXCEPTION] "
"""What stands before a text that a query raised with `raise_error`."""
_PACKAGE = re.compile(r"(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")


def line_that_matters(error: BaseException | str) -> str:
    """Why a query failed, in one line that a person can use.

    What Python code raised comes first: it ends a traceback, however deep it is buried. Otherwise it is Spark's own
    sentence where there is one, or the innermost cause that Java tells.
    """
    text = (str(error) or type(error).__name__).partition(STATE_OF_QUERY)[0]
    lines = [line for line in text.splitlines() if line.strip()]
    first = lines[0].strip() if lines else type(error).__name__
    return _short(_of_python(lines) or _of_spark(lines) or _of_java(lines) or first)


def _of_python(lines: list[str]) -> str | None:
    """What follows the frames of the last traceback: an error that was raised from another one comes below it."""
    ends = [index for index, line in enumerate(lines) if line.endswith(TRACEBACK)]
    if not ends:
        return None
    after = lines[ends[-1] + 1 :]
    # Frames are indented, and the error is not; a traceback within a traceback of Java's may be as a whole.
    indent = min((_indent(line) for line in after), default=0)
    told: list[str] = []
    for line in after:
        if _indent(line) > indent:
            if told:
                break
            continue
        if line.lstrip().startswith(("at ", "Caused by:", "...")):
            break
        told.append(line.strip())
    if not told:
        return None
    # Spark's error, raised again by Python code, has its own sentence.
    return _of_spark(told) or _PACKAGE.sub("", " ".join(told), count=1)


def _of_spark(lines: list[str]) -> str | None:
    for line in lines:
        told = line.rpartition(TERMINATED)[2]
        found = _CONDITION.search(told)
        if found:
            return told[found.start() :].removeprefix(RAISED)
    return None


def _of_java(lines: list[str]) -> str | None:
    causes = [found[1] for line in lines if (found := _JAVA_CAUSE.search(line))]
    if causes:
        return causes[-1]
    return next((found[1] for line in lines if (found := _JAVA_ERROR.search(line))), None)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _short(line: str) -> str:
    plain = _SQLSTATE.sub("", " ".join(line.split()))
    return plain if len(plain) <= LINE_LENGTH_MAX else f"{plain[: LINE_LENGTH_MAX - 3]}..."

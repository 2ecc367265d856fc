"""Reads the one line of Kafka's `sasl.jaas.config`: a login module and its options. Pure.

Knows how the line is written, not what a module would do with its options. Messages quote nothing of it: it
holds a password.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.spark.errors import InvalidOption

OPTION = "kafka.sasl.jaas.config"
FORM = (
    'It looks like: org.apache.kafka.common.security.scram.ScramLoginModule required username="name" password="secret";'
)
FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]*\n? | /\*.*?\*/                   # nothing
    | "(?P<double>(?:[^"\\\n]|\\[^\n])*)"
    | '(?P<single>(?:[^'\\\n]|\\[^\n])*)'
    | (?P<mark>[=;])
    | (?P<word>[^\s"'=;]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class LoginModule(NamedTuple):
    """What the line says."""

    name: str
    """Without its package, which differs where vendors ship a copy of their own."""
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule(name={self.name!r}, options={sorted(self.options)})"


class _Token(NamedTuple):
    text: str
    is_mark: bool


def login_module(line: str) -> LoginModule:
    """The module that the line names, and its options by name."""
    tokens = _tokens(line)
    if len(tokens) < 3 or tokens[0].is_mark or tokens[1].text.lower() not in FLAGS:
        raise InvalidOption(OPTION, "does not begin with a login module and the word required", fix=FORM)
    if tokens[-1] != _Token(";", is_mark=True):
        raise InvalidOption(OPTION, "does not end with a semicolon", fix=FORM)
    rest = tokens[2:-1]
    if _Token(";", is_mark=True) in rest:
        raise InvalidOption(OPTION, "names more than one login module", fix=FORM)
    options: dict[str, str] = {}
    for start in range(0, len(rest), 3):
        given = rest[start : start + 3]
        if [token.is_mark for token in given] != [False, True, False]:
            raise InvalidOption(OPTION, f"option {start // 3 + 1} of the login module is not name=value", fix=FORM)
        options[given[0].text] = given[2].text
    return LoginModule(tokens[0].text.rpartition(".")[2], options)


def _tokens(line: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise InvalidOption(OPTION, "has a quotation mark that is never closed", fix=FORM)
        position = match.end()
        kind = match.lastgroup
        if kind in ("double", "single"):
            found.append(_Token(_ESCAPE.sub(_unescaped, match[kind]), is_mark=False))
        elif kind is not None:
            found.append(_Token(match[kind], is_mark=kind == "mark"))
    return found


def _unescaped(match: re.Match[str]) -> str:
    """As Java's tokenizer reads it: letters of C, octal numbers, and any other character as itself."""
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _CONTROLS.get(text, text)

"""Records as text: lines that become records, and records that become JSON or a line of one's own form.

In JSON a key, a value or a header's value is a string when it is UTF-8, `{"base64": "..."}` when it is not,
and null where there is none. What is read and what is written have the same form, so that
`ottla consume a --json | ottla produce b --input json` copies a topic.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from ottla.client.values import Record

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}

Headers = tuple[tuple[str, bytes | None], ...]


class InputRecord(NamedTuple):
    """A record as it stood in the input."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Base64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that are not UTF-8, in JSON."""

    base64: str


Content = str | Base64 | None


class HeaderJson(msgspec.Struct, forbid_unknown_fields=True):
    """A header, in JSON."""

    name: str
    value: Content = None


class RecordJson(msgspec.Struct, forbid_unknown_fields=True):
    """A record, in JSON. Of what is read, topic and offset say where it came from and are not used."""

    value: Content = None
    key: Content = None
    headers: list[HeaderJson] = []
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


def to_json(record: Record) -> bytes:
    """One line of JSON, without the line's end."""
    return msgspec.json.encode(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _content(record.key),
            "value": _content(record.value),
            "headers": [{"name": name, "value": _content(value)} for name, value in record.headers],
        }
    )


def from_json(line: bytes, *, keep_partition: bool = False) -> InputRecord:
    """A record from a line that `to_json` wrote, or that has some of its fields; ValueError for all else."""
    try:
        given = msgspec.json.decode(line, type=RecordJson)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a record in JSON: {error}") from error
    return InputRecord(
        value=_bytes(given.value),
        key=_bytes(given.key),
        headers=tuple((header.name, _bytes(header.value)) for header in given.headers),
        timestamp_ms=given.timestamp,
        partition=given.partition if keep_partition else None,
    )


def from_line(line: bytes, *, key_separator: bytes | None) -> InputRecord:
    """A record from a line of text; ValueError when the separator of key and value is not in it."""
    if key_separator is None:
        return InputRecord(line)
    key, separator, value = line.partition(key_separator)
    if not separator:
        shown = key_separator.decode("utf-8", "backslashreplace")
        raise ValueError(f"there is no {shown!r} in it, which ends the key")
    return InputRecord(value, key)


def line_form(template: str) -> Callable[[Record], bytes]:
    """A function that writes a record in a form like `{partition}:{offset} {key}\\t{value}\\n`.

    Keys and values come out as the bytes they are; headers as `name=value` with commas. `{{` is a brace.
    ValueError for a name that a record does not have.
    """
    parts: list[bytes | Callable[[Record], bytes]] = []
    for literal, field, spec, conversion in Formatter().parse(unescaped(template)):
        parts.append(literal.encode("utf-8", "surrogateescape"))
        if field is None:
            continue
        if field not in _FIELDS or spec or conversion:
            shown = "{" + field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            raise ValueError(f"{shown} is no part of a record; there are {', '.join(f'{{{n}}}' for n in _FIELDS)}")
        parts.append(_FIELDS[field])
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def unescaped(text: str) -> str:
    """Backslash escapes as the characters they stand for: \\n, \\t, \\r, \\0 and \\\\; others stay as they are."""
    pieces = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            pieces.append(character)
            continue
        following = next(characters, "")
        pieces.append(_ESCAPES.get(following, "\\" + following))
    return "".join(pieces)


def _headers_text(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_FIELDS: dict[str, Callable[[Record], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp_ms,
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": _headers_text,
}


def _content(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _bytes(content: Content) -> bytes | None:
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    try:
        return b64decode(content.base64, validate=True)
    except Base64Error as error:
        raise ValueError(f"not base64: {error}") from error

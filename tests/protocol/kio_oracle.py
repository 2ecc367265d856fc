"""Our messages as kio's entities, and kio's reader and writer.

kio has one class per message and version, with the same fields in the same order but richer types: error
codes are an enum, times are timedeltas and datetimes, ids are UUIDs. Not every integer has such a
counterpart, so a message is first folded into what kio can express.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, get_args, get_type_hints
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import NO_UUID, Message, fields_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CODES = {int(code.value): code for code in ErrorCode}
_MILLISECOND = timedelta(milliseconds=1)
_TIMES_MS = 4 * 10**12
"""kio reads times through a float: past the year 2100 or so a microsecond is off now and then."""

Fold = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


# For each of kio's types: an integer folded into its range, and the value that stands for it in kio.
_CONVERSIONS: dict[str, tuple[Fold, Fold]] = {
    "error_code": (lambda code: code if code in _CODES else code % len(_CODES) - 1, _CODES.__getitem__),
    "timedelta_i32": (_same, lambda ms: ms * _MILLISECOND),
    "timedelta_i64": (lambda ms: ms if abs(ms) < 10**15 else ms % 10**15, lambda ms: ms * _MILLISECOND),
    "datetime_i64": (lambda ms: ms % _TIMES_MS, lambda ms: _EPOCH + ms * _MILLISECOND),
    "datetime_i64_or_none": (
        lambda ms: -1 if ms == -1 else ms % _TIMES_MS,
        lambda ms: None if ms == -1 else _EPOCH + ms * _MILLISECOND,
    ),
    "uuid": (_same, lambda uuid: None if uuid == NO_UUID else UUID(bytes=uuid)),
}


@dataclasses.dataclass(frozen=True)
class _Member:
    """One field in both worlds."""

    name: str
    kio_name: str
    is_array: bool
    fold: Fold
    convert: Fold
    struct: _Pair | None


@dataclasses.dataclass(frozen=True)
class _Pair:
    """One struct in both worlds."""

    ours: type[Message]
    theirs: Any
    members: tuple[_Member, ...]


class KioOracle:
    """kio's codec for one version of one message."""

    def __init__(self, key: ApiKey, message: type[Message], version: int, *, is_request: bool) -> None:
        schema: Any = (load_request_schema if is_request else load_response_schema)(int(key), version)
        self._pair = _pair(message, schema, version)
        self._write: Any = entity_writer(schema)
        self._read: Any = entity_reader(schema)

    def fold(self, message: Message) -> Any:
        """The nearest message that kio can express; unknown tagged fields are dropped."""
        return _fold(self._pair, message)

    def entity(self, message: Message) -> Any:
        """kio's entity for a folded message."""
        return _convert(self._pair, message)

    def encode(self, entity: Any) -> bytes:
        """What kio makes of its entity."""
        buffer = io.BytesIO()
        self._write(buffer, entity)
        return buffer.getvalue()

    def decode(self, data: bytes) -> Any:
        """What kio reads, all bytes used."""
        entity, size = self._read(data, 0)
        assert size == len(data)
        return entity


@cache
def _pair(ours: type[Message], theirs: Any, version: int) -> _Pair:
    fields = [field for field in fields_of(ours) if field.is_in(version)]
    kio_fields = dataclasses.fields(theirs)
    hints = get_type_hints(theirs)
    assert len(fields) == len(kio_fields), f"{ours.__name__} v{version} has other fields in kio"
    members = []
    for field, kio_field in zip(fields, kio_fields, strict=True):
        kind = str(kio_field.metadata.get("kafka_type"))
        is_optional = type(None) in get_args(hints[kio_field.name])
        if kind == "datetime_i64" and is_optional:
            kind = "datetime_i64_or_none"
        fold, convert = _CONVERSIONS.get(kind, (_same, _same))
        nested = None
        if field.struct is not None:
            nested = _pair(field.struct, _dataclass_in(hints[kio_field.name]), version)
        members.append(_Member(field.name, kio_field.name, field.is_array, fold, convert, nested))
    return _Pair(ours, theirs, tuple(members))


def _dataclass_in(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next(found for found in map(_dataclass_in, get_args(hint)) if found is not None)


def _fold(pair: _Pair, message: Message) -> Message:
    values: dict[str, Any] = {}
    for member in pair.members:
        value = getattr(message, member.name)
        if value is not None:
            if member.struct is None:
                value = tuple(map(member.fold, value)) if member.is_array else member.fold(value)
            elif member.is_array:
                value = tuple(_fold(member.struct, each) for each in value)
            else:
                value = _fold(member.struct, value)
        values[member.name] = value
    return pair.ours(**values)


def _convert(pair: _Pair, message: Message) -> Any:
    values: dict[str, Any] = {}
    for member in pair.members:
        value = getattr(message, member.name)
        if value is not None:
            if member.struct is None:
                value = tuple(map(member.convert, value)) if member.is_array else member.convert(value)
            elif member.is_array:
                value = tuple(_convert(member.struct, each) for each in value)
            else:
                value = _convert(member.struct, value)
        values[member.kio_name] = value
    return pair.theirs(**values)

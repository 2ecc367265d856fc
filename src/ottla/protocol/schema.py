"""How a message is declared: the class is the schema.

A message, and each struct nested in one, is one class. Each field is declared once: its wire type as the
annotation, its default as the value, and, where it is not simply there in every version, a `Since` that
says in which versions it is there, where it may be null, and under which tag it travels:

    class Partition(Message):
        index: Int32 = 0
        leader_epoch: Annotated[Int32, Since(9, ignorable=True)] = -1
        current_leader: Annotated[LeaderIdAndEpoch, Since(12, tag=1)] = LeaderIdAndEpoch()

Arrays are declared as sequences and come as tuples when read; a writer takes any sequence. This module
reads declarations; `readers` and `writers` make code of them.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from struct import calcsize
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec

from ottla.protocol.versions import Versions
from ottla.protocol.wire import Buffer


class Kind(Enum):
    """A wire type. The value of a fixed-width one is its code in a `struct` format."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"

    @property
    def is_fixed(self) -> bool:
        return self not in _VARIABLE

    @property
    def size(self) -> int:
        """Bytes of a fixed-width value."""
        return calcsize(">" + self.value)


_VARIABLE = frozenset((Kind.STRING, Kind.BYTES, Kind.RECORDS, Kind.STRUCT))

Bool = Annotated[bool, Kind.BOOL]
Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
Uint16 = Annotated[int, Kind.UINT16]
Int32 = Annotated[int, Kind.INT32]
Uint32 = Annotated[int, Kind.UINT32]
Int64 = Annotated[int, Kind.INT64]
Float64 = Annotated[float, Kind.FLOAT64]
Uuid = Annotated[bytes, Kind.UUID]
"""Sixteen bytes. Not `uuid.UUID`: making one costs more than reading the message around it."""
String = Annotated[str, Kind.STRING]
Bytes = Annotated[bytes, Kind.BYTES]
Records = Annotated[Buffer, Kind.RECORDS]
"""Record batches: a view of the bytes that were read, passed on as they are when written."""

NO_UUID = bytes(16)
"""The id that stands for none."""


@dataclass(frozen=True, slots=True)
class Since:
    """Where a field is, when it is not in every version of its message.

    `last`, `nullable_first` and `nullable_last` are inclusive. A nullable field may be null in every version
    that has it unless `nullable_first` says otherwise. A field with a `tag` is written only when it differs
    from its default. An `ignorable` field is left out silently where a version lacks it; any other must then
    have its default.
    """

    first: int = 0
    last: int | None = None
    nullable_first: int | None = None
    nullable_last: int | None = None
    tag: int | None = None
    ignorable: bool = False


EVERYWHERE = Since()


class Message(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message of the protocol, or a struct inside one. Whole messages say which `VERSIONS` they have."""

    VERSIONS: ClassVar[Versions]

    # Messages are trees of immutable values, so the collector never has to look at them.
    unknown_tags: tuple[tuple[int, bytes], ...] = ()
    """Tagged fields that this class does not know: kept when read, written back when written."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, as the compilers need it."""

    name: str
    kind: Kind
    struct: type[Message] | None
    """The class of the struct, or of an array's structs."""
    is_array: bool
    is_nullable: bool
    default: object
    since: Since

    @property
    def tag(self) -> int | None:
        return self.since.tag

    def is_in(self, version: int) -> bool:
        """Whether this version has the field."""
        return self.since.first <= version and (self.since.last is None or version <= self.since.last)

    def may_be_null(self, version: int) -> bool:
        """Whether this version lets the field be null."""
        first, last = self.since.nullable_first or 0, self.since.nullable_last
        return self.is_nullable and first <= version and (last is None or version <= last)


@cache
def fields_of(message: type[Message]) -> tuple[Field, ...]:
    """The fields of a message in the order in which they are declared and written."""
    hints = get_type_hints(message, include_extras=True)
    names = message.__struct_fields__[: -len(Message.__struct_fields__)]
    defaults = message.__struct_defaults__
    return tuple(_field(name, hints[name], default) for name, default in zip(names, defaults, strict=False))


def _field(name: str, hint: Any, default: object) -> Field:
    hint, extras = _unwrap(hint)
    is_nullable = False
    if get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
        is_nullable = True
        # `Buffer` is a union itself, so more than one type may be left.
        rest = [each for each in get_args(hint) if each is not type(None)]
        hint, more = _unwrap(rest[0])
        extras += more
    is_array = get_origin(hint) is Sequence
    if is_array:
        hint, more = _unwrap(get_args(hint)[0])
        extras += more
    kinds = [extra for extra in extras if isinstance(extra, Kind)]
    since = next((extra for extra in extras if isinstance(extra, Since)), EVERYWHERE)
    struct = hint if not kinds and issubclass(hint, Message) else None
    assert struct or len(kinds) == 1, f"{name}: {hint} is no wire type"
    return Field(
        name=name,
        kind=Kind.STRUCT if struct else kinds[0],
        struct=struct,
        is_array=is_array,
        is_nullable=is_nullable,
        default=default,
        since=since,
    )


def _unwrap(hint: Any) -> tuple[Any, list[Any]]:
    """A type and what was said about it with Annotated."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[0], list(get_args(hint)[1:])
    return hint, []


def struct_bytes_min(struct: type[Message], version: int, *, flexible: bool) -> int:
    """The fewest bytes that a struct can take: what an array's count is checked against."""
    size = 1 if flexible else 0
    for field in fields_of(struct):
        if field.is_in(version) and field.tag is None:
            size += field_bytes_min(field, version, flexible=flexible)
    return size


def field_bytes_min(field: Field, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a field can take; null and empty are shortest."""
    if field.is_array:
        return 1 if flexible else 4
    return element_bytes_min(field, version, flexible=flexible)


def element_bytes_min(field: Field, version: int, *, flexible: bool) -> int:
    """The fewest bytes of the field's value, or of one element if it is an array."""
    if field.struct is not None:
        if field.may_be_null(version) and not field.is_array:
            return 1
        return struct_bytes_min(field.struct, version, flexible=flexible)
    if field.kind.is_fixed:
        return field.kind.size
    if flexible:
        return 1
    return 2 if field.kind is Kind.STRING else 4

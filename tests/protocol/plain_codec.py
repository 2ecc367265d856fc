"""A second encoder, written as plainly as the format reads: no code generation, no fusing, no caches.

The compiled writers must give the same bytes. It is the only witness for unknown tagged fields, which the
other codecs that we compare with cannot write.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from ottla.protocol.schema import Field, Kind, Message, fields_of


def plain_encode(message: Message, version: int) -> bytes:
    """The bytes of a message."""
    return _struct(message, version, type(message).VERSIONS.flexible(version))


def _struct(struct: Message, version: int, flexible: bool) -> bytes:
    fields = [field for field in fields_of(type(struct)) if field.is_in(version)]
    encoded = b"".join(
        _value(field, getattr(struct, field.name), version, flexible) for field in fields if field.tag is None
    )
    if not flexible:
        return encoded
    tagged = dict(struct.unknown_tags)
    for field in fields:
        value = getattr(struct, field.name)
        if field.tag is not None and value != field.default:
            tagged[field.tag] = _value(field, value, version, flexible)
    encoded += _varint(len(tagged))
    for tag, content in sorted(tagged.items()):
        encoded += _varint(tag) + _varint(len(content)) + content
    return encoded


def _value(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.is_array:
        if value is None:
            return _count(None, flexible)
        return _count(len(value), flexible) + b"".join(_element(field, each, version, flexible) for each in value)
    if field.struct is not None and field.may_be_null(version):
        return b"\xff" if value is None else b"\x01" + _element(field, value, version, flexible)
    return _element(field, value, version, flexible)


def _element(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.struct is not None:
        return _struct(value, version, flexible)
    if field.kind is Kind.UUID:
        return bytes(value)
    if field.kind.is_fixed:
        return pack(">" + field.kind.value, value)
    content = b"" if value is None else value.encode() if field.kind is Kind.STRING else bytes(value)
    if field.kind is Kind.STRING and not flexible:
        return pack(">h", -1 if value is None else len(content)) + content
    return _count(None if value is None else len(content), flexible) + content


def _count(count: int | None, flexible: bool) -> bytes:
    if flexible:
        return _varint(0 if count is None else count + 1)
    return pack(">i", -1 if count is None else count)


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded += bytes((value % 128 + 128,))
        value //= 128
    return encoded + bytes((value,))

"""Random messages of every class and version, made from the schema with a seed.

Values are drawn from what tends to break a codec: nulls, empty and long strings, the ends of each
integer's range, empty and one-element arrays. A maker remembers which fields it gave a value other than
their default, so that a test can tell that none was left out.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from ottla.protocol.schema import Field, Kind, Message, fields_of

_RANGES = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
_TEXTS = ("", "a", "orders", "größe", "日本語", "\U0001f980", "x" * 126, "y" * 127, "z" * 128, "ü" * 150)
_BLOBS = (b"", b"\0", bytes(range(100)), b"b" * 127, b"c" * 300)
_RECORDS = (b"", b"r" * 61, b"s" * 200, b"t" * 2047, b"u" * 2048, b"v" * 17000)
_FLOATS = (0.0, -0.5, 1e300, -1e-300, 2.0**53)


class MessageMaker:
    """Makes messages; the same seed makes the same messages."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self.varied: Counter[str] = Counter()
        """For each field, as `Struct.field`: in how many messages it had another value than its default."""
        self._varied_now: set[str] = set()

    def make(self, message: type[Message], version: int, *, with_unknown_tags: bool = False) -> Any:
        """One message with random values in every field that the version has."""
        self._varied_now = set()
        made = self._struct(message, version, with_unknown_tags and message.VERSIONS.flexible(version))
        self.varied.update(self._varied_now)
        return made

    def _struct(self, struct: type[Message], version: int, with_unknown_tags: bool) -> Message:
        values: dict[str, Any] = {}
        for field in fields_of(struct):
            if field.is_in(version):
                value = self._value(field, version, with_unknown_tags)
                values[field.name] = value
                if value != field.default:
                    self._varied_now.add(f"{struct.__name__}.{field.name}")
        if with_unknown_tags and self._random.random() < 0.7:
            values["unknown_tags"] = self._unknown_tags()
            self._varied_now.add(f"{struct.__name__}.unknown_tags")
        return struct(**values)

    def _unknown_tags(self) -> tuple[tuple[int, bytes], ...]:
        # Far above any tag that Kafka has given out, in ascending order as they stand on the wire.
        tags = sorted(self._random.sample((100, 127, 128, 5000, 2**31 - 1), self._random.randint(1, 2)))
        return tuple((tag, self._random.choice(_BLOBS)) for tag in tags)

    def _value(self, field: Field, version: int, with_unknown_tags: bool) -> Any:
        if self._random.random() < 0.12:
            if field.may_be_null(version):
                return None
            if field.default is not None:
                return field.default
        if not field.is_array:
            return self._element(field, version, with_unknown_tags)
        count = self._random.choices((0, 1, 2, 3), (1, 6, 2, 1))[0]
        if field.struct is None and self._random.random() < 0.03:
            count = 130
        return tuple(self._element(field, version, with_unknown_tags) for _ in range(count))

    def _element(self, field: Field, version: int, with_unknown_tags: bool) -> Any:
        random, kind = self._random, field.kind
        if field.struct is not None:
            return self._struct(field.struct, version, with_unknown_tags)
        if kind in _RANGES:
            low, high = _RANGES[kind]
            return random.choice((low, high, 0, 1, random.randint(low, high), random.randint(0, 100)))
        if kind is Kind.STRING:
            return random.choice(_TEXTS)
        if kind is Kind.BYTES:
            return random.choice(_BLOBS)
        if kind is Kind.RECORDS:
            return random.choices(_RECORDS, (2, 6, 6, 1, 1, 0.5))[0]
        if kind is Kind.UUID:
            return random.choice((bytes(16), random.randbytes(16), random.randbytes(16)))
        if kind is Kind.BOOL:
            return random.random() < 0.5
        assert kind is Kind.FLOAT64
        return random.choice(_FLOATS)


def without_unknown_tags(message: Message) -> Any:
    """The same message as someone would see it who drops what it does not know."""
    values: dict[str, Any] = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.struct is not None and value is not None:
            if field.is_array:
                value = tuple(without_unknown_tags(each) for each in value)
            else:
                value = without_unknown_tags(value)
        values[field.name] = value
    return type(message)(**values)

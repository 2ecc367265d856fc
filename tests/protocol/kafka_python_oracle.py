"""Our messages as kafka-python's, and kafka-python's reader and writer.

kafka-python has one class per message for all versions, under Kafka's names, but not every API and not
every version of those it has.
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import Any
from uuid import UUID

from ottla.protocol.schema import Field, Kind, Message, fields_of

with warnings.catch_warnings():
    # It reads its own files with a function of the standard library that is on its way out.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.schemas.fields.codecs import BitField

_PACKAGES = ("admin", "consumer", "metadata", "producer", "sasl")


@cache
def _classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for package in _PACKAGES:
            importlib.import_module(f"kafka.protocol.{package}")
    found: dict[str, Any] = {}
    waiting = list(ApiMessage.__subclasses__())
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if each.__name__ == each.name:
            found[each.name] = each
    return found


def _is_bit_field(their_field: Any) -> bool:
    """Authorized operations are a set of bit numbers there, and an integer here."""
    return hasattr(their_field, "_type") and their_field._type is BitField


class KafkaPythonOracle:
    """kafka-python's codec for one version of one message."""

    def __init__(self, message: type[Message], version: int) -> None:
        self._ours = message
        self._theirs = _classes()[message.__name__]
        self._version = version

    @staticmethod
    def knows(message: type[Message], version: int) -> bool:
        """Whether kafka-python has this version."""
        theirs = _classes().get(message.__name__)
        return theirs is not None and theirs._valid_versions[0] <= version <= theirs._valid_versions[1]

    def encode(self, message: Message) -> bytes:
        """What kafka-python writes; unknown tagged fields are not among it."""
        return bytes(self._build(self._theirs, self._theirs._struct, message).encode(version=self._version))

    def decode(self, data: bytes) -> Any:
        """What kafka-python reads, as one of our messages without unknown tagged fields."""
        return self._ours_from(self._ours, self._theirs._struct, self._theirs.decode(data, version=self._version))

    def _pairs(self, ours: type[Message], struct: Any) -> list[tuple[Field, Any]]:
        fields = [field for field in fields_of(ours) if field.is_in(self._version)]
        theirs = [field for field in struct.fields.values() if field.for_version_q(self._version)]
        assert len(fields) == len(theirs), f"{ours.__name__} v{self._version} has other fields in kafka-python"
        return list(zip(fields, theirs, strict=True))

    def _build(self, theirs: Any, struct: Any, message: Message) -> Any:
        values: dict[str, Any] = {}
        for field, their_field in self._pairs(type(message), struct):
            value = getattr(message, field.name)
            if field.tag is not None and value == field.default:
                # A tagged struct that is handed over is written, also one that only holds defaults.
                continue
            if value is None:
                pass
            elif field.struct is not None:
                data_class = their_field.data_class
                if field.is_array:
                    value = [self._build(data_class, their_field, each) for each in value]
                else:
                    value = self._build(data_class, their_field, value)
            elif field.is_array:
                value = list(value)
            elif field.kind is Kind.UUID:
                value = UUID(bytes=value)
            elif _is_bit_field(their_field):
                value = BitField.from_32_bit_field(value & 0xFFFFFFFF)
            values[their_field.name] = value
        return theirs(version=self._version, **values)

    def _ours_from(self, ours: type[Message], struct: Any, data: Any) -> Message:
        values: dict[str, Any] = {}
        for field, their_field in self._pairs(ours, struct):
            value = getattr(data, their_field.name)
            if _is_bit_field(their_field):
                bits = 1 << 31 if value is None else BitField.to_32_bit_field(value)
                value = bits - (1 << 32) if bits >> 31 else bits
            elif value is None:
                # The zero id and an absent tagged struct both read as None there.
                value = None if field.may_be_null(self._version) else field.default
            elif field.struct is not None:
                if field.is_array:
                    value = tuple(self._ours_from(field.struct, their_field, each) for each in value)
                else:
                    value = self._ours_from(field.struct, their_field, value)
            elif field.is_array:
                value = tuple(value)
            elif field.kind is Kind.UUID:
                value = value.bytes
            values[field.name] = value
        return ours(**values)

"""The bytes of coordinators' records: a key is its type and its fields, a value its version and its fields.

Which records there are is told by whoever has them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.coordinators.outcome import CoordinatorRecord
from ottla.errors import ProtocolError
from ottla.protocol import codec
from ottla.protocol.schema import Message

_PREFIX_SIZE = 2
_logger = logging.getLogger(__name__)


class RecordKinds:
    """The kinds of records in one internal topic."""

    def __init__(
        self,
        topic: str,
        kinds: Mapping[int, tuple[type[Message], type[Message]]],
        *,
        written_versions: Mapping[type[Message], int] | None = None,
    ) -> None:
        """`written_versions` are those of values that are not written in their last version."""
        self._topic = topic
        self._kinds = kinds
        self._prefixes = {key: kind.to_bytes(_PREFIX_SIZE) for kind, (key, _) in kinds.items()}
        self._written_versions = written_versions or {}

    def encode_key(self, message: Message) -> bytes:
        """The bytes of a key."""
        return self._prefixes[type(message)] + codec.encode_bytes(message, 0)

    def encode_value(self, message: Message, version: int | None = None) -> bytes:
        """The bytes of a value, in the version that is written unless another is named."""
        if version is None:
            version = self._written_versions.get(type(message), message.VERSIONS.last)
        return version.to_bytes(_PREFIX_SIZE) + codec.encode_bytes(message, version)

    def decode(self, key: bytes, value: bytes | None, *, kind: int | None = None) -> CoordinatorRecord | None:
        """The record of these bytes; None, with a warning, if its type is not known. Raises ProtocolError for others.

        `kind` is the type to take it for, if that is not the one that the key names.
        """
        if kind is None:
            kind = self.kind(key)
        if kind not in self._kinds:
            _logger.warning("a record of type %d in %s is not known and is passed over", kind, self._topic)
            return None
        key_class, value_class = self._kinds[kind]
        decoded = codec.decode(key_class, 0, key, start=_PREFIX_SIZE)
        if value is None:
            return CoordinatorRecord(decoded, None)
        return CoordinatorRecord(decoded, codec.decode(value_class, self.kind(value), value, start=_PREFIX_SIZE))

    def kind(self, buffer: bytes) -> int:
        """The type that a key begins with, or the version that a value does."""
        if len(buffer) < _PREFIX_SIZE:
            raise ProtocolError(f"a record of {self._topic} with {len(buffer)} bytes where its type should be")
        return int.from_bytes(buffer[:_PREFIX_SIZE], signed=True)

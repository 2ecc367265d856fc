"""The consumer protocol inside JoinGroup and SyncGroup, read and written by the broker itself.

That is needed where classic members share a group with members of the consumer protocol: there the broker assigns,
not a leader. Reading is forgiving: clients are known that announce a version and leave out its fields, and fields of
later versions come at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct, error
from typing import NamedTuple

from ottla.coordinators.groups.records import ClassicMemberMetadata
from ottla.errors import ProtocolError
from ottla.protocol import codec
from ottla.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)

NamedPartitions = Mapping[str, Collection[int]]
"""Partitions by the name of their topic."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_VERSION_LAST = ConsumerProtocolAssignment.VERSIONS.last
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3


class Subscription(NamedTuple):
    """What a classic member wants, and says that it owns."""

    topics: frozenset[str]
    owned: NamedPartitions
    rack_id: str | None


class AssignedByLeader(NamedTuple):
    """What the leader of a classic group has assigned to a member."""

    partitions: NamedPartitions
    has_user_data: bool
    """Something between the members that only their own assignor understands."""


def read_subscription(metadata: bytes) -> Subscription:
    """Raises ProtocolError for bytes that are no subscription."""
    cursor = _Cursor(metadata)
    version = cursor.version()
    topics = frozenset(cursor.string() or "" for _ in range(cursor.count()))
    cursor.skip_bytes()
    owned: NamedPartitions = {}
    rack_id = None
    if version >= _OWNED_SINCE and not cursor.is_at_end:
        owned = cursor.partitions()
    if version >= _GENERATION_SINCE and not cursor.is_at_end:
        cursor.int32()
    if version >= _RACK_SINCE and not cursor.is_at_end:
        rack_id = cursor.string()
    return Subscription(topics, owned, rack_id)


def read_assignment(assignment: bytes) -> AssignedByLeader:
    """Raises ProtocolError for bytes that are no assignment. No bytes at all mean that there is none."""
    if not assignment:
        return AssignedByLeader({}, has_user_data=False)
    cursor = _Cursor(assignment)
    cursor.version()
    partitions = cursor.partitions()
    return AssignedByLeader(partitions, has_user_data=cursor.skip_bytes() > 0)


def write_assignment(partitions: NamedPartitions, *, version: int) -> bytes:
    """The bytes of an assignment, in a version that whoever sent this version understands."""
    known = min(version, _VERSION_LAST)
    message = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            AssignedPartitions(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(partitions.items())
        )
    )
    return _INT16.pack(known) + codec.encode_bytes(message, known)


def write_subscription(topics: Collection[str], owned: NamedPartitions) -> bytes:
    """The bytes of a subscription, for tools that look at a member that never sent any."""
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=tuple(
            OwnedPartitions(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(owned.items())
        ),
    )
    return _INT16.pack(_OWNED_SINCE) + codec.encode_bytes(message, _OWNED_SINCE)


def version_of(classic: ClassicMemberMetadata) -> int:
    """The version in which the member told its subscription, in the protocol that it likes best."""
    try:
        return _Cursor(classic.supported_protocols[0].metadata).version()
    except ProtocolError:
        return 0  # The one that everybody reads.


class _Cursor:
    """Reads on and on; whatever does not fit is a ProtocolError."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position >= len(self._buffer)

    def version(self) -> int:
        version = self._fixed(_INT16)
        if version < 0:
            raise ProtocolError(f"there is no version {version} of the consumer protocol")
        return version

    def int32(self) -> int:
        return self._fixed(_INT32)

    def count(self) -> int:
        """How many elements follow; none where there should be more than bytes are left."""
        count = self.int32()
        if count > len(self._buffer) - self._position:
            raise ProtocolError(f"{count} elements of the consumer protocol in too few bytes")
        return max(0, count)

    def string(self) -> str | None:
        length = self._fixed(_INT16)
        return None if length < 0 else self._text(length)

    def skip_bytes(self) -> int:
        """Pass over bytes, if there are any; returns how many."""
        if self.is_at_end:
            return 0
        length = max(0, self.int32())
        if length > len(self._buffer) - self._position:
            raise ProtocolError("the consumer protocol ends in the middle of its user data")
        self._position += length
        return length

    def partitions(self) -> NamedPartitions:
        found: dict[str, set[int]] = {}
        for _ in range(self.count()):
            topic = self.string() or ""
            found.setdefault(topic, set()).update(self.int32() for _ in range(self.count()))
        return found

    def _text(self, length: int) -> str:
        end = self._position + length
        if end > len(self._buffer):
            raise ProtocolError("the consumer protocol ends in the middle of a name")
        raw = self._buffer[self._position : end]
        self._position = end
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as problem:
            raise ProtocolError("a name in the consumer protocol is not UTF-8") from problem

    def _fixed(self, layout: Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._buffer, self._position)
        except error as problem:
            raise ProtocolError("the consumer protocol ends in the middle of a number") from problem
        self._position += layout.size
        return int(value)

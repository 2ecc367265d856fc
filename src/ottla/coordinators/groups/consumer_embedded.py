"""The consumer protocol inside JoinGroup and SyncGroup, read and written by the broker itself.

That is needed where classic members share a group with members of the consumer protocol: there the broker assigns,
not a leader. Reading is forgiving: clients are known that announce a version and leave out its fields, and fields of
later versions come at the end. It has an end, too: a client may send millions of names in a few bytes each, and while
these are read nobody else is served.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct, error, unpack_from
from typing import NamedTuple

from ottla.coordinators.groups.consumer_limits import TOPICS_MAX
from ottla.coordinators.groups.records import ClassicMemberMetadata
from ottla.errors import GroupMaxSizeReached, ProtocolError
from ottla.protocol import codec
from ottla.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)

NamedPartitions = Mapping[str, Collection[int]]
"""Partitions by the name of their topic."""

MEMBER_ENTRIES_MAX = 20_000
"""Names, and tens of partitions, that are read of one member."""
GROUP_ENTRIES_MAX = 100_000
"""The same for all members of a group at once. Equal lists of topics one after the other count once."""
_ENTRIES_PER_TOPIC = 2
"""A topic with partitions takes longer to read than a name alone."""
_NUMBERS_PER_ENTRY = 10
"""Numbers are read all at once, which is about so much faster."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NO_TOPICS = _INT32.pack(0)
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


class EmbeddedReader:
    """Reads what members say, up to an amount. Whoever reads several members with one reads equal topics once."""

    __slots__ = ("_allowance", "_topics", "_topics_bytes")

    def __init__(self, entries_max: int) -> None:
        self._allowance = _Allowance(entries_max)
        self._topics: frozenset[str] = frozenset()
        self._topics_bytes = _NO_TOPICS

    @classmethod
    def of_member(cls) -> EmbeddedReader:
        return cls(MEMBER_ENTRIES_MAX)

    @classmethod
    def of_group(cls) -> EmbeddedReader:
        return cls(GROUP_ENTRIES_MAX)

    def subscription(self, metadata: bytes) -> Subscription:
        """Raises ProtocolError for bytes that are no subscription, GroupMaxSizeReached for too much of it."""
        cursor = _Cursor(metadata, self._allowance)
        version = cursor.version()
        if not cursor.passes_over(self._topics_bytes):
            start = cursor.position
            self._topics = frozenset(cursor.names(cursor.count(TOPICS_MAX)))
            self._topics_bytes = metadata[start : cursor.position]
        cursor.skip_bytes()
        owned: NamedPartitions = {}
        rack_id = None
        if version >= _OWNED_SINCE and not cursor.is_at_end:
            owned = cursor.partitions()
        if version >= _GENERATION_SINCE and not cursor.is_at_end:
            cursor.int32()
        if version >= _RACK_SINCE and not cursor.is_at_end:
            rack_id = cursor.name()
        return Subscription(self._topics, owned, rack_id or None)

    def assignment(self, assignment: bytes) -> AssignedByLeader:
        """Raises as `subscription` does. No bytes at all mean that there is no assignment."""
        if not assignment:
            return AssignedByLeader({}, has_user_data=False)
        cursor = _Cursor(assignment, self._allowance)
        cursor.version()
        partitions = cursor.partitions()
        return AssignedByLeader(partitions, has_user_data=cursor.skip_bytes() > 0)


def read_subscription(metadata: bytes) -> Subscription:
    """What one member wants. Raises as `EmbeddedReader.subscription` does."""
    return EmbeddedReader.of_member().subscription(metadata)


def read_assignment(assignment: bytes) -> AssignedByLeader:
    """What one member has. Raises as `EmbeddedReader.assignment` does."""
    return EmbeddedReader.of_member().assignment(assignment)


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
        return _Cursor(classic.supported_protocols[0].metadata, _Allowance(0)).version()
    except ProtocolError:
        return 0  # The one that everybody reads.


class _Allowance:
    """How many entries may be read still."""

    __slots__ = ("_left",)

    def __init__(self, entries_max: int) -> None:
        self._left = entries_max

    def take(self, entries: int) -> None:
        """Raises GroupMaxSizeReached, before anything of it has been read."""
        self._left -= entries
        if self._left < 0:
            raise GroupMaxSizeReached("members name more topics and partitions than the broker reads")


class _Cursor:
    """Reads on and on; whatever does not fit is a ProtocolError."""

    __slots__ = ("_allowance", "_buffer", "position")

    def __init__(self, buffer: bytes, allowance: _Allowance) -> None:
        self._buffer = buffer
        self._allowance = allowance
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self._buffer)

    def version(self) -> int:
        version = self._fixed(_INT16)
        if version < 0:
            raise ProtocolError(f"there is no version {version} of the consumer protocol")
        return version

    def int32(self) -> int:
        return self._fixed(_INT32)

    def count(self, count_max: int | None = None) -> int:
        """How many elements follow; none where there should be more than bytes are left."""
        count = self.int32()
        if count > len(self._buffer) - self.position:
            raise ProtocolError(f"{count} elements of the consumer protocol in too few bytes")
        if count_max is not None and count > count_max:
            raise GroupMaxSizeReached(f"a member may be subscribed to {count_max} topics, not to {count}")
        return max(0, count)

    def passes_over(self, known: bytes) -> bool:
        """Whether these bytes come next; then they are behind us."""
        if not self._buffer.startswith(known, self.position):
            return False
        self.position += len(known)
        return True

    def skip_bytes(self) -> int:
        """Pass over bytes, if there are any; returns how many."""
        if self.is_at_end:
            return 0
        length = max(0, self.int32())
        if length > len(self._buffer) - self.position:
            raise ProtocolError("the consumer protocol ends in the middle of its user data")
        self.position += length
        return length

    def names(self, count: int) -> list[str]:
        """As many names, read in one go: these may be thousands."""
        self._allowance.take(count)
        buffer, position, found = self._buffer, self.position, []
        for _ in range(count):
            start = position + _INT16.size
            position = start + max(0, int.from_bytes(buffer[position:start], signed=True))
            found.append(buffer[start:position])
        # A length that was cut off counts as what is left of it; either way there are too few bytes.
        if position > len(buffer):
            raise ProtocolError("the consumer protocol ends in the middle of a name")
        self.position = position
        try:
            return [str(name, "utf-8") for name in found]
        except UnicodeDecodeError as problem:
            raise ProtocolError("a name in the consumer protocol is not UTF-8") from problem

    def partitions(self) -> NamedPartitions:
        count = self.count()
        self._allowance.take(count * _ENTRIES_PER_TOPIC)
        found: dict[str, set[int]] = {}
        for _ in range(count):
            topic = self.name()
            numbers = self._numbers()
            if topic in found:
                found[topic].update(numbers)
            else:
                found[topic] = set(numbers)
        return found

    def name(self) -> str:
        """A name; null is read as an empty one."""
        start = self.position + _INT16.size
        self.position = start + max(0, self._fixed(_INT16))
        if self.position > len(self._buffer):
            raise ProtocolError("the consumer protocol ends in the middle of a name")
        try:
            return str(self._buffer[start : self.position], "utf-8")
        except UnicodeDecodeError as problem:
            raise ProtocolError("a name in the consumer protocol is not UTF-8") from problem

    def _numbers(self) -> tuple[int, ...]:
        count = self._fixed(_INT32)
        if count <= 0:
            return ()
        if count * _INT32.size > len(self._buffer) - self.position:
            raise ProtocolError(f"{count} partitions of the consumer protocol in too few bytes")
        if count >= _NUMBERS_PER_ENTRY:
            self._allowance.take(count // _NUMBERS_PER_ENTRY)
        numbers: tuple[int, ...] = unpack_from(f">{count}i", self._buffer, self.position)
        self.position += count * _INT32.size
        return numbers

    def _fixed(self, layout: Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._buffer, self.position)
        except error as problem:
            raise ProtocolError("the consumer protocol ends in the middle of a number") from problem
        self.position += layout.size
        return int(value)

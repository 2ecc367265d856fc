"""What members of a classic group tell each other through the broker: subscriptions one way, assignments the other.

Bytes to values and back, with the version in front. Knows nothing of how assignments are made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from ottla.client.values import TopicPartition
from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from ottla.protocol.readers import TrailingBytes
from ottla.protocol.schema import Message

M = TypeVar("M", bound=Message)

NO_GENERATION = -1
_VERSION = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
ASSIGNMENT_VERSION = 1
"""Older clients read it, and no later version says more."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member wants, as the leader sees it."""

    member_id: str
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    """What it had until now, by its own account."""
    generation: int = NO_GENERATION
    """The generation in which it had that."""
    instance_id: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """The order in which members are served: static ones first, since their names outlive a restart."""
        return (self.instance_id is None, self.instance_id or self.member_id)


def encode_subscription(
    topics: Iterable[str],
    *,
    owned: Sequence[TopicPartition],
    generation: int,
    user_data: bytes | None = None,
) -> bytes:
    """A member's metadata in JoinGroup."""
    version = ConsumerProtocolSubscription.VERSIONS.last
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[OwnedPartitions(topic=t, partitions=p) for t, p in by_topic(owned).items()],
        generation_id=generation,
    )
    return _VERSION.pack(version) + encode_bytes(message, version)


def decode_subscription(
    data: bytes, member_id: str, instance_id: str | None, *, previous_in_user_data: bool
) -> MemberSubscription:
    """A member's metadata as it came in JoinGroup; ProtocolError for bytes that are none."""
    message = _decode(ConsumerProtocolSubscription, data)
    owned = [TopicPartition(each.topic, number) for each in message.owned_partitions for number in each.partitions]
    generation = message.generation_id
    if previous_in_user_data:
        owned, generation = decode_previous(message.user_data)
    return MemberSubscription(member_id, frozenset(message.topics), tuple(owned), generation, instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """One member's assignment in SyncGroup."""
    assigned = [AssignedPartitions(topic=t, partitions=p) for t, p in by_topic(partitions).items()]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return _VERSION.pack(ASSIGNMENT_VERSION) + encode_bytes(message, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """A member's own assignment; some leaders send no bytes at all for nothing."""
    if not len(data):
        return frozenset()
    message = _decode(ConsumerProtocolAssignment, data)
    return frozenset(
        TopicPartition(each.topic, number) for each in message.assigned_partitions for number in each.partitions
    )


def encode_previous(owned: Iterable[TopicPartition], *, generation: int) -> bytes:
    """What the eager sticky assignor keeps in the user data: the last assignment and its generation."""
    found = by_topic(owned)
    parts = [_COUNT.pack(len(found))]
    for topic, partitions in found.items():
        name = topic.encode()
        parts += [_LENGTH.pack(len(name)), name, struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)]
    return b"".join([*parts, _COUNT.pack(generation)])


def decode_previous(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """The same read back; what cannot be read counts as nothing, since it only makes an assignment less sticky."""
    owned: list[TopicPartition] = []
    if not data:
        return owned, NO_GENERATION
    try:
        (topics,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        for _ in range(topics):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            name = bytes(data[at : at + length]).decode()
            at += length
            (count,) = _COUNT.unpack_from(data, at)
            if not 0 <= count <= len(data):
                return [], NO_GENERATION
            numbers = struct.unpack_from(f">{count}i", data, at + _COUNT.size)
            at += _COUNT.size * (1 + count)
            owned += [TopicPartition(name, number) for number in numbers]
        # The first form of these bytes has no generation.
        generation = _COUNT.unpack_from(data, at)[0] if at < len(data) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return [], NO_GENERATION
    return owned, generation


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partitions as messages list them: sorted, each topic once."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _decode(kind: type[M], data: bytes) -> M:
    """Versions beyond ours begin like the last one that we know."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{kind.__name__}: {len(data)} bytes hold no version")
    (version,) = _VERSION.unpack_from(data)
    try:
        return decode(kind, min(version, kind.VERSIONS.last), data, start=_VERSION.size)
    except TrailingBytes as e:
        # Some clients write fields of a later version than they name.
        return cast(M, e.message)

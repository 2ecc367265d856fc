"""The records of `__consumer_offsets`: committed offsets, and groups of both protocols, as Kafka writes them.

A key is its type in two bytes and its fields, a value is its version in two bytes and its fields, so Kafka's own
tools read what Ottla writes. One class for each, named as Kafka names it. One kind is Ottla's own: offsets of
transactions that have not ended. Its type is far from those that Kafka gives out. What the records mean is not known
here: see `offsets`, `offsets_pending`, `classic` and `consumer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar

from ottla.coordinators.outcome import CoordinatorRecord
from ottla.coordinators.record_bytes import RecordKinds
from ottla.protocol.schema import NO_UUID, Bytes, Int8, Int16, Int32, Int64, Message, Since, String, Uuid
from ottla.protocol.versions import Versions

KEY = Versions(0, 0)
"""A key's version is its type; its fields never change."""
NEVER = -1
"""The expiry of an offset that has none of its own."""
NO_ORDER = 0
"""Of an offset that no transaction committed: it is newer than all that stood in the log before it."""


# --- committed offsets ---------------------------------------------------------------------------------


class OffsetCommitKey(Message, frozen=True):
    """Which group's offset, in which partition."""

    VERSIONS: ClassVar[Versions] = KEY

    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Message, frozen=True):
    """How far the group has read."""

    VERSIONS: ClassVar[Versions] = Versions(0, 4, flexible_since=4)

    offset: Int64 = 0
    leader_epoch: Annotated[Int32, Since(3, ignorable=True)] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, Since(1, last=1, ignorable=True)] = NEVER
    topic_id: Annotated[Uuid, Since(4, tag=0, ignorable=True)] = NO_UUID
    order: Annotated[Int64, Since(4, tag=10_002, ignorable=True)] = NO_ORDER
    """The order of the pending offset that it was, if a transaction committed it; Ottla's own."""


class PendingOffsetKey(Message, frozen=True):
    """Which producer's transaction holds an offset, of which group and in which partition; Ottla's own."""

    VERSIONS: ClassVar[Versions] = KEY

    producer_id: Int64 = 0
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class PendingOffsetValue(Message, frozen=True):
    """The offset that is committed if the transaction is."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    offset: Int64 = 0
    leader_epoch: Int32 = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    producer_epoch: Int16 = 0
    order: Int64 = NO_ORDER
    """Greater than that of every pending offset that was stored before it in the same partition of the log."""
    topic_id: Annotated[Uuid, Since(tag=0)] = NO_UUID


# --- classic groups --------------------------------------------------------------------------------------


class GroupMetadataKey(Message, frozen=True):
    """A classic group."""

    VERSIONS: ClassVar[Versions] = KEY

    group: String = ""


class MemberMetadata(Message, frozen=True):
    """A member of a classic group's generation."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Since(3, ignorable=True)] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, Since(1, ignorable=True)] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message, frozen=True):
    """A classic group's generation, complete."""

    VERSIONS: ClassVar[Versions] = Versions(0, 4, flexible_since=4)

    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = ""
    leader: String | None = ""
    current_state_timestamp: Annotated[Int64, Since(2, ignorable=True)] = -1
    members: Sequence[MemberMetadata] = ()


# --- consumer groups (KIP-848) -----------------------------------------------------------------------------


class ConsumerGroupMetadataKey(Message, frozen=True):
    """A consumer group."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""


class ConsumerGroupMetadataValue(Message, frozen=True):
    """Its epoch."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, Since(tag=0)] = 0
    """Of the topics that the group is subscribed to: another one means that they have changed."""


class ConsumerGroupPartitionMetadataKey(Message, frozen=True):
    """What Kafka 4.0 kept of a group's topics; since 4.1 the hash stands in its place. Read, never written."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""


class PartitionMetadata(Message, frozen=True):
    """The racks of a partition."""

    partition: Int32 = 0
    racks: Sequence[String] = ()


class TopicMetadata(Message, frozen=True):
    """A topic as the group last saw it."""

    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: Sequence[PartitionMetadata] = ()


class ConsumerGroupPartitionMetadataValue(Message, frozen=True):
    """The topics of a group."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    topics: Sequence[TopicMetadata] = ()


class ConsumerGroupMemberMetadataKey(Message, frozen=True):
    """A member of a consumer group."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""
    member_id: String = ""


class ClassicMemberProtocol(Message, frozen=True):
    """One assignment protocol of a member that still speaks the classic protocol."""

    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Message, frozen=True):
    """What a member of a consumer group brings that still speaks the classic protocol."""

    session_timeout_ms: Int32 = 0
    supported_protocols: Sequence[ClassicMemberProtocol] = ()


class ConsumerGroupMemberMetadataValue(Message, frozen=True):
    """What the member wants."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    instance_id: String | None = ""
    rack_id: String | None = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: String | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Since(tag=0)] = None


class ConsumerGroupTargetAssignmentMetadataKey(Message, frozen=True):
    """The assignment that a consumer group is on its way to."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, frozen=True):
    """For which epoch it was made, and when."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, Since(tag=0, ignorable=True)] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, frozen=True):
    """A member's part of that assignment."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""
    member_id: String = ""


class TopicPartition(Message, frozen=True):
    """Partitions of a topic that a member shall get."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


class ConsumerGroupTargetAssignmentMemberValue(Message, frozen=True):
    """The partitions that the member shall get."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    topic_partitions: Sequence[TopicPartition] = ()


class ConsumerGroupCurrentMemberAssignmentKey(Message, frozen=True):
    """Where a member has got to."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""
    member_id: String = ""


class TopicPartitions(Message, frozen=True):
    """Partitions of a topic that a member has, or must give back."""

    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()
    assignment_epochs: Annotated[Sequence[Int32] | None, Since(tag=0)] = None
    """Since which epoch it has each."""


class ConsumerGroupCurrentMemberAssignmentValue(Message, frozen=True):
    """The member's epoch, its state, and what it owns."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Sequence[TopicPartitions] = ()
    partitions_pending_revocation: Sequence[TopicPartitions] = ()


class ConsumerGroupRegularExpressionKey(Message, frozen=True):
    """A pattern that members of a group are subscribed by."""

    VERSIONS: ClassVar[Versions] = KEY

    group_id: String = ""
    regular_expression: String = ""


class ConsumerGroupRegularExpressionValue(Message, frozen=True):
    """The topics that it stood for when it was last looked at."""

    VERSIONS: ClassVar[Versions] = Versions(0, 0, flexible_since=0)

    topics: Sequence[String] = ()
    version: Int64 = 0
    timestamp: Int64 = 0


# --- bytes -------------------------------------------------------------------------------------------------

LEGACY_OFFSET_COMMIT_TYPE = 0
"""How Kafka 0.8 wrote offsets: another type, the same fields. Read, never written."""

RECORDS: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {
        1: (OffsetCommitKey, OffsetCommitValue),
        2: (GroupMetadataKey, GroupMetadataValue),
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        10_000: (PendingOffsetKey, PendingOffsetValue),
    }
)
"""The classes of each type of record."""

_WRITTEN_VERSIONS: Mapping[type[Message], int] = {GroupMetadataValue: 3}
"""Where it is not the last one: Kafka, too, goes on writing the version that older brokers read."""
_EXPIRING_VERSION = 1
"""The one version in which an offset carries an expiry of its own."""


_KINDS = RecordKinds("__consumer_offsets", RECORDS, written_versions=_WRITTEN_VERSIONS)


def encode_key(message: Message) -> bytes:
    """The bytes of a key."""
    return _KINDS.encode_key(message)


def encode_value(message: Message) -> bytes:
    """The bytes of a value, in the version that is written."""
    is_expiring = isinstance(message, OffsetCommitValue) and message.expire_timestamp != NEVER
    return _KINDS.encode_value(message, _EXPIRING_VERSION if is_expiring else None)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record of these bytes, or None if it is of a type that is not known: a newer Kafka's, or share groups'.

    Raises ProtocolError for bytes that are no record.
    """
    kind = _KINDS.kind(key)
    return _KINDS.decode(key, value, kind=1 if kind == LEGACY_OFFSET_COMMIT_TYPE else kind)

"""The consumer protocol: what members of classic groups tell each other inside JoinGroup and SyncGroup.

No API of its own: the broker passes these bytes on, with their version in the two bytes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.schema import Bytes, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class OwnedPartitions(Message, frozen=True):
    """Partitions of one topic that the member owned until now."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


class ConsumerProtocolSubscription(Message, frozen=True):
    """What a member wants to read and already owns: its metadata in JoinGroup."""

    VERSIONS: ClassVar[Versions] = Versions(0, 3)

    topics: Sequence[String] = ()
    user_data: Bytes | None = None
    owned_partitions: Annotated[Sequence[OwnedPartitions], Since(1, ignorable=True)] = ()
    generation_id: Annotated[Int32, Since(2, ignorable=True)] = -1
    rack_id: Annotated[String | None, Since(3, ignorable=True)] = None


class AssignedPartitions(Message, frozen=True):
    """Partitions of one topic that the member shall read."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


class ConsumerProtocolAssignment(Message, frozen=True):
    """What a member shall read: its assignment in SyncGroup."""

    VERSIONS: ClassVar[Versions] = Versions(0, 3)

    assigned_partitions: Sequence[AssignedPartitions] = ()
    user_data: Bytes | None = None

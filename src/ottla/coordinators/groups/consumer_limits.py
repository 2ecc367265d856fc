"""How much members of a consumer group may bring along. All of it is theirs to choose, and most of it is recorded.

Whatever is too much is refused before it is looked at closely: reading it must not hold up other groups, and no record
may become so large that it cannot be appended, for that would end the whole shard. Pure; who is asked, and when, is
not known here. Classic groups have limits of their own: see `classic_group`.
"""

from __future__ import annotations

from ottla.coordinators.groups.consumer_member import MemberFacts
from ottla.errors import GroupMaxSizeReached, InvalidRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

TOPICS_MAX = 10_000
"""Topics that a member may be subscribed to by name. A pattern may stand for more."""
OWNED_PARTITIONS_MAX = 100_000
"""Partitions that a member may say it owns."""
MEMBER_BYTES_MAX = 8 << 20
"""What is recorded of one member. When another takes its place, it is written twice in one batch."""
GROUP_BYTES_MAX = 64 << 20
"""What is recorded of all members together: an upgrade writes it in one batch, and so it has to fit into one."""
_ENTRY_BYTES = 8
_KEYS_PER_MEMBER = 3
"""Records of a member, each with the ids of the group and of the member in its key."""


def check_heartbeat_size(request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise InvalidRequest for a heartbeat that names more topics or partitions than anybody needs."""
    names, parts = request.subscribed_topic_names, request.topic_partitions
    if names is not None and len(names) > TOPICS_MAX:
        raise InvalidRequest(f"a member may be subscribed to {TOPICS_MAX} topics by name, not to {len(names)}")
    if parts is None:
        return
    if len(parts) > OWNED_PARTITIONS_MAX or sum(len(part.partitions) for part in parts) > OWNED_PARTITIONS_MAX:
        raise InvalidRequest(f"a member cannot own more than {OWNED_PARTITIONS_MAX} partitions")


def member_bytes(group_id: str, member_id: str, facts: MemberFacts) -> int:
    """What the records of a member take, roughly and rather too much; what it is assigned is not counted."""
    client = facts.client
    texts = (client.client_id, client.client_host, facts.instance_id, facts.rack_id, facts.pattern, facts.assignor)
    size_bytes = _KEYS_PER_MEMBER * (_text_bytes(group_id) + _text_bytes(member_id))
    size_bytes += sum(_text_bytes(text) for text in texts if text is not None)
    size_bytes += sum(_text_bytes(name) for name in facts.topic_names)
    if facts.classic is not None:
        protocols = facts.classic.supported_protocols
        size_bytes += sum(_text_bytes(protocol.name) + len(protocol.metadata) for protocol in protocols)
    return size_bytes


def check_room(group_id: str, *, member_bytes: int, before_bytes: int, group_bytes: int) -> None:
    """Raise GroupMaxSizeReached if a group of that size has no room for what a member brings now.

    Whoever brings no more than before is let in, also where a group is larger than it should be.
    """
    if member_bytes <= before_bytes:
        return
    if member_bytes > MEMBER_BYTES_MAX:
        raise GroupMaxSizeReached(f"a member of group {group_id!r} may bring {MEMBER_BYTES_MAX} bytes")
    if group_bytes - before_bytes + member_bytes > GROUP_BYTES_MAX:
        raise GroupMaxSizeReached(f"members of group {group_id!r} may bring {GROUP_BYTES_MAX} bytes in all")


def _text_bytes(text: str) -> int:
    return _ENTRY_BYTES + (len(text) if text.isascii() else len(text.encode()))

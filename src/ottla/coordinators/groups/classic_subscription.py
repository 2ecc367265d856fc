"""The little that the broker understands of what consumers tell each other inside JoinGroup and SyncGroup.

Only for groups of the protocol type "consumer": the topics of a subscription, and an assignment of nothing. All other
bytes are passed on as they are.
"""

from __future__ import annotations

from struct import Struct, error

CONSUMER = "consumer"
"""The protocol type of all groups that read topics."""

EMPTY_ASSIGNMENT = bytes((0, 0)) + bytes((0, 0, 0, 0)) + bytes((255, 255, 255, 255))
"""Version 0, no topics, no user data. Some clients break on an assignment without a byte."""

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def no_assignment(protocol_type: str) -> bytes:
    """What a member gets whom the leader has given nothing."""
    return EMPTY_ASSIGNMENT if protocol_type == CONSUMER else b""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription, or None if the bytes are none.

    Every version begins alike, and what comes after the topics is not looked at, so that a newer client, or one that
    is careless with the rest, is understood as well.
    """
    topics = []
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        if version < 0 or count < 0 or count * _LENGTH.size > len(metadata):
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(str(metadata[position : position + length], "utf-8"))
            position += length
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)

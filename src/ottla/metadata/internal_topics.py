"""The topics that Ottla makes for itself. Their names are known here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

INTERNAL_TOPICS: Mapping[str, Mapping[str, str]] = {
    # A decision about a group is one batch, and a group may have thousands of members.
    CONSUMER_OFFSETS: {"cleanup.policy": "compact", "max.message.bytes": str(100 << 20)},
    # So is the commit of many transactions together.
    TRANSACTION_STATE: {"cleanup.policy": "compact", "max.message.bytes": str(100 << 20)},
    SHARE_GROUP_STATE: {"cleanup.policy": "compact"},
}
"""Each with the settings without which it would lose what it holds."""


def is_internal(topic: str) -> bool:
    """Whether clients are told that this topic is Ottla's own."""
    return topic in INTERNAL_TOPICS

"""What an acknowledgement means on each side, and the topic's settings that make it so; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.peers.contract import KAFKA, NO_SYNC, OURS, SYNC_BOTH


@dataclass(frozen=True, slots=True)
class Policy:
    """The same question to both sides."""

    key: str
    """As it stands in the id of a row."""
    acks: str
    fsync: str
    configs: Mapping[str, Mapping[str, str]]
    """Of the topic, by side; both sides have their defaults where nothing stands."""
    title: str = ""
    """As it stands in a heading."""


ACKS_1 = Policy("acks1", "1", f"acks=1: {NO_SYNC}", {OURS: {}, KAFKA: {}}, "acks=1")
OS_CACHE = Policy(
    "os",
    "all",
    f"acks=all: {NO_SYNC} (ours: ottla.acks.all=os)",
    {OURS: {"ottla.acks.all": "os"}, KAFKA: {}},
    "acks=all in the page cache",
)
ON_DISK = Policy(
    "fsync",
    "all",
    f"acks=all: {SYNC_BOTH} (Kafka: flush.messages=1)",
    {OURS: {}, KAFKA: {"flush.messages": "1"}},
    "acks=all on disk",
)
UNEVEN = Policy(
    "default",
    "all",
    "acks=all as each has it by default: ours fsync, Kafka page cache",
    {OURS: {}, KAFKA: {}},
    "acks=all by default",
)
"""Not the same promise: shown as what it is."""
EVEN = (ACKS_1, OS_CACHE, ON_DISK)

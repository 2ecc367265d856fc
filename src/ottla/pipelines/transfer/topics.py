"""A topic as a transfer sees it: how many partitions, which configs, where it begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.settings import Isolation
from ottla.client.values import OffsetSpec
from ottla.errors import TopicNotFound
from ottla.pipelines.transfer.errors import TransferFailed

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin

Wait = Callable[[float], object]
"""Waits so many seconds."""
SETTLE_SECONDS = 0.1
SETTLE_TRIES_MAX = 600


class Topic(NamedTuple):
    """A topic that is there."""

    name: str
    topic_id: str
    partition_count: int

    @property
    def partitions(self) -> range:
        return range(self.partition_count)


def found(admin: Admin, name: str) -> Topic | None:
    """The topic of this name; None: there is none."""
    described = admin.describe_topic(name)
    if described is None:
        return None
    return Topic(name, bytes(described.topic_id).hex(), described.partition_count)


def existing(admin: Admin, name: str) -> Topic:
    """The same, where it must be there."""
    topic = found(admin, name)
    if topic is None:
        raise TopicNotFound(name)
    return topic


def own_configs(admin: Admin, name: str) -> dict[str, str]:
    """The configs of a topic that are not the default and can be given to another one."""
    return {
        entry.name: entry.value
        for entry in admin.describe_configs(topic=name).values()
        if not entry.is_default and not entry.read_only and not entry.sensitive and entry.value is not None
    }


def stamps_arrival(admin: Admin, name: str) -> bool:
    """Whether records get the time at which the topic gets them, whatever time they come with."""
    entry = admin.describe_configs(topic=name).get("message.timestamp.type")
    return entry is not None and entry.value == "LogAppendTime"


def ends(admin: Admin, topic: str, partitions: Collection[int], *, isolation: Isolation) -> dict[int, int]:
    """Where each partition ends for such a reader."""
    return at(admin, topic, dict.fromkeys(partitions, int(OffsetSpec.LATEST)), isolation=isolation)


def starts(admin: Admin, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Where each partition begins."""
    return at(admin, topic, dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)), isolation="read_uncommitted")


def at(admin: Admin, topic: str, times: Mapping[int, int], *, isolation: Isolation) -> dict[int, int]:
    """The first offset of each partition that is not older than a time; partitions without one are left out."""
    told = admin.list_offsets({(topic, partition): time for partition, time in times.items()}, isolation=isolation)
    return {key.partition: place.offset for key, place in told.items() if place is not None}


def settled_ends(admin: Admin, topic: Topic, *, wait: Wait) -> dict[int, int]:
    """Where each partition ends, once no transaction is open in it.

    A commit is answered before its markers are in every partition; that takes a moment.
    """
    for _ in range(SETTLE_TRIES_MAX):
        seen = ends(admin, topic.name, topic.partitions, isolation="read_committed")
        if seen == ends(admin, topic.name, topic.partitions, isolation="read_uncommitted"):
            return seen
        wait(SETTLE_SECONDS)
    raise TransferFailed(
        f"a transaction stays open in topic {topic.name!r}. Something else writes to it: `ottla transactions list` "
        "shows what; stop it, and start again"
    )

"""What a group coordinator knows of topics: their names, ids and sizes, and no more.

`ImageTopics` shows the metadata image so. Nobody here is told when topics change; the owner says it with
`ConsumerProtocol.topics_changed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from ottla.metadata.image import Image
from ottla.metadata.internal_topics import is_internal


class TopicsView(Protocol):
    """The topics of one moment."""

    def names(self) -> Iterable[str]:
        """Every topic that a pattern may match: not those that Ottla made for itself."""
        ...

    def topic_id(self, name: str) -> bytes | None:
        """The sixteen bytes of the topic's id; None if there is no such topic."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """None if no topic has this id, or has it any more."""
        ...

    def partition_count(self, name: str) -> int:
        """0 if there is no such topic."""
        ...


class ImageTopics:
    """The topics of a metadata image."""

    __slots__ = ("_image",)

    def __init__(self, image: Image) -> None:
        self._image = image

    def names(self) -> Iterable[str]:
        return (name for name in self._image.topics if not is_internal(name))

    def topic_id(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.topic_id.bytes

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(UUID(bytes=topic_id))
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        topic = self._image.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

"""What the probes of every version stand on: a broker with something in it, and what a probe is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol.schema import NO_UUID, Message
from tests.broker.stage import Stage
from tests.storage.workbench import sequenced

NODE = 1
TOPIC = "topic"
PARTITIONS = 2
PRODUCER = 77


class Scene(NamedTuple):
    """A broker with one topic, and three records of one producer in its first partition."""

    stage: Stage
    topic_id: UUID
    version: int

    def named(self, *, since: int) -> dict[str, Any]:
        """How the topic is named: by its id from a version on."""
        if self.version >= since:
            return {"topic": "", "topic_id": self.topic_id.bytes}
        return {"topic": TOPIC, "topic_id": NO_UUID}


class Probe(NamedTuple):
    """A request for one version, and what must be true of the answer."""

    request: Callable[[Scene], Message]
    check: Callable[[Scene, Any], None]


def scene(version: int) -> Scene:
    stage = Stage()
    topic_id = stage.create(TOPIC, PARTITIONS, retention_ms="86400000")
    stage.produce(TOPIC, 0, sequenced(PRODUCER, 0, count=3))
    return Scene(stage, topic_id, version)

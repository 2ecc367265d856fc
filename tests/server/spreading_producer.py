"""A client whose requests have batches for several partitions, or for one, and come together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.server.repeats_stage import Door, Line
from tests.storage.workbench import batch

TOPIC = "orders"


class Producer:
    """A client that sends batches for several partitions in each request."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.line = Line(door)
        self._client = ClientConnection("producer")

    def send(self, partitions: Sequence[int], **how: Any) -> list[PartitionProduceResponse]:
        """Send one request, as `encoded` makes it, and return what each partition was told."""
        return self.send_all([partitions], **how)[0]

    def send_all(self, requests: Sequence[Sequence[int]], **how: Any) -> list[list[PartitionProduceResponse]]:
        """The same for requests that come together."""
        self.line.send(self.encoded(requests, **how))
        self.door.settle()
        return self.heard()

    def heard(self) -> list[list[PartitionProduceResponse]]:
        """What has been answered since the last time."""
        answers = []
        for response in self._client.receive(self.line.take()):
            assert isinstance(response.message, ProduceResponse)
            answers.append(list(response.message.responses[0].partition_responses))
        return answers

    def encoded(
        self,
        requests: Sequence[Sequence[int]],
        *,
        version: int = 13,
        topic: str = TOPIC,
        data: bytes | None = None,
        damaged: Sequence[int] = (),
        acks: int = 1,
    ) -> bytes:
        """What such requests are made of."""
        records = batch(b"v") if data is None else data
        spoilt = records[:-1] + bytes((records[-1] ^ 1,))
        known = self.door.stage.broker.services.catalog.image.topics.get(topic)
        is_by_id = version >= 13
        stream = b""
        for partitions in requests:
            entries = [PartitionProduceData(each, spoilt if each in damaged else records) for each in partitions]
            asked = TopicProduceData(
                name="" if is_by_id else topic,
                topic_id=known.topic_id.bytes if is_by_id and known is not None else bytes(16),
                partition_data=entries,
            )
            request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[asked])
            stream += b"".join(self._client.send(ApiKey.PRODUCE, version, request)[1])
        return stream

    @property
    def read(self) -> int:
        """How many requests were read so far."""
        return self.door.broker.produced

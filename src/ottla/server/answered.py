"""How a Produce answer for one topic is encoded, without its size and number: the pattern of others, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode_bytes
from ottla.protocol.headers import response_header, response_header_version
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.server.alike import ID_AT, ID_END

MARK = 0x5A5A5A5A
"""Stands where a number is to be put in."""


class AnsweredTopic:
    """The answers of one version for one topic."""

    __slots__ = ("_name", "_topic_id", "_version")

    def __init__(self, asked: TopicProduceData, *, version: int) -> None:
        self._name = asked.name
        self._topic_id = asked.topic_id
        self._version = version

    def encode(self, outcomes: Sequence[PartitionProduceResponse]) -> bytes:
        """An answer as any is encoded, from behind its number on."""
        header = response_header(0, header_version=response_header_version(ApiKey.PRODUCE, self._version))
        response = ProduceResponse([TopicProduceResponse(self._name, self._topic_id, outcomes)])
        return header[ID_END - ID_AT :] + encode_bytes(response, self._version)

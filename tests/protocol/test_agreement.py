"""Two hundred random messages of every API and version, against three other codecs.

The plain encoder beside this file checks everything, also what the others cannot express; kio knows every
API and version of Kafka's; kafka-python most of them. APIs of our own are known to the plain encoder only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey, is_private
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.messages import MESSAGES, request_class, response_class
from ottla.protocol.schema import Message, fields_of
from tests.protocol.kafka_python_oracle import KafkaPythonOracle
from tests.protocol.kio_oracle import KioOracle
from tests.protocol.plain_codec import plain_encode
from tests.protocol.random_messages import MessageMaker, without_unknown_tags

MESSAGES_EACH = 200
VARIED_MIN = 20

NESTED_TAGS_UNREAD = {
    "ApiVersionsResponse": "SupportedFeatures, FinalizedFeatures",
    "FetchRequest": "ReplicaState",
    "FetchResponse": "DivergingEpoch, CurrentLeader, SnapshotId, NodeEndpoints",
    "ProduceResponse": "CurrentLeader, NodeEndpoints",
}
"""kafka-python asserts that the structs in these tagged fields have no tagged fields of their own."""


@dataclass(frozen=True)
class Case:
    """One version of one message."""

    key: ApiKey
    message: type[Message]
    version: int
    is_request: bool

    def __str__(self) -> str:
        return f"{self.message.__name__}-{self.version}"


class Sample:
    """The random messages of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        maker = MessageMaker(str(case))
        self.messages = [
            # One in four also has tagged fields that nobody knows.
            maker.make(case.message, case.version, with_unknown_tags=number % 4 == 0)
            for number in range(MESSAGES_EACH)
        ]
        self.varied = maker.varied

    @cached_property
    def encoded(self) -> list[bytes]:
        return [encode_bytes(message, self.case.version) for message in self.messages]


def _cases() -> Iterator[Case]:
    for key in MESSAGES:
        for message, is_request in ((request_class(key), True), (response_class(key), False)):
            for version in message.VERSIONS:
                yield Case(key, message, version, is_request)


@pytest.fixture(scope="module", params=list(_cases()), ids=str)
def sample(request: pytest.FixtureRequest) -> Sample:
    return Sample(request.param)


def _fields_within(struct: type[Message], version: int) -> Iterator[str]:
    for field in fields_of(struct):
        if field.is_in(version):
            yield f"{struct.__name__}.{field.name}"
            if field.struct is not None:
                yield from _fields_within(field.struct, version)


def test_the_messages_vary_every_field(sample: Sample) -> None:
    rare = {
        name: sample.varied[name]
        for name in _fields_within(sample.case.message, sample.case.version)
        if sample.varied[name] < VARIED_MIN
    }
    assert not rare
    if sample.case.message.VERSIONS.flexible(sample.case.version):
        assert sample.varied[f"{sample.case.message.__name__}.unknown_tags"] >= VARIED_MIN


def test_the_bytes_are_those_of_the_plain_encoder(sample: Sample) -> None:
    for message, encoded in zip(sample.messages, sample.encoded, strict=True):
        assert encoded == plain_encode(message, sample.case.version)


def test_what_was_written_reads_back_equal(sample: Sample) -> None:
    for message, encoded in zip(sample.messages, sample.encoded, strict=True):
        assert decode(sample.case.message, sample.case.version, encoded) == message


def test_kio_writes_and_reads_the_same_bytes(sample: Sample) -> None:
    case = sample.case
    if is_private(case.key):
        pytest.skip("an API of our own")
    kio = KioOracle(case.key, case.message, case.version, is_request=case.is_request)
    for message in sample.messages:
        # Without unknown tagged fields: kio can neither write nor read them (it raises KeyError).
        folded = kio.fold(message)
        entity = kio.entity(folded)
        theirs = kio.encode(entity)
        assert encode_bytes(folded, case.version) == theirs
        assert decode(case.message, case.version, theirs) == folded
        assert kio.decode(theirs) == entity


def test_kafka_python_writes_and_reads_the_same_bytes(sample: Sample) -> None:
    case = sample.case
    if not KafkaPythonOracle.knows(case.message, case.version):
        pytest.skip("kafka-python does not have this API")
    kafka_python = KafkaPythonOracle(case.message, case.version)
    for message, encoded in zip(sample.messages, sample.encoded, strict=True):
        stripped = without_unknown_tags(message)
        theirs = kafka_python.encode(stripped)
        assert encode_bytes(stripped, case.version) == theirs
        assert decode(case.message, case.version, theirs) == stripped
        if not _reads_as_another_version(case, message):
            readable = theirs if case.message.__name__ in NESTED_TAGS_UNREAD else encoded
            assert kafka_python.decode(readable) == stripped


def _reads_as_another_version(case: Case, message: Any) -> bool:
    """kafka-python takes any ApiVersions response that reports an error for one of version 0."""
    return case.message.__name__ == "ApiVersionsResponse" and message.error_code != 0

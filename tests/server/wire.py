"""A plain socket that speaks the protocol, for tests that send what no client would send.

It never waits longer than `SECONDS_MAX`: a server that does not answer is a failure, not a hang.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from types import TracebackType

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection, Response
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.schema import Message
from ottla.records.batch import HEADER_SIZE, peek
from ottla.records.builder import build_batch
from ottla.records.reader import read_batch
from tests.clients.server_process import ServerProcess

SECONDS_MAX = 60
ACKS_ALL = -1
LATEST, EARLIEST = -1, -2
PRODUCE_VERSION = 9
FETCH_VERSION = 11
METADATA_VERSION = 9
LIST_OFFSETS_VERSION = 7


class Wire:
    """One connection."""

    def __init__(self, server: ServerProcess, *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", server.port))
        self._connection = ClientConnection("wire")
        self._responses: list[Response] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def encode(self, key: ApiKey, version: int, message: Message, *, expects_response: bool = True) -> bytes:
        """The bytes of a request, which counts as sent."""
        _, buffers = self._connection.send(key, version, message, expects_response=expects_response)
        return b"".join(buffers)

    def send(self, key: ApiKey, version: int, message: Message, *, expects_response: bool = True) -> None:
        self.socket.sendall(self.encode(key, version, message, expects_response=expects_response))

    def receive(self) -> Response:
        """The next response. Raises ConnectionError when the server closes instead."""
        deadline = time.monotonic() + SECONDS_MAX
        while not self._responses:
            if time.monotonic() > deadline:
                raise TimeoutError("no response came")
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._responses += self._connection.receive(data)
        return self._responses.pop(0)

    def call(self, key: ApiKey, version: int, message: Message) -> Message:
        self.send(key, version, message)
        return self.receive().message

    def is_closed_by_server(self) -> bool:
        """Wait for the end of the connection; True unless something else comes first."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    # --- what is asked most -----------------------------------------------------------------------------

    def api_versions(self) -> ApiVersionsResponse:
        response = self.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("wire", "1"))
        assert isinstance(response, ApiVersionsResponse)
        return response

    def make_topic(self, name: str) -> None:
        """By asking for it: the server makes it, and has answered when it is there."""
        response = self.call(
            ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        )
        assert isinstance(response, MetadataResponse)
        assert [topic.error_code for topic in response.topics] == [0]

    def produce(self, topic: str, values: Sequence[bytes], *, acks: int = ACKS_ALL, partition: int = 0) -> int:
        """Append one batch; its first offset."""
        response = self.call(
            ApiKey.PRODUCE, PRODUCE_VERSION, produce_request(topic, values, acks=acks, partition=partition)
        )
        return base_offset(response)

    def end_offset(self, topic: str, *, partition: int = 0, timestamp_ms: int = LATEST) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp_ms)
                    ],
                )
            ],
        )
        response = self.call(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        assert isinstance(response, ListOffsetsResponse)
        (found,) = response.topics[0].partitions
        assert found.error_code == 0
        return found.offset

    def fetch_all(self, topic: str, *, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """Every offset and value from the log's start to its end."""
        found: list[tuple[int, bytes | None]] = []
        offset, end = (self.end_offset(topic, partition=partition, timestamp_ms=at) for at in (EARLIEST, LATEST))
        while offset < end:
            request = fetch_request(topic, offset, partition=partition, wait_ms=0)
            response = self.call(ApiKey.FETCH, FETCH_VERSION, request)
            new = [(at, value) for at, value in fetched(response) if at >= offset]
            assert new, f"nothing came from {topic}-{partition} at {offset}, the end is {end}"
            found += new
            offset = found[-1][0] + 1
        return found


def produce_request(
    topic: str, values: Sequence[bytes], *, acks: int = ACKS_ALL, partition: int = 0, timeout_ms: int = 10_000
) -> ProduceRequest:
    now_ms = int(time.time() * 1000)
    batch = build_batch([(None, value, now_ms, ()) for value in values])
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))])
        ],
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    wait_ms: int = 10_000,
    bytes_max: int = 1 << 20,
) -> FetchRequest:
    asked = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max, current_leader_epoch=-1
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )


def base_offset(response: Message) -> int:
    """Where a batch was put, by the only answer in a response; it must not be a refusal."""
    assert isinstance(response, ProduceResponse)
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == 0, (answer.error_code, answer.error_message)
    return answer.base_offset


def fetched(response: Message) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the whole batches in a response for one partition."""
    assert isinstance(response, FetchResponse)
    assert response.error_code == 0
    (data,) = response.responses[0].partitions
    assert data.error_code == 0, data.error_code
    data_left = memoryview(data.records or b"")
    found: list[tuple[int, bytes | None]] = []
    # The last batch may be cut off by the limit of the fetch.
    while len(data_left) >= HEADER_SIZE and len(data_left) >= (size := peek(data_left).size):
        found += [(record.offset, record.value) for record in read_batch(data_left[:size])]
        data_left = data_left[size:]
    return found

"""The sans-IO connection: bytes in any pieces, pipelining, order, and everything that closes it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from ottla.error_codes import ErrorCode
from ottla.errors import ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode_bytes
from ottla.protocol.connection import CORRELATION_ID_MAX, ClientConnection, Request, Response, ServerConnection
from ottla.protocol.headers import UnsupportedRequest
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.schema import Message
from ottla.protocol.wire import COPIED_BYTES_MAX, Buffer

PRODUCE = ProduceRequest(
    acks=1,
    timeout_ms=500,
    topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(0, b"r" * 3000),)),),
)
METADATA = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
HEARTBEAT = HeartbeatRequest("g", 3, "m")
THREE: tuple[tuple[ApiKey, int, Message], ...] = (
    (ApiKey.PRODUCE, 9, PRODUCE),
    (ApiKey.METADATA, 12, METADATA),
    (ApiKey.HEARTBEAT, 1, HEARTBEAT),
)


def _joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)


def _three_requests() -> bytes:
    client = ClientConnection("tester")
    return b"".join(_joined(client.send(key, version, request)[1]) for key, version, request in THREE)


def _raw(api_key: int, api_version: int, correlation_id: int, rest: bytes = b"") -> bytes:
    body = struct.pack(">hhih", api_key, api_version, correlation_id, -1) + rest
    return struct.pack(">i", len(body)) + body


def _received(requests: Sequence[Request]) -> list[tuple[ApiKey, int, Message]]:
    return [(request.header.api_key, request.header.api_version, request.message) for request in requests]


def test_pipelined_requests_come_out_one_by_one_with_their_headers() -> None:
    requests = list(ServerConnection().receive(_three_requests()))
    assert _received(requests) == list(THREE)
    assert [request.header.correlation_id for request in requests] == [0, 1, 2]
    assert {request.header.client_id for request in requests} == {"tester"}


def test_a_stream_cut_in_two_at_any_byte_gives_the_same_requests() -> None:
    stream = _three_requests()
    for cut in range(len(stream) + 1):
        server = ServerConnection()
        requests = [*server.receive(stream[:cut]), *server.receive(stream[cut:])]
        assert _received(requests) == list(THREE), f"cut at {cut}"
        assert server.bytes_kept == 0


def test_a_stream_that_comes_byte_by_byte_gives_the_same_requests() -> None:
    server = ServerConnection()
    requests = [request for byte in _three_requests() for request in server.receive(bytes((byte,)))]
    assert _received(requests) == list(THREE)


def test_the_receive_buffer_may_be_used_again_once_the_requests_are_out() -> None:
    stream = _three_requests()
    server = ServerConnection()
    buffer = bytearray(stream[:-5])
    first = _received(list(server.receive(buffer)))[1:]
    buffer[:] = bytes(len(buffer))
    assert first == [THREE[1]]
    assert _received(list(server.receive(stream[-5:]))) == [THREE[2]]


def test_many_records_that_arrived_in_one_piece_are_not_copied() -> None:
    data = PartitionProduceData(index=1, records=bytes(COPIED_BYTES_MAX + 1))
    large = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    buffer = bytearray(_joined(ClientConnection().send(ApiKey.PRODUCE, 9, large)[1]))
    (request,) = ServerConnection().receive(buffer)
    assert isinstance(request.message, ProduceRequest)
    records = request.message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is buffer


def test_a_few_records_are_a_copy_that_outlives_the_receive_buffer() -> None:
    buffer = bytearray(_joined(ClientConnection().send(ApiKey.PRODUCE, 9, PRODUCE)[1]))
    (request,) = ServerConnection().receive(buffer)
    buffer[:] = bytes(len(buffer))
    assert request.message == PRODUCE


def test_responses_leave_in_the_order_of_the_requests_whatever_order_they_are_given_in() -> None:
    server = ServerConnection()
    produce, metadata, heartbeat = server.receive(_three_requests())
    assert server.respond(heartbeat, HeartbeatResponse()) == []
    assert server.respond(metadata, MetadataResponse()) == []
    assert server.in_flight == 3
    released = _joined(server.respond(produce, ProduceResponse()))
    assert server.in_flight == 0
    client = ClientConnection("tester")
    for key, version, request in THREE:
        client.send(key, version, request)
    answers = list(client.receive(released))
    assert [answer.api_key for answer in answers] == [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.HEARTBEAT]
    assert [answer.message for answer in answers] == [ProduceResponse(), MetadataResponse(), HeartbeatResponse()]


def test_a_request_without_a_response_lets_the_next_one_through() -> None:
    server = ServerConnection()
    produce, metadata, _ = server.receive(_three_requests())
    assert server.respond(metadata, MetadataResponse()) == []
    assert server.respond_nothing(produce) != []
    assert server.in_flight == 1


def test_large_records_of_a_response_are_passed_through_as_they_are() -> None:
    client = ClientConnection()
    _, buffers = client.send(ApiKey.PRODUCE, 9, PRODUCE)
    records = PRODUCE.topic_data[0].partition_data[0].records
    assert any(buffer is records for buffer in buffers)


@pytest.mark.parametrize(("api_key", "api_version"), [(999, 0), (-1, 0), (3, 99), (3, -1), (0, 2), (71, 0)])
def test_an_unknown_api_or_version_is_named_with_its_correlation_id(api_key: int, api_version: int) -> None:
    with pytest.raises(UnsupportedRequest) as caught:
        list(ServerConnection().receive(_raw(api_key, api_version, 77)))
    refused = caught.value
    assert (refused.api_key, refused.api_version, refused.correlation_id) == (api_key, api_version, 77)


def test_requests_before_an_unknown_one_still_come_out() -> None:
    server = ServerConnection()
    received = server.receive(_three_requests() + _raw(999, 0, 5))
    assert [next(received).header.correlation_id for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UnsupportedRequest):
        next(received)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_and_the_connection_goes_on() -> None:
    server = ServerConnection()
    with pytest.raises(UnsupportedRequest) as caught:
        list(server.receive(_raw(ApiKey.API_VERSIONS, 99, 7, b"whatever") + _three_requests()))
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),)
    )
    written = _joined(server.respond_unsupported(caught.value, answer))
    assert written == struct.pack(">ii", 4 + 12, 7) + encode_bytes(answer, 0)
    assert _received(list(server.receive(b""))) == list(THREE)


def test_a_client_reads_such_an_answer_to_its_newer_request() -> None:
    client = ClientConnection()
    correlation_id, _ = client.send(ApiKey.API_VERSIONS, 4, ApiVersionsRequest("me", "1"))
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(ApiVersion(18, 0, 2),))
    body = struct.pack(">i", correlation_id) + encode_bytes(refusal, 0)
    answers = list(client.receive(struct.pack(">i", len(body)) + body))
    assert answers == [Response(ApiKey.API_VERSIONS, 0, correlation_id, refusal)]


def test_the_response_to_api_versions_has_a_header_without_tagged_fields() -> None:
    server, client = ServerConnection(), ClientConnection()
    (request,) = server.receive(_joined(client.send(ApiKey.API_VERSIONS, 4, ApiVersionsRequest("me", "1"))[1]))
    written = _joined(server.respond(request, ApiVersionsResponse()))
    assert written[8:] == encode_bytes(ApiVersionsResponse(), 4)
    assert [answer.message for answer in client.receive(written)] == [ApiVersionsResponse()]


@pytest.mark.parametrize("size", [-1, -(2**31), 1025, 2**31 - 1])
def test_a_frame_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"frame of {size} bytes"):
        list(ServerConnection(frame_bytes_max=1024).receive(struct.pack(">i", size)))


def test_a_frame_of_the_largest_size_is_taken() -> None:
    stream = _joined(ClientConnection().send(ApiKey.METADATA, 12, METADATA)[1])
    assert len(list(ServerConnection(frame_bytes_max=len(stream) - 4).receive(stream))) == 1


def test_an_announced_size_alone_takes_no_memory() -> None:
    server = ServerConnection()
    assert list(server.receive(struct.pack(">i", 100_000_000) + b"abc")) == []
    assert server.bytes_kept == 7


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\3\0",
        struct.pack(">hhih", 3, 12, 1, 10),
        struct.pack(">hhih", 3, 12, 1, -2),
        struct.pack(">hhih", 3, 12, 1, 1) + b"\xff\0",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\5",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + encode_bytes(METADATA, 12)[:-1],
    ],
    ids=["empty", "short", "client-id", "length", "utf-8", "tags", "cut"],
)
def test_a_frame_that_is_no_request_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(ServerConnection().receive(struct.pack(">i", len(body)) + body))


def test_bytes_behind_a_request_are_ignored() -> None:
    stream = _raw(ApiKey.METADATA, 12, 9, b"\0" + encode_bytes(METADATA, 12) + b"more")
    assert [request.message for request in ServerConnection().receive(stream)] == [METADATA]


def test_tagged_fields_in_a_header_are_skipped() -> None:
    tags = b"\1\5\2ab"
    stream = _raw(ApiKey.METADATA, 12, 9, tags + encode_bytes(METADATA, 12))
    assert [request.message for request in ServerConnection().receive(stream)] == [METADATA]


def test_a_response_out_of_turn_is_a_protocol_error() -> None:
    client = ClientConnection()
    client.send(ApiKey.HEARTBEAT, 1, HEARTBEAT)
    with pytest.raises(ProtocolError, match="correlation id 5"):
        list(client.receive(struct.pack(">iiih", 10, 5, 0, 0)))


def test_a_response_that_nobody_asked_for_is_a_protocol_error() -> None:
    client = ClientConnection()
    client.send(ApiKey.PRODUCE, 9, PRODUCE, expects_response=False)
    with pytest.raises(ProtocolError, match="no request"):
        list(client.receive(struct.pack(">ii", 4, 0)))


def test_correlation_ids_start_again_at_zero_after_the_last() -> None:
    client = ClientConnection()
    client._next_correlation_id = CORRELATION_ID_MAX
    assert client.send(ApiKey.HEARTBEAT, 1, HEARTBEAT)[0] == CORRELATION_ID_MAX
    assert client.send(ApiKey.HEARTBEAT, 1, HEARTBEAT)[0] == 0


def test_a_request_cannot_be_answered_twice() -> None:
    server = ServerConnection()
    produce, *_ = server.receive(_three_requests())
    server.respond(produce, ProduceResponse())
    with pytest.raises(AssertionError):
        server.respond(produce, ProduceResponse())

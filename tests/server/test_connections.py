"""One connection at the level of bytes: what is answered, in which order, and what only closes it."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from contextlib import ExitStack

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.server.rooms import LENT_MAX
from tests.clients.server_process import Make, ServerProcess
from tests.server.wire import (
    ACKS_ALL,
    FETCH_VERSION,
    METADATA_VERSION,
    PRODUCE_VERSION,
    SECONDS_MAX,
    Wire,
    base_offset,
    fetch_request,
    fetched,
    produce_request,
)

FUZZ_CONNECTIONS = int(os.environ.get("SERVER_FUZZ_CONNECTIONS", "1000"))


def _request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    header = struct.pack(">hhih", key, version, correlation_id, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


# --- order ---------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order_whatever_each_has_to_wait_for(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire, Wire(ottla_server) as other:
        wire.make_topic("order")
        sent = b""
        expected: list[type] = []
        for number in range(40):
            sent += wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("order", [b"%d" % number]))
            sent += wire.encode(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=[]))
            sent += wire.encode(
                ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("order", [b"one"], acks=1), expects_response=True
            )
            expected += [ProduceResponse, MetadataResponse, ProduceResponse]
        # This poll waits for a record that comes later, and everything behind it waits for the poll.
        sent += wire.encode(ApiKey.FETCH, FETCH_VERSION, fetch_request("order", 80))
        sent += wire.encode(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        expected += [FetchResponse, ApiVersionsResponse]
        wire.socket.sendall(sent)
        answers = [wire.receive() for _ in range(120)]
        assert other.produce("order", [b"the record that ends the poll"]) == 80
        answers += [wire.receive() for _ in range(2)]

    assert [type(answer.message) for answer in answers] == expected
    produced = [base_offset(answer.message) for answer in answers if isinstance(answer.message, ProduceResponse)]
    assert produced == list(range(80))
    assert fetched(answers[-2].message) == [(80, b"the record that ends the poll")]


def test_a_request_without_an_answer_leaves_no_gap_among_the_others(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        wire.make_topic("no-acks")
        for number in range(5):
            request = produce_request("no-acks", [b"%d" % number], acks=0)
            wire.send(ApiKey.PRODUCE, PRODUCE_VERSION, request, expects_response=False)
            wire.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        assert [type(wire.receive().message) for _ in range(5)] == [ApiVersionsResponse] * 5
        assert wire.fetch_all("no-acks") == [(number, b"%d" % number) for number in range(5)]


def test_a_long_poll_with_nothing_to_read_ends_when_its_time_is_over(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        wire.make_topic("quiet")
        response = wire.call(ApiKey.FETCH, FETCH_VERSION, fetch_request("quiet", 0, wait_ms=50))
        assert fetched(response) == []


# --- bytes as they come --------------------------------------------------------------------------------------


def test_requests_may_be_split_at_every_byte(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        wire.make_topic("split")
        whole = wire.encode(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("split", "1"))
        whole += wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("split", [b"first"]))
        wire.socket.sendall(whole)
        assert base_offset((wire.receive(), wire.receive())[1].message) == 0
        for cut in range(1, len(whole)):
            # The ids in the two halves are of no importance to the server, so the same bytes serve again.
            wire.encode(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("split", "1"))
            wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("split", [b"first"]))
            numbered = _renumbered(whole, first_id=1 + 2 * cut)
            wire.socket.sendall(numbered[:cut])
            wire.socket.sendall(numbered[cut:])
            answers = (wire.receive(), wire.receive())
            assert base_offset(answers[1].message) == cut


def _renumbered(two_requests: bytes, *, first_id: int) -> bytes:
    """Two requests with other correlation ids."""
    changed = bytearray(two_requests)
    second = 4 + struct.unpack_from(">i", changed)[0]
    struct.pack_into(">i", changed, 8, first_id)
    struct.pack_into(">i", changed, second + 8, first_id + 1)
    return bytes(changed)


def test_a_request_larger_than_the_receive_buffer_arrives_whole(make_server: Make) -> None:
    server = make_server(settings={"message.max.bytes": str(8 << 20)}).start()
    with Wire(server) as wire:
        wire.make_topic("large")
        value = random.Random(1).randbytes(5 << 20)
        assert wire.produce("large", [value]) == 0
        assert wire.fetch_all("large") == [(0, value)]


def test_requests_that_are_under_way_on_many_connections_at_once_are_not_mixed_up(ottla_server: ServerProcess) -> None:
    """More than there are rooms for; a part ends anywhere, also behind the beginning of the next request."""
    choice = random.Random(7)
    values = [[choice.randbytes(choice.randint(1, 90_000)) for _ in range(3)] for _ in range(LENT_MAX + 8)]
    with ExitStack() as open_wires:
        wires = [open_wires.enter_context(Wire(ottla_server)) for _ in values]
        streams: list[bytes] = []
        for number, (wire, own) in enumerate(zip(wires, values, strict=True)):
            wire.make_topic(f"at-once-{number}")
            requests = [produce_request(f"at-once-{number}", [value]) for value in own]
            streams.append(b"".join(wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, each) for each in requests))
        while any(streams):
            for number, wire in enumerate(wires):
                cut = choice.randint(0, 60_000)
                wire.socket.sendall(streams[number][:cut])
                streams[number] = streams[number][cut:]
        for number, (wire, own) in enumerate(zip(wires, values, strict=True)):
            assert [base_offset(wire.receive().message) for _ in own] == [0, 1, 2]
            assert wire.fetch_all(f"at-once-{number}") == list(enumerate(own))


def test_records_that_have_left_the_page_cache_are_read_and_the_connection_goes_on(make_server: Make) -> None:
    server = make_server().start()
    with Wire(server) as wire:
        wire.make_topic("cold")
        values = [random.Random(number).randbytes(600_000) for number in range(4)]
        for value in values:
            wire.produce("cold", [value])
        (segment,) = (server.data / "cold-0").glob("*.log")
        with open(segment, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert wire.fetch_all("cold") == list(enumerate(values))
        assert wire.produce("cold", [b"and on"]) == 4


@pytest.mark.parametrize("receive_buffer_bytes", [None, 8 << 10], ids=["roomy socket", "tight socket"])
def test_large_answers_small_ones_and_those_between_arrive_whole_and_in_order(
    ottla_server: ServerProcess, receive_buffer_bytes: int | None
) -> None:
    sizes = (300, 5_000, 70_000, 300_000, 900_000)
    values = [random.Random(size).randbytes(size) for size in sizes]
    with Wire(ottla_server, receive_buffer_bytes=receive_buffer_bytes) as wire:
        wire.make_topic("mixed")
        for value in values:
            wire.produce("mixed", [value])
        asked = [random.Random(9).randrange(len(sizes)) for _ in range(60)]
        for number, at in enumerate(asked):
            wire.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("mixed", at, bytes_max=1))
            if number % 7 == 0:
                wire.send(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("wire", "1"))
        for number, at in enumerate(asked):
            assert fetched(wire.receive().message) == [(at, values[at])]
            if number % 7 == 0:
                assert isinstance(wire.receive().message, ApiVersionsResponse)


def test_stray_bytes_behind_a_request_are_ignored_as_kafka_does(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        # A Metadata request of version 13 for all topics as librdkafka writes it: three bytes too long.
        wire.socket.sendall(
            bytes.fromhex("00000016 0003 000d 00000000 0004 77697265 00 00 000000 01 00 00".replace(" ", ""))
        )
        wire.encode(ApiKey.METADATA, 13, MetadataRequest(topics=None))
        assert isinstance(wire.receive().message, MetadataResponse)


# --- what is not known ---------------------------------------------------------------------------------------


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_error_35(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        wire.socket.sendall(_request(ApiKey.API_VERSIONS, 99, 7, b"\0"))
        size, correlation_id, error = struct.unpack(">iih", _exactly(wire.socket, 10))
        body = _exactly(wire.socket, size - 6)

    assert (correlation_id, error) == (7, ErrorCode.UNSUPPORTED_VERSION)
    (count,) = struct.unpack_from(">i", body)
    rows = {row[0]: row[1:] for row in struct.iter_unpack(">hhh", body[4 : 4 + 6 * count])}
    assert rows[ApiKey.API_VERSIONS] == (0, 4)
    assert len(body) == 4 + 6 * count


def test_what_follows_an_unknown_version_of_api_versions_is_answered_too(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        again = _request(ApiKey.API_VERSIONS, 0, 8)
        wire.socket.sendall(_request(ApiKey.API_VERSIONS, 99, 7, b"\0") + again)
        first = _exactly(wire.socket, struct.unpack(">i", _exactly(wire.socket, 4))[0])
        second = _exactly(wire.socket, struct.unpack(">i", _exactly(wire.socket, 4))[0])

    assert struct.unpack_from(">ih", first) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert struct.unpack_from(">ih", second) == (8, 0)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the server has closed the connection"
        data += more
    return data


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (ApiKey.METADATA, 99), (ApiKey.METADATA, -1), (ApiKey.PRODUCE, 2), (ApiKey.FETCH, 3)],
)
def test_an_unknown_api_or_version_closes_the_connection_with_one_line_in_the_log(
    ottla_server: ServerProcess, key: int, version: int
) -> None:
    with Wire(ottla_server) as bystander, Wire(ottla_server) as wire:
        bystander.api_versions()
        before = len(ottla_server.said)
        wire.socket.sendall(_request(key, version, 1))
        assert wire.is_closed_by_server()
        bystander.api_versions()

    lines = [line for line in ottla_server.said[before:].splitlines() if line]
    assert len(lines) == 1, lines
    assert f"API {int(key)} version {version}" in lines[0]


def test_answers_that_were_due_before_bad_bytes_are_still_sent(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        wire.make_topic("before-bad")
        good = wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("before-bad", [b"x"], acks=1))
        wire.socket.sendall(good + _request(999, 0, 1))
        assert base_offset(wire.receive().message) == 0
        assert wire.is_closed_by_server()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (100 << 20) + 1])
def test_a_frame_of_an_impossible_size_closes_the_connection(ottla_server: ServerProcess, size: int) -> None:
    with Wire(ottla_server) as wire:
        wire.socket.sendall(struct.pack(">i", size) + bytes(100))
        assert wire.is_closed_by_server()


def test_a_request_beyond_the_limit_that_is_set_closes_the_connection(make_server: Make) -> None:
    server = make_server(settings={"socket.request.max.bytes": "10000"}).start()
    with Wire(server) as wire, Wire(server) as other:
        wire.make_topic("limit")
        assert wire.produce("limit", [bytes(9_000)]) == 0
        other.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("limit", [bytes(11_000)]))
        assert other.is_closed_by_server()
        assert wire.end_offset("limit") == 1
    assert "10000 are taken" in server.said


def test_fuzzed_bytes_close_only_the_connection_that_sent_them(ottla_server: ServerProcess) -> None:
    chance = random.Random(4)
    with Wire(ottla_server) as bystander:
        bystander.make_topic("fuzz")
        bystander.produce("fuzz", [b"kept"])
        samples = [
            bystander.encode(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("never", [b"v" * 50, b"w"])),
            bystander.encode(ApiKey.FETCH, FETCH_VERSION, fetch_request("fuzz", 0, wait_ms=1)),
            bystander.encode(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=[])),
            bystander.encode(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("fuzz", "1")),
        ]
        for _ in range(FUZZ_CONNECTIONS):
            _send_mutation(ottla_server, chance, samples)

    # Nobody was taken down with them: a new client finds everything in place.
    with Wire(ottla_server) as wire:
        assert wire.fetch_all("fuzz") == [(0, b"kept")]
    assert ottla_server.is_alive
    assert "Traceback" not in ottla_server.said


def _send_mutation(server: ServerProcess, chance: random.Random, samples: list[bytes]) -> None:
    """A connection that sends a damaged request, or nothing like one, and then no more."""
    with Wire(server) as wire:
        data = bytearray(chance.choice(samples))
        kind = chance.randrange(4)
        if kind == 0:
            data = bytearray(chance.randbytes(chance.randint(1, 400)))
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(len(data))
            if kind == 1:
                data[place] = chance.randrange(256)
            elif kind == 2:
                data[place:place] = chance.randbytes(chance.randint(1, 8))
            elif kind == 3 and len(data) > 8:
                del data[place : place + chance.randint(1, 4)]
        if chance.random() < 0.7 and len(data) > 4:
            struct.pack_into(">i", data, 0, len(data) - 4)
        wire.socket.sendall(data)
        # The half of the connection that still sends is shut: the server must come to an end with it.
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(1 << 16):
            pass


# --- who may connect -----------------------------------------------------------------------------------------


def test_connections_beyond_the_limit_are_closed_and_a_place_is_free_again_when_one_leaves(make_server: Make) -> None:
    server = make_server(settings={"max.connections": "3"}).start()
    wires = [Wire(server) for _ in range(3)]
    for wire in wires:
        wire.api_versions()
    with Wire(server) as fourth:
        assert fourth.is_closed_by_server()
    assert "max.connections (3)" in server.said
    wires[0].close()
    for _ in range(200):
        with Wire(server) as again:
            try:
                again.api_versions()
            except ConnectionError:
                continue
            break
    else:
        pytest.fail("no place became free")
    for wire in wires[1:]:
        wire.api_versions()
        wire.close()


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(make_server: Make) -> None:
    server = make_server(settings={"connections.max.idle.ms": "200"}).start()
    with Wire(server) as idle, Wire(server) as waiting:
        idle.api_versions()
        waiting.make_topic("idle")
        waiting.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("idle", 0, wait_ms=15_000))
        assert idle.is_closed_by_server()
        with Wire(server) as producer:
            producer.produce("idle", [b"still there"], acks=ACKS_ALL)
        assert fetched(waiting.receive().message) == [(0, b"still there")]


def test_a_client_that_does_not_read_its_answers_is_let_go_after_the_idle_time(make_server: Make) -> None:
    server = make_server(settings={"connections.max.idle.ms": "500"}).start()
    with Wire(server) as producer:
        producer.make_topic("unread")
        for _ in range(8):
            producer.produce("unread", [bytes(900_000)])
    with Wire(server, receive_buffer_bytes=8 << 10) as stuck:
        for _ in range(20):
            stuck.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("unread", 0, bytes_max=8 << 20))
        with Wire(server) as busy:
            deadline = time.monotonic() + SECONDS_MAX
            while "does not read its answers" not in server.said:
                busy.api_versions()
                assert time.monotonic() < deadline, server.said
            busy.api_versions()


def test_a_refused_batch_that_gets_no_answer_ends_the_connection(ottla_server: ServerProcess) -> None:
    with Wire(ottla_server) as wire:
        wire.make_topic("unanswered")
        request = produce_request("unanswered", [b"x"], acks=0, partition=7)
        wire.send(ApiKey.PRODUCE, PRODUCE_VERSION, request, expects_response=False)
        assert wire.is_closed_by_server()
    assert "unanswered-7 with acks=0 was refused" in ottla_server.said

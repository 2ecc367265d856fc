"""Many connections, consumers that do not read, producers that do not stop: all are served, memory stays bounded."""

from __future__ import annotations

import resource
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.clients.server_process import Make, ServerProcess
from tests.report import Report
from tests.server.wire import (
    FETCH_VERSION,
    METADATA_VERSION,
    PRODUCE_VERSION,
    Wire,
    fetch_request,
    fetched,
    produce_request,
)

IDLE_CONNECTIONS = 1_000
BUSY_CONNECTIONS = 50
REQUESTS_EACH = 40
MB = 1 << 20
SECTION = "server: memory under strain"

pytestmark = pytest.mark.slow


@contextmanager
def _descriptors(count: int) -> Iterator[None]:
    """Room for so many sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"this process may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_connections_and_fifty_busy_ones_are_all_served(
    make_server: Make, report_lines: Report
) -> None:
    server = make_server().start()
    before = server.resident_bytes
    with ExitStack() as stack:
        stack.enter_context(_descriptors(IDLE_CONNECTIONS + BUSY_CONNECTIONS + 200))
        idle = [stack.enter_context(Wire(server)) for _ in range(IDLE_CONNECTIONS)]
        for wire in idle:
            wire.api_versions()
        with_idle = server.resident_bytes
        idle[0].make_topic("busy")
        threads = [_Busy(server, number) for number in range(BUSY_CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [thread.failure for thread in threads] == [None] * BUSY_CONNECTIONS
        for wire in idle:
            wire.api_versions()
        values = [value or b"" for _, value in idle[0].fetch_all("busy")]
    assert sorted(values) == sorted(
        b"%d %d" % (worker, number) for worker in range(BUSY_CONNECTIONS) for number in range(REQUESTS_EACH)
    )
    report_lines.say(
        SECTION,
        f"start {before / MB:.0f} MB, with {IDLE_CONNECTIONS} idle connections {with_idle / MB:.0f} MB, "
        f"after {BUSY_CONNECTIONS} busy ones {server.resident_bytes / MB:.0f} MB",
    )
    assert with_idle - before < 40 * MB


class _Busy(threading.Thread):
    """One producer that waits for each acknowledgement and reads one record back."""

    def __init__(self, server: ServerProcess, number: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._number = number
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Wire(self._server) as wire:
                for number in range(REQUESTS_EACH):
                    value = b"%d %d" % (self._number, number)
                    offset = wire.produce("busy", [value])
                    response = wire.call(ApiKey.FETCH, FETCH_VERSION, fetch_request("busy", offset, bytes_max=1))
                    assert (offset, value) in fetched(response)
        except BaseException as failure:
            self.failure = failure


def test_consumers_that_stop_reading_cost_little_memory_and_hold_nobody_up(
    make_server: Make, report_lines: Report
) -> None:
    server = make_server().start()
    stuck_count, asks_each = 40, 12
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(server))
        wire.make_topic("slow")
        for _ in range(64):
            wire.produce("slow", [bytes(900_000)], acks=1)
        end = wire.end_offset("slow")
        before = server.resident_bytes
        stuck = [stack.enter_context(Wire(server, receive_buffer_bytes=4096)) for _ in range(stuck_count)]
        for consumer in stuck:
            # Each asks for 50 MB a dozen times over, and takes none of it: 24 GB are owed.
            for _ in range(asks_each):
                consumer.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("slow", 0, bytes_max=50 * MB))
        for consumer in stuck:
            # The server has begun to answer, so it has taken the requests in.
            assert select.select([consumer.socket], [], [], 20)[0]
        assert wire.produce("slow", [b"somebody else's"]) == end
        used = server.resident_bytes - before
        report_lines.say(SECTION, f"{stuck_count} consumers that do not read: {used / MB:.0f} MB more")
        assert used < stuck_count * 3 * MB
        # One that wakes up gets everything that it asked for.
        answers = [stuck[0].receive().message for _ in range(2)]
        assert [len(fetched(answer)) for answer in answers] == [58, 58]


def test_producers_faster_than_the_disk_are_slowed_down_and_memory_stays_bounded(
    make_server: Make, report_lines: Report
) -> None:
    settings = {"ottla.unsynced.bytes.max": str(4 * MB), "ottla.inflight.bytes.max": str(16 * MB)}
    server = make_server(settings=settings).start()
    producers, requests_each = 8, 60
    value = bytes(500_000)
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(producers)]
        for number, wire in enumerate(wires):
            wire.make_topic(f"fast-{number}")
        before = server.resident_bytes
        peak = _Peak(server)
        threads = [
            threading.Thread(target=_flood, args=(wire, f"fast-{number}", value, requests_each), daemon=True)
            for number, wire in enumerate(wires)
        ]
        for thread in threads:
            thread.start()
        for wire in wires:
            for _ in range(requests_each):
                wire.receive()
                peak.look()
        for thread in threads:
            thread.join(20)
        for number, wire in enumerate(wires):
            assert wire.end_offset(f"fast-{number}") == requests_each
    sent = producers * requests_each * len(value)
    report_lines.say(SECTION, f"{sent / MB:.0f} MB pushed without waiting: {(peak.bytes - before) / MB:.0f} MB more")
    assert peak.bytes - before < 64 * MB


def test_a_client_that_asks_for_much_and_reads_nothing_is_not_answered_ahead(
    make_server: Make, report_lines: Report
) -> None:
    server = make_server(settings={"num.partitions": "1000"}).start()
    with Wire(server) as wire, Wire(server, receive_buffer_bytes=4096) as greedy:
        wire.make_topic("wide")
        before = server.resident_bytes
        peak = _Peak(server)
        # Half a megabyte of requests that ask for more than half a gigabyte of answers.
        ask = b"".join(
            greedy.encode(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=None)) for _ in range(20_000)
        )
        greedy.socket.setblocking(False)
        _send_what_is_taken(greedy.socket, ask)
        for _ in range(50):
            wire.produce("wide", [b"served meanwhile"])
            peak.look()
        greedy.socket.settimeout(20)
        assert isinstance(greedy.receive().message, MetadataResponse)
    report_lines.say(SECTION, f"20000 questions without reading an answer: {(peak.bytes - before) / MB:.0f} MB more")
    assert peak.bytes - before < 40 * MB


class _Peak:
    """The most memory that the server was seen to use."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.bytes = 0

    def look(self) -> None:
        self.bytes = max(self.bytes, self._server.resident_bytes)


def _flood(wire: Wire, topic: str, value: bytes, count: int) -> None:
    for _ in range(count):
        wire.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request(topic, [value], timeout_ms=60_000))


def test_half_sent_requests_cannot_take_more_memory_than_the_limit(make_server: Make, report_lines: Report) -> None:
    server = make_server(settings={"ottla.inflight.bytes.max": str(8 * MB)}).start()
    before = server.resident_bytes
    with ExitStack() as stack:
        hoarders = [stack.enter_context(Wire(server)) for _ in range(30)]
        for hoarder in hoarders:
            hoarder.socket.setblocking(False)
            data = struct.pack(">i", 90 * MB) + bytes(4 * MB)
            _send_what_is_taken(hoarder.socket, data)
        with Wire(server) as wire:
            wire.make_topic("beside")
            assert wire.produce("beside", [b"served all the same"]) == 0
        used = server.resident_bytes - before
        report_lines.say(SECTION, f"30 requests that never end: {used / MB:.0f} MB more")
        assert used < 60 * MB


def _send_what_is_taken(connection: socket.socket, data: bytes) -> None:
    """Send until the other side has taken nothing for a while."""
    left = memoryview(data)
    while left and select.select([], [connection], [], 0.1)[1]:
        left = left[connection.send(left) :]

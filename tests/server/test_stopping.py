"""SIGTERM: what came is answered, what was acknowledged is there, and the next start has nothing to repair."""

from __future__ import annotations

import threading

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import ProduceResponse
from tests.clients.server_process import Make, ServerProcess
from tests.server.wire import FETCH_VERSION, PRODUCE_VERSION, Wire, base_offset, fetch_request, produce_request

pytestmark = pytest.mark.slow

CLEAN_FILE = "ottla.clean"
ROUNDS = 4


def test_an_idle_server_stops_at_once_with_exit_code_0_and_leaves_its_mark(make_server: Make) -> None:
    server = make_server().start()
    assert not (server.data / CLEAN_FILE).exists()
    assert server.terminate() == 0
    assert (server.data / CLEAN_FILE).exists()
    assert "Traceback" not in server.said


def test_requests_that_came_before_the_signal_are_answered(make_server: Make) -> None:
    server = make_server().start()
    with Wire(server) as wire:
        wire.make_topic("pending")
        sent = b"".join(
            wire.encode(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("pending", [b"%d" % number]))
            for number in range(200)
        )
        wire.socket.sendall(sent)
        # The first answer says that the server has begun to read; the others are on their way.
        answers = [base_offset(wire.receive().message)]
        assert server.terminate() == 0
        answers += _until_closed(wire)

    assert answers == list(range(len(answers)))
    server.start()
    with Wire(server) as wire:
        assert wire.end_offset("pending") >= len(answers)


def _until_closed(wire: Wire) -> list[int]:
    answers = []
    while True:
        try:
            answers.append(base_offset(wire.receive().message))
        except ConnectionError:
            return answers


def test_a_long_poll_does_not_hold_up_the_stop(make_server: Make) -> None:
    server = make_server().start()
    with Wire(server) as wire:
        wire.make_topic("poll")
        wire.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("poll", 0, wait_ms=600_000))
        # Answered in order, so the poll has been taken in when this is: it comes on another connection.
        with Wire(server) as other:
            other.api_versions()
        assert server.terminate() == 0
    assert (server.data / CLEAN_FILE).exists()


def test_a_stop_under_load_loses_nothing_and_the_next_start_scans_nothing(make_server: Make) -> None:
    server = make_server(settings={"log.segment.bytes": "100000"}).start()
    acknowledged: list[tuple[int, bytes]] = []
    for round_number in range(ROUNDS):
        with Wire(server) as wire:
            wire.make_topic("load")
        producers = [_Load(server, acks=acks, name=b"%d %d" % (round_number, acks)) for acks in (-1, 1)]
        for producer in producers:
            producer.start()
        for producer in producers:
            assert producer.warm.wait(20)
        assert server.terminate() == 0
        for producer in producers:
            producer.join(20)
            acknowledged += producer.acknowledged
        before = len(server.said)
        server.start()
        said = server.said[before:]
        assert "unclean" not in said.lower(), said
        assert "recover" not in said.lower(), said
    with Wire(server) as wire:
        found = dict(wire.fetch_all("load"))
    assert {offset: found.get(offset) for offset, _ in acknowledged} == dict(acknowledged)
    assert sorted(found) == list(range(len(found)))
    assert "Traceback" not in server.said


class _Load(threading.Thread):
    """Produces with a window of requests until the connection ends; remembers what was acknowledged."""

    def __init__(self, server: ServerProcess, *, acks: int, name: bytes) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._acks = acks
        self._name = name
        self.acknowledged: list[tuple[int, bytes]] = []
        self.warm = threading.Event()

    def run(self) -> None:
        sent: list[bytes] = []
        with Wire(self._server) as wire:
            try:
                while True:
                    value = b"%s %d" % (self._name, len(sent))
                    wire.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("load", [value], acks=self._acks))
                    sent.append(value)
                    if len(sent) > len(self.acknowledged) + 20:
                        self._take(wire, sent)
            except OSError:
                # The server has gone; what it had answered may still be in the socket.
                self.warm.set()
            try:
                while True:
                    self._take(wire, sent)
            except OSError:
                return

    def _take(self, wire: Wire, sent: list[bytes]) -> None:
        message = wire.receive().message
        assert isinstance(message, ProduceResponse)
        self.acknowledged.append((base_offset(message), sent[len(self.acknowledged)]))
        if len(self.acknowledged) == 300:
            self.warm.set()

"""How quickly a server is ready, which is reported, and how little it takes, which is promised.

Each figure is the best of a few, since other programs on the machine only ever make it worse. No time is
asserted: a busy machine would make it a lie.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.clients.server_process import Make, ServerProcess
from tests.report import Report
from tests.server.wire import PRODUCE_VERSION, Wire, base_offset, produce_request

RESIDENT_BYTES_MAX = 60 << 20
PARTITIONS = 1_000
TRIES = 5
SECTION = "server: start to ready"

pytestmark = pytest.mark.slow


def _start(server: ServerProcess) -> float:
    before = time.perf_counter()
    server.start()
    return time.perf_counter() - before


def test_a_server_on_an_empty_directory_is_small(make_server: Make, report_lines: Report) -> None:
    seconds, resident = [], []
    for number in range(TRIES):
        server = make_server(f"server{number}")
        seconds.append(_start(server))
        resident.append(server.resident_bytes)
        server.end()
    report_lines.say(SECTION, f"empty directory: {min(seconds):.2f} s, {min(resident) / (1 << 20):.0f} MB resident")
    assert min(resident) < RESIDENT_BYTES_MAX


def test_a_server_loads_no_columns(make_server: Make) -> None:
    server = make_server().start()
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")
    assert "uvloop" in loaded
    for name in ("pyarrow", "pyspark", "numpy"):
        assert name not in loaded


def test_a_thousand_partitions_are_served_after_a_clean_stop(make_server: Make, report_lines: Report) -> None:
    server = make_server().start()
    with Wire(server) as wire:
        topic = CreatableTopic(name="many", num_partitions=PARTITIONS, replication_factor=1)
        response = wire.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert isinstance(response, CreateTopicsResponse)
        assert [created.error_code for created in response.topics] == [0]
        for partition in range(PARTITIONS):
            wire.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("many", [bytes(1000)] * 5, partition=partition))
        assert [base_offset(wire.receive().message) for _ in range(PARTITIONS)] == [0] * PARTITIONS
    seconds = []
    for _ in range(3):
        assert server.terminate() == 0
        seconds.append(_start(server))
    report_lines.say(
        SECTION,
        f"{PARTITIONS} partitions after a clean stop: {min(seconds):.2f} s, "
        f"{server.resident_bytes / (1 << 20):.0f} MB resident",
    )
    with Wire(server) as wire:
        assert len(wire.fetch_all("many", partition=PARTITIONS - 1)) == 5

"""What may go wrong with a disk, a directory and a port: a message that says what to do, and nothing lost.

Some of it needs a small file system of its own, which only root can mount; those tests are skipped otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from tests.clients.server_process import Make, ServerProcess
from tests.server.wire import ACKS_ALL, FETCH_VERSION, PRODUCE_VERSION, Wire, fetch_request, fetched, produce_request

pytestmark = pytest.mark.slow

MB = 1 << 20
Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a file system of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted: list[Path] = []

    def make(name: str, options: str) -> Path:
        place = tmp_path / name
        place.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def _one_line(said: str) -> str:
    """The message of a start that failed: one line, and no trace of our own code."""
    lines = [line for line in said.splitlines() if line.strip() and " INFO " not in line]
    assert "Traceback" not in said, said
    assert len(lines) == 1, said
    return lines[0]


# --- starts that must fail -------------------------------------------------------------------------------------


def test_a_second_server_on_the_same_directory_is_told_who_has_it(make_server: Make) -> None:
    first = make_server("first").start()
    with Wire(first) as wire:
        wire.make_topic("kept")
        wire.produce("kept", [b"before"])
        second = make_server("second")
        second.data = first.data
        code, said = second.refused_start()
        assert wire.produce("kept", [b"after"]) == 1

    assert code == 1
    line = _one_line(said)
    assert f"process {first.process.pid} has this data directory open" in line
    assert "stop it or use another data directory" in line


def test_a_port_in_use_is_named_and_the_data_is_left_as_it_was(make_server: Make) -> None:
    first = make_server("first").start()
    second = make_server("second").start()
    with Wire(second) as wire:
        wire.make_topic("kept")
        wire.produce("kept", [b"value"])
    second.terminate()
    own_port, second.port = second.port, first.port
    code, said = second.refused_start()
    second.port = own_port
    second.start()

    assert code == 1
    assert f"{first.address}" in _one_line(said)
    assert "--listen" in _one_line(said)
    with Wire(second) as wire:
        assert wire.fetch_all("kept") == [(0, b"value")]


def test_a_read_only_directory_is_refused_with_its_name(make_server: Make, mount: Mount) -> None:
    server = make_server()
    server.data = mount("readonly", "ro,size=1m")
    code, said = server.refused_start()

    assert code == 1
    assert str(server.data) in _one_line(said)
    assert "ead-only" in _one_line(said)


def test_a_directory_of_somebody_else_is_refused_and_left_alone(make_server: Make) -> None:
    server = make_server()
    server.data.mkdir(parents=True)
    (server.data / "thesis.txt").write_text("years of work", encoding="utf-8")
    code, said = server.refused_start()

    assert code == 1
    assert str(server.data) in _one_line(said)
    assert [path.name for path in server.data.iterdir() if path.name != "ottla.lock"] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_directory_is_refused(make_server: Make) -> None:
    server = make_server()
    server.data.parent.mkdir(parents=True)
    server.data.write_text("not a directory", encoding="utf-8")
    code, said = server.refused_start()

    assert code == 1
    assert str(server.data) in _one_line(said)
    assert server.data.read_text(encoding="utf-8") == "not a directory"


# --- damage ------------------------------------------------------------------------------------------------


def _filled(server: ServerProcess, *topics: str, count: int = 200) -> None:
    """Topics of several segments each, with `count` records in batches of one, for all to see."""
    with Wire(server) as wire:
        for topic in topics:
            wire.make_topic(topic)
            for number in range(count):
                # The last one waits until all are on the disk: nobody is shown what is not.
                acks = 1 if number < count - 1 else ACKS_ALL
                wire.produce(topic, [b"%s %d " % (topic.encode(), number) + bytes(200)], acks=acks)


def _segments(server: ServerProcess, topic: str) -> list[Path]:
    return sorted((server.data / f"{topic}-0").glob("*.log"))


def test_a_damaged_segment_costs_one_part_of_one_topic_and_is_named(make_server: Make) -> None:
    server = make_server(settings={"log.segment.bytes": "10000"}).start()
    _filled(server, "damaged", "whole")
    with Wire(server) as wire:
        whole = wire.fetch_all("whole")
        before = wire.fetch_all("damaged")
    server.kill()
    victim = _segments(server, "damaged")[1]
    victim.write_bytes(victim.read_bytes()[:5000])
    server.start()

    assert victim.name in server.said
    with Wire(server) as wire:
        assert wire.fetch_all("whole") == whole
        left = wire.fetch_all("damaged")
        assert wire.produce("damaged", [b"it goes on"]) == 200
    assert set(left) < set(before)
    # All in front of the damage and all behind its segment is there.
    lost = {offset for offset, _ in before} - {offset for offset, _ in left}
    behind = int(_segments(server, "damaged")[2].stem)
    assert lost
    assert max(lost) == behind - 1
    assert sorted(lost) == list(range(min(lost), behind))


def test_a_segment_that_rots_while_the_server_runs_fails_only_who_reads_it(make_server: Make) -> None:
    server = make_server(settings={"log.segment.bytes": "10000"}).start()
    _filled(server, "rotten", "sound")
    victim = _segments(server, "rotten")[0]
    victim.write_bytes(bytes(number * 31 % 256 for number in range(victim.stat().st_size)))
    with Wire(server) as wire:
        for _ in range(3):
            response = wire.call(ApiKey.FETCH, FETCH_VERSION, fetch_request("rotten", 5, wait_ms=0, bytes_max=300))
            assert isinstance(response, FetchResponse)
            (data,) = response.responses[0].partitions
            assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # On the same connection: other places, the end of the log, other topics.
        response = wire.call(ApiKey.FETCH, FETCH_VERSION, fetch_request("rotten", 150, wait_ms=0))
        assert fetched(response)[0][0] == 150
        assert wire.produce("rotten", [b"the end of the log is not touched"]) == 200
        assert len(wire.fetch_all("sound")) == 200
    lines = [line for line in server.said.splitlines() if victim.name in line]
    assert len(lines) == 1, lines
    assert "Traceback" not in server.said


def test_lost_metadata_comes_back_from_the_partitions_with_a_warning(make_server: Make) -> None:
    server = make_server().start()
    _filled(server, "first", "second", count=5)
    server.kill()
    for path in server.data.iterdir():
        if path.is_file() and path.name.startswith("ottla.metadata"):
            path.unlink()
    leftovers = [path.name for path in server.data.iterdir() if path.is_file()]
    assert not any("metadata" in name for name in leftovers), leftovers
    server.start()
    with Wire(server) as wire:
        assert len(wire.fetch_all("first")) == 5
        assert len(wire.fetch_all("second")) == 5
    assert "WARNING" in server.said


# --- a full disk -------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_writes_loses_nothing_and_serves_again_when_there_is_room(
    make_server: Make, mount: Mount
) -> None:
    place = mount("small", "size=12m")
    server = make_server(settings={"log.segment.bytes": str(MB)})
    server.data = place / "data"
    server.start()
    ballast = place / "ballast"
    ballast.write_bytes(bytes(4 * MB))
    with Wire(server) as wire:
        wire.make_topic("full")
        acknowledged, refused = _fill(wire)
        assert refused.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert "full" in (refused.error_message or "")
        # Reading does not suffer, and what was acknowledged is there.
        assert wire.fetch_all("full")[: len(acknowledged)] == acknowledged
        ballast.unlink()
        _write_again(wire)
        found = wire.fetch_all("full")
    assert found[: len(acknowledged)] == acknowledged
    assert server.is_alive
    assert "the disk is full" in server.said
    assert "free some" in server.said
    server.kill()
    server.start()
    with Wire(server) as wire:
        assert wire.fetch_all("full") == found


def _fill(wire: Wire) -> tuple[list[tuple[int, bytes]], PartitionProduceResponse]:
    """Write until the first refusal: what was acknowledged, and the refusal."""
    acknowledged: list[tuple[int, bytes]] = []
    while len(acknowledged) < 200:
        value = b"%d " % len(acknowledged) + bytes(100_000)
        response = wire.call(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("full", [value]))
        assert isinstance(response, ProduceResponse)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            return acknowledged, answer
        acknowledged.append((answer.base_offset, value))
    pytest.fail("the disk never got full")


def _write_again(wire: Wire) -> None:
    """A client that tries again, as clients do, until the server has found that there is room."""
    for _ in range(2_000):
        with suppress(AssertionError):
            wire.produce("full", [b"there is room again"])
            return
    pytest.fail("the server never found the room")


def test_a_start_on_a_full_disk_says_so(make_server: Make, mount: Mount) -> None:
    place = mount("small", "size=2m")
    server = make_server()
    server.data = place / "data"
    with suppress(OSError):
        (place / "ballast").write_bytes(bytes(4 * MB))
    assert shutil.disk_usage(place).free == 0
    code, said = server.refused_start()

    assert code == 1
    assert "No space left" in _one_line(said) or "full" in _one_line(said)

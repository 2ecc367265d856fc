"""Ranges of files on their way to a client: in memory, not in memory, and where the system cannot tell."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.file_range import FileRange
from ottla.errors import StorageFault
from ottla.partitions.sync_pool import Done, Job, run_job
from ottla.server.outbox import Outbox, Part
from ottla.storage.disk import OsDisk, OsFile

SIZE = 3_000_000


class _Runner:
    """Runs jobs on the loop's own threads, and remembers what they were."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def submit(self, job: Job, done: Done) -> None:
        self.jobs.append(type(job).__name__)
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, run_job, job).add_done_callback(lambda ended: done(ended.result()))

    def close(self) -> None:
        """There is nothing to end."""


class _BrokenFile(OsFile):
    """One whose disk does not read."""

    def read(self, *, position: int, size: int) -> bytes:
        raise StorageFault(self.path, f"read of {size} bytes at {position}")


class _Peer(asyncio.Protocol):
    """The broker's end of a connection, with an outbox on it."""

    def __init__(self, runner: _Runner) -> None:
        self.faults: list[str] = []
        self.outbox: Outbox | None = None
        self._runner = runner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=1, low=0)
        self.outbox = Outbox(transport, self._runner, self.faults.append, lambda: None)

    def pause_writing(self) -> None:
        assert self.outbox is not None
        self.outbox.pause()

    def resume_writing(self) -> None:
        assert self.outbox is not None
        self.outbox.resume()


async def _pass_on(runner: _Runner, answers: list[list[Part]], *, size: int) -> tuple[bytes, list[str]]:
    """What a client gets of these, up to `size` bytes or the first fault, and the faults."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, peer = await loop.create_connection(lambda: _Peer(runner), sock=ours)
    assert peer.outbox is not None
    for answer in answers:
        peer.outbox.send(answer)
    got = bytearray()
    while len(got) < size and not peer.faults:
        try:
            got += await asyncio.wait_for(loop.sock_recv(theirs, 1 << 20), 0.2)
        except TimeoutError:
            continue
    transport.abort()
    theirs.close()
    await loop.shutdown_default_executor()
    return bytes(got), peer.faults


@pytest.fixture
def content() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> OsFile:
    path = tmp_path / "records"
    path.write_bytes(content)
    return OsDisk().open(str(path))


def _forget(file: OsFile) -> None:
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _answers(file: OsFile) -> tuple[list[list[Part]], list[tuple[int, int]]]:
    """Ranges of all sizes, one after the other and here and there, with heads between them."""
    chance = random.Random(2)
    places, at = [], 0
    while at < SIZE:
        size = min(chance.choice((1, 4_097, 70_000, 300_000, 900_000)), SIZE - at)
        places.append((at, size))
        at += size
    places += [(start, chance.randrange(1, SIZE - start)) for start in chance.sample(range(SIZE - 1), 4)]
    ranges = [FileRange(file, position=start, size=size) for start, size in places]
    return [[b"head", each, b"tail"] for each in ranges], places


def _expected(content: bytes, places: list[tuple[int, int]]) -> bytes:
    return b"".join(b"head" + content[start : start + size] + b"tail" for start, size in places)


def test_what_is_not_in_memory_arrives_whole_and_in_order(file: OsFile, content: bytes) -> None:
    answers, places = _answers(file)
    expected = _expected(content, places)
    _forget(file)
    runner = _Runner()
    got, faults = asyncio.run(_pass_on(runner, answers, size=len(expected)))
    assert faults == []
    assert got == expected
    assert "_WarmUp" in runner.jobs
    assert "_AskAhead" in runner.jobs
    assert "_ColdRead" not in runner.jobs


def test_what_is_in_memory_costs_no_thread(file: OsFile, content: bytes) -> None:
    answers, places = _answers(file)
    runner = _Runner()
    got, _ = asyncio.run(_pass_on(runner, answers, size=len(_expected(content, places))))
    assert got == _expected(content, places)
    assert runner.jobs == []


def test_where_the_system_cannot_tell_what_is_in_memory_a_thread_reads(
    file: OsFile, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "preadv", _refuse(errno.EOPNOTSUPP))
    answers, places = _answers(file)
    runner = _Runner()
    got, faults = asyncio.run(_pass_on(runner, answers, size=len(_expected(content, places))))
    assert faults == []
    assert got == _expected(content, places)
    assert set(runner.jobs) == {"_ColdRead"}


def test_a_file_system_that_takes_no_advice_is_read_all_the_same(
    file: OsFile, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, places = _answers(file)
    _forget(file)
    monkeypatch.setattr(os, "posix_fadvise", _refuse(errno.EINVAL))
    got, faults = asyncio.run(_pass_on(_Runner(), answers, size=len(_expected(content, places))))
    assert faults == []
    assert got == _expected(content, places)


def test_a_disk_that_fails_is_told_once(file: OsFile) -> None:
    _forget(file)
    broken = _BrokenFile(file.path, descriptor=file.fileno(), size=SIZE)
    answer: list[Part] = [b"head", FileRange(broken, position=0, size=SIZE)]
    _, faults = asyncio.run(_pass_on(_Runner(), [answer], size=SIZE))
    assert len(faults) == 1
    assert "records" in faults[0]


def test_a_file_that_is_shorter_than_promised_is_told(file: OsFile) -> None:
    _forget(file)
    answer: list[Part] = [FileRange(file, position=SIZE - 1_000, size=200_000)]
    _, faults = asyncio.run(_pass_on(_Runner(), [answer], size=200_000))
    assert len(faults) == 1
    assert f"ends before byte {SIZE + 199_000}" in faults[0]


def _refuse(code: int) -> Callable[..., int]:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return refuse

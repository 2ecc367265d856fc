"""What only the operating system's disk can show: descriptors, full disks, locks between processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.errors import DataDirectoryLocked, DiskFull, StorageFault
from ottla.records.batch import Buffer
from ottla.storage import disk as disk_module
from ottla.storage.disk import OsDisk, OsFile


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Let the system refuse to grow files beyond a size, as it refuses on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_finds_no_space_leaves_nothing_behind(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a.log"), create=True)
    file.append([b"x" * 6000])
    # The system takes 2192 of these bytes and refuses the rest.
    with file_size_limit(8192), pytest.raises(DiskFull, match="append failed"):
        file.append([b"y" * 1000, b"z" * 4000])
    assert file.size == 6000
    assert (tmp_path / "a.log").read_bytes() == b"x" * 6000


def test_the_log_goes_on_after_a_full_disk_as_if_nothing_had_been_written(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a.log"), create=True)
    file.append([b"first"])
    with file_size_limit(8), pytest.raises(DiskFull):
        file.append([b"refused"])
    file.append([b"second"])
    assert (tmp_path / "a.log").read_bytes() == b"firstsecond"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_refused_write_that_cannot_be_cut_off_is_a_fault_and_not_a_full_disk() -> None:
    # A device takes no truncate, so what was written of the refused bytes cannot be taken back.
    file = OsDisk().open("/dev/full")
    with pytest.raises(StorageFault, match="cutting off a write") as caught:
        file.append([b"x"])
    assert type(caught.value) is StorageFault


def test_a_fault_says_what_failed_where_and_why(tmp_path: Path) -> None:
    path = str(tmp_path / "missing.log")
    with pytest.raises(StorageFault) as caught:
        OsDisk().open(path)
    assert str(caught.value) == f"{path}: open failed: [Errno 2] No such file or directory: '{path}'"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_short_write_is_carried_on_until_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only a signal or two gigabytes make a real file write short, so the system call is made to stop early.
    def stop_early(descriptor: int, parts: Sequence[Buffer]) -> int:
        return os.write(descriptor, b"".join(parts)[:5])

    monkeypatch.setattr(os, "writev", stop_early)
    file = OsDisk().open(str(tmp_path / "a.log"), create=True)
    file.append([b"abc", b"", bytearray(b"defg"), memoryview(b"hi")])
    assert (tmp_path / "a.log").read_bytes() == b"abcdefghi"
    assert file.size == 9


def test_a_short_read_is_carried_on_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread

    def stop_early(descriptor: int, size: int, position: int) -> bytes:
        return pread(descriptor, min(size, 4), position)

    monkeypatch.setattr(os, "pread", stop_early)
    (tmp_path / "a.log").write_bytes(b"abcdefghij")
    file = OsDisk().open(str(tmp_path / "a.log"))
    assert file.read(position=1, size=6) == b"bcdefg"
    assert file.read(position=1, size=60) == b"bcdefghij"


def test_one_append_is_one_system_call_without_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev
    seen: list[Sequence[Buffer]] = []

    def record(descriptor: int, parts: Sequence[Buffer]) -> int:
        seen.append(parts)
        return writev(descriptor, parts)

    monkeypatch.setattr(os, "writev", record)
    parts: list[Buffer] = [b"prefix", memoryview(b"x" * 65536)]
    OsDisk().open(str(tmp_path / "a.log"), create=True).append(parts)
    assert len(seen) == 1
    assert seen[0] is parts


def test_the_descriptor_reads_what_the_file_holds_and_is_not_inherited(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a.log"), create=True)
    file.append([b"abc"])
    assert os.pread(file.fileno(), 10, 0) == b"abc"
    assert not os.get_inheritable(file.fileno())


def test_closing_gives_the_descriptor_back(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a.log"), create=True)
    descriptor = file.fileno()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_handle_that_nobody_holds_closes_itself(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "a.log"), create=True)
    descriptor = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_second_close_does_not_close_somebody_elses_descriptor(tmp_path: Path) -> None:
    disk = OsDisk()
    first = disk.open(str(tmp_path / "a.log"), create=True)
    first.close()
    # The system gives the lowest free number, so this one takes the place of the closed one.
    second: OsFile = disk.open(str(tmp_path / "b.log"), create=True)
    first.close()
    second.append([b"still open"])
    assert (tmp_path / "b.log").read_bytes() == b"still open"


def test_the_size_is_the_true_one_at_the_opening(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * 77)
    assert OsDisk().open(str(tmp_path / "a.log")).size == 77


_HOLD_LOCK = """
import sys
from ottla.storage.disk import OsDisk
lock = OsDisk().lock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_another_process_is_kept_out_until_this_one_dies_however_it_dies(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    source = os.path.dirname(os.path.dirname(os.path.dirname(disk_module.__file__)))
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        try:
            with pytest.raises(DataDirectoryLocked, match=f"process {holder.pid} has"):
                OsDisk().lock(path)
        finally:
            holder.kill()
    OsDisk().lock(path).release()


def test_the_space_of_a_file_without_a_name_is_given_back_in_pieces(tmp_path: Path) -> None:
    removed, kept = (OsDisk().open(str(tmp_path / name), create=True) for name in ("removed", "kept"))
    for file in (removed, kept):
        file.append([bytes(3 * disk_module.FREED_BYTES)])
    watching = os.open(tmp_path / "removed", os.O_RDONLY)
    OsDisk().remove(str(tmp_path / "removed"))
    removed.close()
    kept.close()
    assert os.fstat(watching).st_size == disk_module.FREED_BYTES
    os.close(watching)
    assert (tmp_path / "kept").stat().st_size == 3 * disk_module.FREED_BYTES

"""The SQLite store's own promises: durable, refusing what is damaged or foreign, and one commit for many changes."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ottla.errors import DamagedStore, DataDirectoryLocked, DiskFull, StorageFault, UnsupportedStore
from ottla.metadata.local_store import LocalStore
from ottla.metadata.salvage import salvage
from ottla.metadata.store import Commit, Event
from tests.metadata import committer

WAIT_S = 60
KILLS = int(os.environ.get("METADATA_KILLS", "10"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ottla.metadata.db")


def _filled(path: str, count: int = 400) -> None:
    store = LocalStore.open(path)
    store.commit(Commit({f"key/{n:04}": b"value %04d " % n * 10 for n in range(count)}))
    store.close()


def _edit(path: str, edit: Callable[[bytearray], None]) -> None:
    data = bytearray(Path(path).read_bytes())
    edit(data)
    Path(path).write_bytes(data)


def _execute(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_what_was_committed_is_there_after_closing_and_opening(path: str) -> None:
    _filled(path)

    store = LocalStore.open(path)
    loaded = store.load()
    store.close()

    assert (loaded.revision, len(loaded.entries)) == (1, 400)


def test_a_closed_store_is_one_file(path: str) -> None:
    _filled(path)

    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_an_open_store_maps_no_shared_memory(path: str) -> None:
    store = LocalStore.open(path)
    store.commit(Commit({"a": b""}))
    names = os.listdir(os.path.dirname(path))
    store.close()

    assert not any(name.endswith("-shm") for name in names)


def test_a_second_owner_is_refused_while_the_first_has_it_open(path: str) -> None:
    store = LocalStore.open(path)

    with pytest.raises(DataDirectoryLocked, match=path):
        LocalStore.open(path)

    store.close()
    LocalStore.open(path).close()


def test_changes_that_come_while_a_commit_waits_share_the_next_one(path: str) -> None:
    store = LocalStore.open(path)
    first_is_told, go_on = threading.Event(), threading.Event()

    def hold(event: Event) -> None:
        if event.revision == 1:
            first_is_told.set()
            go_on.wait(WAIT_S)

    store.watch(hold)
    futures = [store.submit(Commit({"first": b""}))]
    first_is_told.wait(WAIT_S)
    futures += [store.submit(Commit({f"{n}": b""})) for n in range(100)]
    seen: list[int] = []
    futures[1].add_done_callback(lambda _: seen.append(_revision_on_disk(path)))
    go_on.set()
    futures[-1].result(WAIT_S)
    store.close()

    # When the first of them was answered, the last one was already durable.
    assert seen == [101]


def _revision_on_disk(path: str) -> int:
    """What a process that starts after a crash at this moment would find."""
    copy = path + ".copy"
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            Path(copy + suffix).write_bytes(Path(path + suffix).read_bytes())
    with closing(sqlite3.connect(copy)) as connection:
        (revision,) = connection.execute("SELECT revision FROM ottla_store").fetchone()
        return int(revision)


def test_a_listener_that_fails_does_not_stop_the_store(path: str) -> None:
    store = LocalStore.open(path)

    def fail(event: Event) -> None:
        raise RuntimeError("a mistake in a listener")

    store.watch(fail)

    assert [store.commit(Commit({"a": b""})) for _ in range(2)] == [1, 2]
    store.close()


def test_a_full_disk_refuses_the_change_and_the_store_goes_on(path: str) -> None:
    store = LocalStore.open(path, pages_max=20)

    with pytest.raises(DiskFull, match=path):
        store.commit(Commit({"big": bytes(200_000)}))

    assert store.load().entries == {}
    assert store.commit(Commit({"small": b""})) == 1
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_a_fault_with_the_path(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(StorageFault, match=str(tmp_path)):
        LocalStore.open(str(tmp_path / "store"))

    tmp_path.chmod(0o700)


def test_a_directory_that_is_missing_is_a_fault_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="nowhere"):
        LocalStore.open(str(tmp_path / "nowhere" / "store"))


def _zero_header(data: bytearray) -> None:
    data[:100] = bytes(100)


def _zero_page(data: bytearray) -> None:
    data[4 * 4096 : 5 * 4096] = bytes(4096)


def _cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def _flip_value(data: bytearray) -> None:
    data[data.index(b"value 0200") + 5] ^= 1


def _replace(data: bytearray) -> None:
    data[:] = b"this is no database\n" * 500


@pytest.mark.parametrize("damage", [_zero_header, _zero_page, _cut, _flip_value, _replace])
def test_a_damaged_file_is_refused_with_its_path(path: str, damage: Callable[[bytearray], None]) -> None:
    _filled(path)
    _edit(path, damage)

    with pytest.raises(DamagedStore, match=path):
        LocalStore.open(path)


@pytest.mark.parametrize(
    "statement", ["DROP TABLE entries", "DROP TABLE ottla_store", "DELETE FROM ottla_store", "CREATE TABLE x (y)"]
)
def test_a_database_with_other_tables_is_refused(path: str, statement: str) -> None:
    _filled(path)
    _execute(path, statement)

    with pytest.raises(DamagedStore, match=path):
        LocalStore.open(path)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_store_of_another_format_is_refused_but_not_called_damaged(path: str, version: int) -> None:
    _filled(path)
    _execute(path, f"UPDATE ottla_store SET format = {version}")

    with pytest.raises(UnsupportedStore, match="run the version that wrote it"):
        LocalStore.open(path)


def test_an_empty_file_is_a_new_store(path: str) -> None:
    Path(path).touch()

    store = LocalStore.open(path)

    assert store.load() == (0, {})
    store.close()


@pytest.mark.parametrize("damage", [_zero_page, _flip_value])
def test_most_of_a_damaged_store_can_still_be_read(path: str, damage: Callable[[bytearray], None]) -> None:
    _filled(path)
    _edit(path, damage)
    before = Path(path).read_bytes()

    found = salvage(path)

    assert len(found) > 300
    assert all(value == b"value %s " % key[4:].encode() * 10 for key, value in found.items())
    assert Path(path).read_bytes() == before


def test_nothing_can_be_read_of_what_is_no_database(path: str) -> None:
    Path(path).write_bytes(b"nothing of use")

    assert salvage(path) == {}


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_every_acknowledged_commit_whole(path: str) -> None:
    chance = random.Random(4)
    for _ in range(KILLS):
        acknowledged = _run_and_kill(path, after=chance.randrange(1, 200))
        store = LocalStore.open(path)
        revision, entries = store.load()
        store.close()
        last = int(entries["last"].value)
        numbered = {int(key.removeprefix("left/")) for key in entries if key.startswith("left/")}

        assert last >= acknowledged
        assert revision == last
        assert numbered == set(range(1, last + 1))
        assert all(entries[f"left/{n}"] == entries[f"right/{n}"] == (b"%d" % n, n) for n in numbered)
        assert [key for key in entries if key.startswith("passing/")] == [f"passing/{last}"]


def _run_and_kill(path: str, *, after: int) -> int:
    """Let the program acknowledge so many commits, kill it, and return the last number that it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, committer.__file__, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
    return int([line for line in lines if line.endswith(b"\n")][-1])

"""What every disk promises, checked on the operating system's and on the one in memory alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.errors import DataDirectoryLocked, StorageFault
from ottla.storage.disk import PARTS_MAX, Disk, OsDisk
from ottla.storage.memory_disk import MemoryDisk


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else MemoryDisk(seed=1)


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    path = str(tmp_path / "root")
    disk.make_directory(path)
    return path


def put(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.append([data])
    file.close()


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(position=0, size=file.size)
    finally:
        file.close()


def test_appended_parts_stand_at_the_end_in_order(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"one", bytearray(b"two")])
    file.append([memoryview(b"-three-")[1:-1]])
    assert file.read(position=0, size=100) == b"onetwothree"


def test_size_follows_appends_and_truncates(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    sizes = [file.size]
    file.append([b"12345", b"678"])
    sizes.append(file.size)
    file.truncate(3)
    sizes.append(file.size)
    file.append([b"x"])
    sizes.append(file.size)
    assert sizes == [0, 8, 3, 4]
    assert disk.size(f"{root}/a.log") == 4


def test_a_truncated_file_keeps_its_beginning_and_grows_from_there(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"12345678"])
    file.truncate(3)
    file.append([b"abc"])
    assert file.read(position=0, size=100) == b"123abc"


def test_a_truncate_cannot_lengthen_a_file(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"123"])
    with pytest.raises(ValueError, match="cannot cut 3 bytes to 4"):
        file.truncate(4)


def test_more_parts_than_one_system_call_takes_are_all_written(disk: Disk, root: str) -> None:
    parts = [b"%d," % number for number in range(2 * PARTS_MAX + 7)]
    file = disk.open(f"{root}/a.log", create=True)
    file.append(parts)
    assert file.read(position=0, size=1_000_000) == b"".join(parts)
    assert file.size == len(b"".join(parts))


@pytest.mark.parametrize("parts", [[], [b""], [b"", b""]])
def test_an_append_of_nothing_changes_nothing(disk: Disk, root: str, parts: list[bytes]) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"abc"])
    file.append(parts)
    assert file.read(position=0, size=100) == b"abc"
    assert file.size == 3


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 3, b"abc"), (2, 3, b"cde"), (4, 10, b"e"), (5, 1, b""), (9, 1, b""), (1, 0, b"")],
)
def test_a_read_is_short_only_at_the_end(disk: Disk, root: str, position: int, size: int, expected: bytes) -> None:
    put(disk, f"{root}/a.log", b"abcde")
    assert disk.open(f"{root}/a.log").read(position=position, size=size) == expected


def test_a_read_before_the_beginning_is_a_fault(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a.log", b"abcde")
    with pytest.raises(StorageFault):
        disk.open(f"{root}/a.log").read(position=-1, size=1)


def test_creating_a_file_that_is_there_keeps_its_content(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a.log", b"abc")
    file = disk.open(f"{root}/a.log", create=True)
    assert file.size == 3


def test_an_open_file_of_another_handle_shows_its_appends(disk: Disk, root: str) -> None:
    writer = disk.open(f"{root}/a.log", create=True)
    reader = disk.open(f"{root}/a.log")
    writer.append([b"abc"])
    assert reader.read(position=0, size=10) == b"abc"


@pytest.mark.parametrize("path", ["missing.log", "missing/a.log"])
def test_opening_a_missing_file_is_a_fault_with_its_path(disk: Disk, root: str, path: str) -> None:
    with pytest.raises(StorageFault, match="open failed") as caught:
        disk.open(f"{root}/{path}")
    assert caught.value.path == f"{root}/{path}"


def test_a_file_cannot_be_created_in_a_missing_directory(disk: Disk, root: str) -> None:
    with pytest.raises(StorageFault):
        disk.open(f"{root}/missing/a.log", create=True)


def test_a_directory_cannot_be_opened_as_a_file(disk: Disk, root: str) -> None:
    with pytest.raises(StorageFault):
        disk.open(root, create=True)


def test_a_closed_file_may_be_closed_again_but_not_used(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"abc"])
    file.close()
    file.close()
    with pytest.raises(StorageFault):
        file.append([b"x"])
    with pytest.raises(StorageFault):
        file.read(position=0, size=1)
    with pytest.raises(StorageFault):
        file.sync()
    with pytest.raises(StorageFault):
        file.truncate(0)


def test_names_are_sorted_and_hold_files_and_directories(disk: Disk, root: str) -> None:
    put(disk, f"{root}/b", b"")
    put(disk, f"{root}/.c", b"")
    disk.make_directory(f"{root}/a/below")
    assert disk.names(root) == [".c", "a", "b"]


def test_listing_a_missing_directory_or_a_file_is_a_fault(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a.log", b"")
    for path in (f"{root}/missing", f"{root}/a.log"):
        with pytest.raises(StorageFault, match="list failed"):
            disk.names(path)


def test_only_a_file_has_a_size(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a.log", b"12345")
    disk.make_directory(f"{root}/below")
    paths = ("a.log", "below", "missing", "a.log/x", "missing/x")
    assert [disk.size(f"{root}/{path}") for path in paths] == [5, None, None, None, None]


def test_only_a_directory_is_a_directory(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a.log", b"12345")
    disk.make_directory(f"{root}/below")
    paths = ("a.log", "below", "below/", "missing", "a.log/x")
    assert [disk.is_directory(f"{root}/{path}") for path in paths] == [False, True, True, False, False]


def test_a_directory_is_made_with_those_above_it_and_kept_when_there(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/a/b/c")
    put(disk, f"{root}/a/b/c/x.log", b"kept")
    disk.make_directory(f"{root}/a/b/c")
    assert content(disk, f"{root}/a/b/c/x.log") == b"kept"


@pytest.mark.parametrize("path", ["a.log", "a.log/below"])
def test_a_directory_cannot_be_made_where_a_file_is(disk: Disk, root: str, path: str) -> None:
    put(disk, f"{root}/a.log", b"")
    with pytest.raises(StorageFault):
        disk.make_directory(f"{root}/{path}")


def test_a_renamed_file_replaces_the_one_of_that_name(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"new")
    put(disk, f"{root}/b", b"old")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.names(root) == ["b"]
    assert content(disk, f"{root}/b") == b"new"


def test_a_directory_is_renamed_with_all_that_is_in_it(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/a")
    put(disk, f"{root}/a/x.log", b"kept")
    disk.rename(f"{root}/a", f"{root}/b")
    assert content(disk, f"{root}/b/x.log") == b"kept"
    assert disk.names(root) == ["b"]


def test_a_directory_takes_the_place_of_an_empty_one_only(disk: Disk, root: str) -> None:
    for name in ("a", "empty", "full/x"):
        disk.make_directory(f"{root}/{name}")
    with pytest.raises(StorageFault):
        disk.rename(f"{root}/a", f"{root}/full")
    disk.rename(f"{root}/a", f"{root}/empty")
    assert disk.names(root) == ["empty", "full"]


def test_a_file_and_a_directory_cannot_replace_each_other(disk: Disk, root: str) -> None:
    put(disk, f"{root}/file", b"")
    disk.make_directory(f"{root}/directory")
    with pytest.raises(StorageFault):
        disk.rename(f"{root}/file", f"{root}/directory")
    with pytest.raises(StorageFault):
        disk.rename(f"{root}/directory", f"{root}/file")


def test_renaming_to_the_same_name_keeps_the_file(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"kept")
    disk.rename(f"{root}/a", f"{root}/a")
    assert content(disk, f"{root}/a") == b"kept"


def test_renaming_what_is_missing_is_a_fault(disk: Disk, root: str) -> None:
    with pytest.raises(StorageFault, match="rename"):
        disk.rename(f"{root}/missing", f"{root}/b")


def test_a_rename_stays_in_its_directory(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"")
    disk.make_directory(f"{root}/below")
    with pytest.raises(ValueError, match="stays in its directory"):
        disk.rename(f"{root}/a", f"{root}/below/a")


def test_an_open_file_survives_its_renaming_and_its_removal(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a", create=True)
    file.append([b"abc"])
    disk.rename(f"{root}/a", f"{root}/b")
    file.append([b"def"])
    disk.remove(f"{root}/b")
    assert file.read(position=0, size=10) == b"abcdef"
    assert disk.names(root) == []


def test_removing_a_missing_file_or_directory_is_fine(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"")
    for path in ("a", "a", "missing/x"):
        disk.remove(f"{root}/{path}")
    disk.remove_directory(f"{root}/missing")
    assert disk.names(root) == []


def test_a_directory_is_not_removed_as_a_file_nor_a_file_as_a_directory(disk: Disk, root: str) -> None:
    put(disk, f"{root}/file", b"")
    disk.make_directory(f"{root}/directory")
    with pytest.raises(StorageFault):
        disk.remove(f"{root}/directory")
    with pytest.raises(StorageFault):
        disk.remove_directory(f"{root}/file")


def test_a_directory_is_removed_with_all_that_is_in_it(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/a/b")
    put(disk, f"{root}/a/x.log", b"x")
    put(disk, f"{root}/a/b/y.log", b"y")
    disk.remove_directory(f"{root}/a")
    assert disk.names(root) == []


def test_syncing_changes_nothing_that_can_be_seen(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"abc"])
    file.sync()
    disk.sync_directory(root)
    assert content(disk, f"{root}/a.log") == b"abc"


def test_syncing_a_missing_directory_is_a_fault(disk: Disk, root: str) -> None:
    with pytest.raises(StorageFault):
        disk.sync_directory(f"{root}/missing")


def test_a_lock_is_held_by_one_and_the_refusal_names_the_holder(disk: Disk, root: str) -> None:
    disk.lock(f"{root}/x.lock")
    with pytest.raises(DataDirectoryLocked, match=f"process {os.getpid()} has this data directory open; stop it or"):
        disk.lock(f"{root}/x.lock")


def test_a_released_lock_can_be_taken_again_and_releasing_twice_does_not_free_it(disk: Disk, root: str) -> None:
    first = disk.lock(f"{root}/x.lock")
    first.release()
    second = disk.lock(f"{root}/x.lock")
    first.release()
    with pytest.raises(DataDirectoryLocked):
        disk.lock(f"{root}/x.lock")
    second.release()


def test_the_lock_file_holds_the_process_number_and_stays_when_released(disk: Disk, root: str) -> None:
    disk.lock(f"{root}/x.lock").release()
    assert content(disk, f"{root}/x.lock") == b"%d\n" % os.getpid()

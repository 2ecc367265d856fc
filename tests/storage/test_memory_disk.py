"""How a disk in memory loses its power, fills up and fails.

What chance decides is shown over many seeds: an outcome that must be possible has to turn up, and one
that must not be possible may never.
"""

from __future__ import annotations

import errno
import io

import pytest

from ottla.errors import DiskFull, StorageFault
from ottla.storage.memory_disk import Crash, MemoryDisk, MemoryFile, Moment

SEEDS = range(300)


def make(seed: int, *, synced: bytes = b"") -> tuple[MemoryDisk, MemoryFile]:
    """A disk with a durable file `/d/a.log`."""
    disk = MemoryDisk(seed)
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.open("/d/a.log", create=True)
    file.append([synced])
    file.sync()
    disk.sync_directory("/d")
    return disk, file


def after_crash(disk: MemoryDisk) -> bytes:
    disk.crash()
    return disk.files()["/d/a.log"]


def outcomes_of_one_unsynced_write(synced: bytes, written: bytes) -> set[bytes]:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed, synced=synced)
        file.append([written])
        found.add(after_crash(disk))
    return found


def test_synced_bytes_survive_every_crash() -> None:
    for seed in SEEDS:
        disk, file = make(seed, synced=b"safe")
        file.append([b"more"])
        assert after_crash(disk).startswith(b"safe")


def test_an_unsynced_write_may_be_lost_kept_torn_or_zeroed() -> None:
    kept_or_torn = {b"safe" + b"xyz"[:size] for size in range(4)}
    zeroed = {b"safe\0\0\0", b"safex\0\0", b"safexy\0", b"safe\0yz", b"safe\0\0z"}
    assert outcomes_of_one_unsynced_write(b"safe", b"xyz") == kept_or_torn | zeroed


def test_a_later_write_may_survive_an_earlier_one_and_the_hole_reads_as_zeros() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed, synced=b"safe")
        file.append([b"12"])
        file.append([b"34"])
        found.add(after_crash(disk))
    assert {b"safe", b"safe12", b"safe1234", b"safe\0\x0034", b"safe1\x0034"} <= found


def test_an_unsynced_truncate_has_happened_or_not() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed, synced=b"12345")
        file.truncate(2)
        found.add(after_crash(disk))
    assert found == {b"12345", b"12"}


def test_what_was_written_after_a_truncate_is_not_there_when_the_truncate_is_not() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed, synced=b"12345")
        file.truncate(2)
        file.append([b"x"])
        found.add(after_crash(disk))
    assert found == {b"12345", b"12", b"12x", b"12\0"}


def test_a_synced_truncate_stays() -> None:
    for seed in SEEDS:
        disk, file = make(seed, synced=b"12345")
        file.truncate(2)
        file.sync()
        assert after_crash(disk) == b"12"


def test_a_file_whose_name_was_not_synced_may_be_gone_although_its_bytes_were() -> None:
    found = set()
    for seed in SEEDS:
        disk, _ = make(seed)
        file = disk.open("/d/new.log", create=True)
        file.append([b"bytes"])
        file.sync()
        disk.crash()
        found.add(disk.files().get("/d/new.log"))
    assert found == {None, b"bytes"}


def test_an_unsynced_rename_is_whole_or_not_at_all() -> None:
    found = set()
    for seed in SEEDS:
        disk, _ = make(seed, synced=b"old")
        fresh = disk.open("/d/b.log", create=True)
        fresh.append([b"new"])
        fresh.sync()
        disk.sync_directory("/d")
        disk.rename("/d/b.log", "/d/a.log")
        disk.crash()
        found.add(tuple(sorted(disk.files().items())))
    assert found == {(("/d/a.log", b"new"),), (("/d/a.log", b"old"), ("/d/b.log", b"new"))}


def test_a_synced_rename_stays() -> None:
    for seed in SEEDS:
        disk, _ = make(seed, synced=b"x")
        disk.rename("/d/a.log", "/d/b.log")
        disk.sync_directory("/d")
        disk.crash()
        assert disk.files() == {"/d/b.log": b"x"}


def test_of_one_directory_the_first_unsynced_changes_survive_in_order() -> None:
    found = set()
    for seed in SEEDS:
        disk, _ = make(seed)
        for name in ("1", "2", "3"):
            disk.open(f"/d/{name}", create=True)
        disk.remove("/d/a.log")
        disk.crash()
        found.add(" ".join(disk.names("/d")))
    assert found == {"a.log", "1 a.log", "1 2 a.log", "1 2 3 a.log", "1 2 3"}


def test_two_directories_do_not_wait_for_each_other() -> None:
    found = set()
    for seed in SEEDS:
        disk = MemoryDisk(seed)
        for name in ("/c", "/d"):
            disk.make_directory(name)
        disk.sync_directory("/")
        disk.open("/c/first", create=True)
        disk.open("/d/second", create=True)
        disk.crash()
        found.add((len(disk.names("/c")), len(disk.names("/d"))))
    assert found == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_an_unsynced_directory_may_be_gone_with_all_that_is_in_it() -> None:
    found = set()
    for seed in SEEDS:
        disk = MemoryDisk(seed)
        disk.make_directory("/d")
        file = disk.open("/d/a.log", create=True)
        file.sync()
        disk.sync_directory("/d")
        disk.crash()
        found.add(disk.is_directory("/d"))
    assert found == {True, False}


def test_a_directory_half_removed_may_come_back_with_some_of_its_files() -> None:
    found = set()
    for seed in SEEDS:
        disk, _ = make(seed)
        disk.open("/d/b.log", create=True)
        disk.sync_directory("/d")
        disk.remove_directory("/d")
        disk.crash()
        found.add(" ".join(disk.names("/d")) if disk.is_directory("/d") else "gone")
    assert found == {"gone", "a.log b.log", "b.log", ""}


def test_a_second_crash_without_a_change_between_changes_nothing() -> None:
    for seed in SEEDS:
        disk, file = make(seed, synced=b"safe")
        file.append([b"more"])
        disk.open("/d/b.log", create=True)
        disk.crash()
        first = disk.files()
        disk.crash()
        assert disk.files() == first


def test_the_same_seed_crashes_the_same_way() -> None:
    def run(seed: int) -> dict[str, bytes]:
        disk, file = make(seed)
        for number in range(20):
            file.append([b"%d" % number * 10])
            disk.open(f"/d/{number}", create=True)
        disk.crash()
        return disk.files()

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_a_handle_from_before_a_crash_fails_and_a_new_one_works() -> None:
    disk, file = make(0, synced=b"safe")
    disk.crash()
    with pytest.raises(StorageFault, match="crashed under this file"):
        file.read(position=0, size=1)
    with pytest.raises(StorageFault, match="crashed under this file"):
        file.append([b"x"])
    with pytest.raises(StorageFault, match="crashed under this file"):
        file.sync()
    file.close()
    assert disk.open("/d/a.log").read(position=0, size=4) == b"safe"


def test_a_killed_process_loses_no_bytes_but_its_handles_and_locks() -> None:
    disk, file = make(0)
    disk.lock("/d/x.lock")
    file.append([b"not synced"])
    disk.kill()
    disk.lock("/d/x.lock")
    assert disk.files()["/d/a.log"] == b"not synced"
    with pytest.raises(StorageFault):
        file.sync()


def test_what_a_killed_process_left_unsynced_a_later_crash_may_still_take() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed)
        file.append([b"x"])
        disk.kill()
        found.add(after_crash(disk))
    assert found == {b"", b"x", b"\0"}


def test_after_a_failed_sync_the_bytes_are_read_but_a_later_sync_does_not_save_them() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed, synced=b"safe")
        file.append([b"x"])
        disk.fail_next("sync", ".log", errno.EIO)
        with pytest.raises(StorageFault, match="Input/output error"):
            file.sync()
        assert file.read(position=0, size=10) == b"safex"
        file.sync()
        found.add(after_crash(disk))
    assert found == {b"safe", b"safex", b"safe\0"}


def test_what_is_written_after_a_failed_sync_is_saved_by_the_next_one() -> None:
    for seed in SEEDS:
        disk, file = make(seed, synced=b"safe")
        file.append([b"lost"])
        disk.fail_next("sync", ".log", errno.EIO)
        with pytest.raises(StorageFault):
            file.sync()
        file.append([b"kept"])
        file.sync()
        assert after_crash(disk).endswith(b"kept")


def test_a_sync_without_space_is_a_fault_and_not_a_refusal() -> None:
    disk, file = make(0)
    disk.fail_next("sync", "", errno.ENOSPC)
    with pytest.raises(StorageFault) as caught:
        file.sync()
    assert type(caught.value) is StorageFault


def test_a_full_disk_refuses_the_append_and_keeps_nothing_of_it() -> None:
    disk, file = make(0, synced=b"12345")
    disk.capacity_bytes = 8
    file.append([b"678"])
    with pytest.raises(DiskFull):
        file.append([b"9"])
    assert disk.files() == {"/d/a.log": b"12345678"}


def test_space_comes_back_when_files_go() -> None:
    disk, file = make(0, synced=b"12345")
    disk.open("/d/b.log", create=True).append([b"abc"])
    disk.capacity_bytes = disk.used_bytes()
    disk.remove("/d/b.log")
    file.append([b"678"])
    assert disk.used_bytes() == 8


def test_an_injected_lack_of_space_keeps_nothing_and_an_injected_fault_some() -> None:
    kept = set()
    for seed in SEEDS:
        disk, file = make(seed)
        disk.fail_next("append", ".log", errno.ENOSPC)
        with pytest.raises(DiskFull):
            file.append([b"abc"])
        assert disk.files()["/d/a.log"] == b""
        disk.fail_next("append", ".log", errno.EIO)
        with pytest.raises(StorageFault):
            file.append([b"abc"])
        kept.add(disk.files()["/d/a.log"])
    assert kept == {b"", b"a", b"ab", b"abc"}


def test_a_fault_strikes_only_its_operation_its_paths_and_as_often_as_told() -> None:
    disk, file = make(0, synced=b"abc")
    other = disk.open("/d/a.index", create=True)
    disk.fail_next("read", ".log", errno.EIO, times=2)
    other.read(position=0, size=1)
    file.append([b"d"])
    for _ in range(2):
        with pytest.raises(StorageFault, match="read failed"):
            file.read(position=0, size=1)
    assert file.read(position=3, size=1) == b"d"


def test_a_healed_disk_fails_no_more_and_has_space_again() -> None:
    disk, file = make(0, synced=b"abc")
    disk.fail_next("append", ".log", errno.EIO, times=9)
    disk.capacity_bytes = 3
    disk.heal()
    file.append([b"d"])
    assert disk.files()["/d/a.log"] == b"abcd"


def test_a_failed_rename_has_not_happened() -> None:
    disk, _ = make(0)
    disk.fail_next("rename", "a.log", errno.EIO)
    with pytest.raises(StorageFault):
        disk.rename("/d/a.log", "/d/b.log")
    assert disk.names("/d") == ["a.log"]


def test_the_hook_hears_of_every_change_by_operation_and_kind_of_file() -> None:
    heard: list[tuple[str, Moment]] = []
    disk = MemoryDisk()
    disk.on_operation = lambda operation, moment: heard.append((operation, moment))
    disk.make_directory("/d")
    file = disk.open("/d/00000000000000000000.log.cleaned", create=True)
    file.append([b"x"])
    file.sync()
    file.truncate(0)
    disk.rename("/d/00000000000000000000.log.cleaned", "/d/00000000000000000000.log")
    disk.rename("/d/00000000000000000000.log", "/d/leader-epoch-checkpoint")
    disk.remove("/d/leader-epoch-checkpoint")
    disk.sync_directory("/d")
    disk.rename("/d", "/e")
    disk.remove_directory("/e")
    around = ("make-directory", "create .log.cleaned")
    expected = [(operation, moment) for operation in around for moment in ("before", "after")]
    expected += [("append .log.cleaned", moment) for moment in ("before", "torn", "after")]
    later = (
        "sync .log.cleaned",
        "truncate .log.cleaned",
        "rename .log.cleaned to .log",
        "rename .log to leader-epoch-checkpoint",
        "remove leader-epoch-checkpoint",
        "sync-directory",
        "rename-directory",
        "remove-directory",
    )
    expected += [(operation, moment) for operation in later for moment in ("before", "after")]
    assert heard == expected


def crash_at(disk: MemoryDisk, where: tuple[str, Moment]) -> None:
    def hook(operation: str, moment: Moment) -> None:
        if (operation, moment) == where:
            raise Crash

    disk.on_operation = hook


@pytest.mark.parametrize(("moment", "sizes"), [("before", {0}), ("torn", {0, 1, 2, 3}), ("after", {3})])
def test_a_process_killed_in_an_append_leaves_none_some_or_all_of_it(moment: Moment, sizes: set[int]) -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed)
        crash_at(disk, ("append .log", moment))
        with pytest.raises(Crash):
            file.append([b"abc"])
        disk.kill()
        found.add(len(disk.files()["/d/a.log"]))
    assert found == sizes


def test_an_append_whose_middle_was_watched_is_still_one_write() -> None:
    found = set()
    for seed in SEEDS:
        disk, file = make(seed)
        disk.on_operation = lambda operation, moment: None
        file.append([b"ab"])
        found.add(after_crash(disk))
    assert found == {b"", b"ab", b"a", b"\0\0", b"a\0", b"\0b"}


def test_once_a_hook_has_cut_the_power_nothing_works_until_the_crash_is_over() -> None:
    disk, file = make(0, synced=b"safe")
    crash_at(disk, ("sync .log", "before"))
    with pytest.raises(Crash):
        file.sync()
    with pytest.raises(StorageFault):
        file.append([b"x"])
    with pytest.raises(StorageFault):
        disk.open("/d/b.log", create=True)
    with pytest.raises(StorageFault):
        disk.remove("/d/a.log")
    disk.on_operation = None
    disk.crash()
    assert disk.files() == {"/d/a.log": b"safe"}


def test_a_file_in_memory_has_no_descriptor() -> None:
    _, file = make(0)
    with pytest.raises(io.UnsupportedOperation, match="no descriptor"):
        file.fileno()

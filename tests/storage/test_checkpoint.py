"""Small files that are replaced as a whole, and the text in two of them."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DiskFull, StorageFault
from ottla.storage.checkpoint import (
    DamagedCheckpoint,
    decode_epochs,
    decode_number,
    encode_epochs,
    encode_number,
    read_small,
    write_atomically,
)
from ottla.storage.epochs import EpochStart
from ottla.storage.memory_disk import Crash, MemoryDisk, Moment

PATH = "/d/leader-epoch-checkpoint"
EPOCHS = [EpochStart(0, 0), EpochStart(3, 17), EpochStart(4, 2**40)]


def disk_with_directory(seed: int = 0) -> MemoryDisk:
    disk = MemoryDisk(seed)
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def test_a_missing_checkpoint_reads_as_none() -> None:
    assert read_small(disk_with_directory(), PATH) is None


def test_what_was_written_is_read_back_and_leaves_no_other_file() -> None:
    disk = disk_with_directory()
    write_atomically(disk, PATH, b"old, and longer")
    write_atomically(disk, PATH, b"new")
    assert read_small(disk, PATH) == b"new"
    assert disk.names("/d") == ["leader-epoch-checkpoint"]


def test_an_unfinished_file_of_an_earlier_crash_does_not_leak_into_the_next() -> None:
    disk = disk_with_directory()
    disk.open(PATH + ".tmp", create=True).append([b"a longer leftover"])
    write_atomically(disk, PATH, b"new")
    assert read_small(disk, PATH) == b"new"


def points_of_a_write() -> list[tuple[str, Moment]]:
    disk = disk_with_directory()
    write_atomically(disk, PATH, b"old")
    points: list[tuple[str, Moment]] = []
    disk.on_operation = lambda operation, moment: points.append((operation, moment))
    write_atomically(disk, PATH, b"new")
    return points


@pytest.mark.parametrize("point", points_of_a_write())
def test_a_crash_anywhere_leaves_the_old_bytes_or_the_new_ones(point: tuple[str, Moment]) -> None:
    def hook(operation: str, moment: Moment) -> None:
        if (operation, moment) == point:
            raise Crash

    found = set()
    for seed in range(60):
        disk = disk_with_directory(seed)
        write_atomically(disk, PATH, b"old")
        disk.on_operation = hook
        with pytest.raises(Crash):
            write_atomically(disk, PATH, b"new")
        disk.crash()
        found.add(read_small(disk, PATH))
    assert found <= {b"old", b"new"}
    if point == ("sync-directory", "after"):
        assert found == {b"new"}


def test_a_finished_write_survives_every_crash() -> None:
    for seed in range(100):
        disk = disk_with_directory(seed)
        write_atomically(disk, PATH, b"old")
        write_atomically(disk, PATH, b"new")
        disk.crash()
        assert read_small(disk, PATH) == b"new"


@pytest.mark.parametrize(("operation", "error"), [("append", errno.ENOSPC), ("sync", errno.EIO), ("rename", errno.EIO)])
def test_a_disk_that_fails_leaves_the_old_bytes(operation: str, error: int) -> None:
    disk = disk_with_directory()
    write_atomically(disk, PATH, b"old")
    disk.fail_next(operation, "", error)
    with pytest.raises(DiskFull if error == errno.ENOSPC else StorageFault):
        write_atomically(disk, PATH, b"new")
    assert read_small(disk, PATH) == b"old"


def test_a_file_too_large_for_a_checkpoint_is_not_read() -> None:
    disk = disk_with_directory()
    write_atomically(disk, PATH, b"12345")
    assert read_small(disk, PATH, bytes_max=5) == b"12345"
    with pytest.raises(StorageFault, match="5 bytes are too many"):
        read_small(disk, PATH, bytes_max=4)


def test_epochs_are_written_as_kafka_writes_them() -> None:
    assert encode_epochs(EPOCHS) == b"0\n3\n0 0\n3 17\n4 1099511627776\n"


def test_no_epochs_are_an_empty_list_and_not_damage() -> None:
    assert encode_epochs([]) == b"0\n0\n"
    assert decode_epochs(b"0\n0\n") == []


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=20))
def test_epochs_survive_the_file(pairs: dict[int, int]) -> None:
    offsets = sorted(set(pairs.values()))
    entries = [EpochStart(*pair) for pair in zip(sorted(pairs), offsets, strict=False)]
    assert decode_epochs(encode_epochs(entries)) == entries


@pytest.mark.parametrize("size", range(len(encode_epochs(EPOCHS))))
def test_every_cut_off_epoch_file_is_damaged(size: int) -> None:
    with pytest.raises(DamagedCheckpoint):
        decode_epochs(encode_epochs(EPOCHS)[:size])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"1\n0\n", "version 1 is not 0"),
        (b"0\n2\n0 0\n", "2 lines"),
        (b"0\n0\n0 0\n", "0 lines"),
        (b"0\n1\n0 0 0\n", "two numbers"),
        (b"0\n1\n0\n", "two numbers"),
        (b"0 0\n0\n", "a line of their own"),
        (b"0\n1\n-1 0\n", "not numbers"),
        (b"0\n1\n1  0\n", "not numbers"),
        (b"0\n1\nx 0\n", "not numbers"),
        (b"0\n1\n0 \xb2\n", "not numbers"),
        (b"0\n1\n0 " + b"1" * 20 + b"\n", "not numbers"),
        (b"0\n2\n1 0\n1 5\n", "does not follow"),
        (b"0\n2\n1 5\n2 5\n", "does not follow"),
        (b"\0" * 12, "no end"),
    ],
)
def test_an_epoch_file_that_cannot_be_right_is_damaged(data: bytes, reason: str) -> None:
    with pytest.raises(DamagedCheckpoint, match=reason):
        decode_epochs(data)


@given(st.binary(max_size=64))
def test_any_bytes_are_epochs_or_damage(data: bytes) -> None:
    try:
        entries = decode_epochs(data)
    except DamagedCheckpoint:
        return
    assert decode_epochs(encode_epochs(entries)) == entries


def test_a_number_can_be_read_by_people() -> None:
    assert encode_number("log-start-offset", 42) == b"log-start-offset 1\nvalue 42\ncrc 2728102762\n"


@given(st.integers(0, 2**63 - 1))
def test_a_number_survives_the_file(value: int) -> None:
    assert decode_number("log-start-offset", encode_number("log-start-offset", value)) == value


def test_every_cut_off_number_is_damaged() -> None:
    whole = encode_number("log-start-offset", 1234)
    for size in range(len(whole)):
        with pytest.raises(DamagedCheckpoint):
            decode_number("log-start-offset", whole[:size])


def test_every_flipped_bit_of_a_number_is_damage() -> None:
    whole = encode_number("log-start-offset", 1234)
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            with pytest.raises(DamagedCheckpoint):
                decode_number("log-start-offset", bytes(flipped))


def test_a_number_of_another_kind_is_refused() -> None:
    with pytest.raises(DamagedCheckpoint, match="is not 'log-start-offset' of version 1"):
        decode_number("log-start-offset", encode_number("recovery-point", 1))

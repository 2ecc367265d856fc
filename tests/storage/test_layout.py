"""What a data directory looks like, and how one that is not ours is refused."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DataDirectoryLocked, InvalidTopicLayout, StorageFault
from ottla.storage.disk import OsDisk
from ottla.storage.layout import (
    DataDirectory,
    PartitionDirectory,
    PartitionMetadata,
    UnsupportedFormat,
    check_contiguous,
    decode_metadata,
    encode_format,
    encode_metadata,
    is_topic_name,
    parse_partition_name,
    partition_name,
)
from ottla.storage.memory_disk import Crash, MemoryDisk, Moment

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
METADATA = PartitionMetadata(TOPIC_ID)
DELETION_ID = UUID("ffeeddcc-bbaa-9988-7766-554433221100")


def put(disk: MemoryDisk, path: str, data: bytes = b"") -> None:
    disk.make_directory(path.rpartition("/")[0])
    file = disk.open(path, create=True)
    file.append([data])
    file.sync()


def refusal_of(disk: MemoryDisk) -> InvalidTopicLayout:
    with pytest.raises(InvalidTopicLayout) as caught:
        DataDirectory.open(disk, "/data")
    return caught.value


# Opening


def test_a_missing_directory_is_made_with_those_above_it() -> None:
    disk = MemoryDisk()
    DataDirectory.open(disk, "/var/lib/data")
    assert disk.files()["/var/lib/data/ottla.format"] == b"ottla-data-directory 1\ncrc 1878209455\n"
    assert disk.names("/var/lib/data") == ["ottla.format", "ottla.lock"]


def test_a_new_directory_survives_a_crash_right_after_its_opening() -> None:
    for seed in range(50):
        disk = MemoryDisk(seed)
        DataDirectory.open(disk, "/var/lib/data")
        disk.crash()
        assert disk.files()["/var/lib/data/ottla.format"] == encode_format()


def test_a_directory_that_a_crash_left_half_made_can_be_opened_again() -> None:
    points: list[tuple[str, Moment]] = []
    watched = MemoryDisk()
    watched.on_operation = lambda operation, moment: points.append((operation, moment))
    DataDirectory.open(watched, "/var/data")
    for seed in range(20):
        for count in range(1, len(points) + 1):
            disk = MemoryDisk(seed)
            crash_after(disk, count)
            with pytest.raises(Crash):
                DataDirectory.open(disk, "/var/data")
            disk.on_operation = None
            disk.crash()
            DataDirectory.open(disk, "/var/data")
            assert disk.files()["/var/data/ottla.format"] == encode_format()


def test_a_directory_that_a_killed_process_left_half_made_survives_a_crash_once_it_is_open() -> None:
    for seed in range(40):
        for count in range(1, 40):
            disk = MemoryDisk(seed)
            crash_after(disk, count)
            try:
                DataDirectory.open(disk, "/var/lib/data")
            except Crash:
                disk.kill()
            disk.on_operation = None
            disk.kill()
            DataDirectory.open(disk, "/var/lib/data")
            disk.crash()
            assert disk.files()["/var/lib/data/ottla.format"] == encode_format()


def crash_after(disk: MemoryDisk, count: int) -> None:
    """Cut the power when the hook is called for the `count`-th time."""
    left = count

    def hook(_operation: str, _moment: Moment) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Crash

    disk.on_operation = hook


def test_an_open_directory_cannot_be_opened_again_until_it_is_closed() -> None:
    disk = MemoryDisk()
    directory = DataDirectory.open(disk, "/data")
    with pytest.raises(DataDirectoryLocked, match=r"^/data/ottla\.lock: process"):
        DataDirectory.open(disk, "/data")
    directory.close()
    directory.close()
    DataDirectory.open(disk, "/data")


def test_an_opening_that_fails_does_not_leave_the_directory_locked() -> None:
    disk = MemoryDisk()
    disk.fail_next("append", "ottla.format.tmp", errno.EIO)
    with pytest.raises(StorageFault):
        DataDirectory.open(disk, "/data")
    DataDirectory.open(disk, "/data")
    assert disk.files()["/data/ottla.format"] == encode_format()


def test_it_opens_on_the_operating_system_too(tmp_path: Path) -> None:
    path = str(tmp_path / "above" / "data")
    directory = DataDirectory.open(OsDisk(), path)
    directory.create_partition("events", 0, METADATA)
    directory.close()
    again = DataDirectory.open(OsDisk(), path)
    assert again.partitions() == {PartitionDirectory("events", 0, f"{path}/events-0"): METADATA}
    again.close()


def test_a_relative_path_is_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DataDirectory.open(OsDisk(), "data").close()
    assert (tmp_path / "data" / "ottla.format").exists()


def test_what_other_programs_leave_in_a_mount_point_does_not_count_as_content() -> None:
    disk = MemoryDisk()
    disk.make_directory("/data/lost+found")
    disk.make_directory("/data/.Trash-1000")
    put(disk, "/data/.DS_Store")
    DataDirectory.open(disk, "/data")
    assert disk.size("/data/ottla.format") is not None


# Refusals


def test_a_file_in_place_of_the_directory_is_refused() -> None:
    disk = MemoryDisk()
    put(disk, "/data", b"")
    assert str(refusal_of(disk)) == "/data: is a file, a directory is expected"


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000042.timeindex"])
def test_flat_segments_are_refused_by_path(name: str) -> None:
    disk = MemoryDisk()
    put(disk, f"/data/{name}")
    refusal = refusal_of(disk)
    assert refusal.path == f"/data/{name}"
    assert "segment outside of any partition" in str(refusal)


def test_a_data_directory_of_kafka_is_refused() -> None:
    disk = MemoryDisk()
    put(disk, "/data/meta.properties", b"version=1\n")
    refusal = refusal_of(disk)
    assert refusal.path == "/data/meta.properties"
    assert "Apache Kafka" in str(refusal)


def test_partitions_without_our_format_file_are_refused() -> None:
    disk = MemoryDisk()
    put(disk, "/data/events-0/partition.metadata", encode_metadata(METADATA))
    refusal = refusal_of(disk)
    assert refusal.path == "/data/events-0"
    assert "without ottla.format" in str(refusal)


def test_a_refused_directory_is_left_as_it_was() -> None:
    disk = MemoryDisk()
    put(disk, "/data/holiday.jpg", b"sun")
    assert refusal_of(disk).path == "/data/holiday.jpg"
    assert disk.files() == {"/data/holiday.jpg": b"sun"}


@pytest.mark.parametrize(
    ("version", "advice"),
    [(0, "copy the topics into a new data directory"), (2, "at least as new as the one that wrote")],
)
def test_another_format_is_refused_with_what_to_do(version: int, advice: str) -> None:
    disk = MemoryDisk()
    put(disk, "/data/ottla.format", encode_format(version) + b"and fields that we do not know\n")
    before = disk.files()
    refusal = refusal_of(disk)
    assert isinstance(refusal, UnsupportedFormat)
    assert refusal.path == "/data/ottla.format"
    assert f"the data is in format {version}, this Ottla reads format 1" in str(refusal)
    assert advice in str(refusal)
    assert disk.files() == before


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 30, encode_format()[:-4], encode_format() + b"x", b"ottla-data-directory 1\n"]
)
def test_a_damaged_format_file_is_refused(data: bytes) -> None:
    disk = MemoryDisk()
    put(disk, "/data/ottla.format", data)
    refusal = refusal_of(disk)
    assert "/data/ottla.format: is damaged" in str(refusal)
    assert not isinstance(refusal, UnsupportedFormat)


# Partitions


def opened() -> tuple[MemoryDisk, DataDirectory]:
    disk = MemoryDisk()
    return disk, DataDirectory.open(disk, "/data")


def test_partitions_are_listed_by_topic_and_number() -> None:
    _, directory = opened()
    for topic, partition in (("b", 10), ("b", 2), ("a-b.c_d-7", 0)):
        directory.create_partition(topic, partition, METADATA)
    found = directory.listing()
    assert [(entry.topic, entry.partition) for entry in found.partitions] == [("a-b.c_d-7", 0), ("b", 2), ("b", 10)]
    assert found.problems == ()


def test_every_partition_says_which_topic_id_it_belongs_to() -> None:
    _, directory = opened()
    other = PartitionMetadata(DELETION_ID)
    directory.create_partition("a", 0, METADATA)
    directory.create_partition("b", 0, other)
    assert list(directory.partitions().values()) == [METADATA, other]


def test_what_is_nobodys_business_is_not_listed() -> None:
    disk, directory = opened()
    disk.make_directory("/data/lost+found")
    disk.make_directory("/data/.Trash-1000")
    disk.make_directory("/data/events-0.something-delete")
    put(disk, "/data/.hidden")
    assert directory.listing().partitions == ()
    assert directory.listing().problems == ()


def test_a_topic_whose_name_begins_with_a_dot_is_not_overlooked() -> None:
    _, directory = opened()
    directory.create_partition(".internal", 0, METADATA)
    assert [entry.topic for entry in directory.listing().partitions] == [".internal"]


@pytest.mark.parametrize("name", ["notes.txt", "events-x", "events-01", "events", "-0", "a b-0", "events-0.stray"])
def test_what_is_no_partition_is_a_problem_with_its_path(name: str) -> None:
    disk, directory = opened()
    disk.make_directory(f"/data/{name}")
    assert [problem.path for problem in directory.listing().problems] == [f"/data/{name}"]
    with pytest.raises(InvalidTopicLayout, match="does not belong in a data directory"):
        directory.partitions()


def test_a_file_named_like_a_partition_is_a_problem() -> None:
    disk, directory = opened()
    put(disk, "/data/events-0")
    with pytest.raises(
        InvalidTopicLayout, match=r"^/data/events-0: is a file, the directory of a partition is expected"
    ):
        directory.partitions()


def test_one_bad_entry_does_not_hide_the_good_ones() -> None:
    disk, directory = opened()
    directory.create_partition("good", 0, METADATA)
    put(disk, "/data/bad-0")
    assert [entry.topic for entry in directory.listing().partitions] == ["good"]


def test_a_partition_without_its_metadata_is_refused() -> None:
    disk, directory = opened()
    disk.make_directory("/data/events-0")
    with pytest.raises(InvalidTopicLayout, match=r"^/data/events-0/partition.metadata: is missing"):
        directory.partitions()


def test_a_partition_with_damaged_metadata_is_refused() -> None:
    disk, directory = opened()
    put(disk, "/data/events-0/partition.metadata", b"version: 0\n")
    with pytest.raises(InvalidTopicLayout, match=r"^/data/events-0/partition.metadata: is damaged"):
        directory.partitions()


def test_a_topic_without_its_middle_partition_is_refused() -> None:
    _, directory = opened()
    for partition in (0, 2):
        directory.create_partition("events", partition, METADATA)
    with pytest.raises(InvalidTopicLayout, match=r"^/data/events-1: is missing, although events-2 is there"):
        check_contiguous(directory.partitions())


def test_a_topic_without_its_first_partition_is_refused() -> None:
    with pytest.raises(InvalidTopicLayout, match=r"^/data/events-0: is missing"):
        check_contiguous([PartitionDirectory("events", 1, "/data/events-1")])


def test_whole_topics_are_accepted_in_any_order() -> None:
    check_contiguous([PartitionDirectory(topic, number, "") for topic in ("b", "a") for number in (2, 0, 1)])


# Creating and deleting


def crash_points(directory_change: str) -> int:
    disk, directory = opened()
    if directory_change == "delete":
        directory.create_partition("events", 0, METADATA)
    count = 0

    def hook(_operation: str, _moment: Moment) -> None:
        nonlocal count
        count += 1

    disk.on_operation = hook
    if directory_change == "delete":
        directory.delete_partition("events", 0, deletion_id=DELETION_ID)
    else:
        directory.create_partition("events", 0, METADATA)
    return count


def test_a_partition_is_created_once() -> None:
    _, directory = opened()
    assert directory.create_partition("events", 0, METADATA) == "/data/events-0"
    with pytest.raises(InvalidTopicLayout, match="is there already"):
        directory.create_partition("events", 0, METADATA)


def test_a_crash_during_creation_leaves_a_whole_partition_or_none() -> None:
    found = set()
    for seed in range(10):
        for count in range(1, crash_points("create") + 1):
            disk = MemoryDisk(seed)
            directory = DataDirectory.open(disk, "/data")
            crash_after(disk, count)
            with pytest.raises(Crash):
                directory.create_partition("events", 0, METADATA)
            disk.on_operation = None
            disk.crash()
            again = DataDirectory.open(disk, "/data")
            found.add(tuple(again.partitions().values()))
            assert set(disk.names("/data")) <= {"ottla.format", "ottla.lock", "events-0"}
    assert found == {(), (METADATA,)}


def test_a_created_partition_survives_every_crash() -> None:
    for seed in range(50):
        disk = MemoryDisk(seed)
        DataDirectory.open(disk, "/data").create_partition("events", 0, METADATA)
        disk.crash()
        assert list(DataDirectory.open(disk, "/data").partitions().values()) == [METADATA]


def test_a_deleted_partition_is_gone_with_its_files() -> None:
    disk, directory = opened()
    path = directory.create_partition("events", 0, METADATA)
    put(disk, f"{path}/00000000000000000000.log", b"x")
    directory.delete_partition("events", 0, deletion_id=DELETION_ID)
    assert disk.names("/data") == ["ottla.format", "ottla.lock"]


def test_a_crash_during_deletion_leaves_the_partition_whole_or_gone() -> None:
    found = set()
    for seed in range(10):
        for count in range(1, crash_points("delete") + 1):
            disk = MemoryDisk(seed)
            directory = DataDirectory.open(disk, "/data")
            path = directory.create_partition("events", 0, METADATA)
            put(disk, f"{path}/x.log", b"x")
            disk.sync_directory(path)
            crash_after(disk, count)
            with pytest.raises(Crash):
                directory.delete_partition("events", 0, deletion_id=DELETION_ID)
            disk.on_operation = None
            disk.crash()
            DataDirectory.open(disk, "/data")
            left = set(disk.files()) - {"/data/ottla.format", "/data/ottla.lock"}
            found.add(frozenset(left))
    assert found == {frozenset(), frozenset({"/data/events-0/partition.metadata", "/data/events-0/x.log"})}


def test_a_killed_deletion_is_whole_or_nothing_after_a_crash_too() -> None:
    found = set()
    for seed in range(20):
        for count in range(1, crash_points("delete") + 1):
            disk = MemoryDisk(seed)
            directory = DataDirectory.open(disk, "/data")
            path = directory.create_partition("events", 0, METADATA)
            put(disk, f"{path}/x.log", b"x")
            disk.sync_directory(path)
            crash_after(disk, count)
            with pytest.raises(Crash):
                directory.delete_partition("events", 0, deletion_id=DELETION_ID)
            disk.kill()
            # Dies again, this time with the power, while it opens.
            crash_after(disk, seed + 1)
            with suppress(Crash):
                DataDirectory.open(disk, "/data")
            disk.on_operation = None
            disk.crash()
            DataDirectory.open(disk, "/data")
            found.add(frozenset(set(disk.files()) - {"/data/ottla.format", "/data/ottla.lock"}))
    assert found == {frozenset(), frozenset({"/data/events-0/partition.metadata", "/data/events-0/x.log"})}


def test_a_partition_set_aside_stays_gone_and_its_files_go_at_the_next_opening() -> None:
    disk, directory = opened()
    directory.create_partition("events", 0, METADATA)
    aside = directory.set_aside("events", 0, deletion_id=DELETION_ID)
    assert aside == "/data/events-0.ffeeddccbbaa99887766554433221100-delete"
    assert directory.partitions() == {}
    disk.crash()
    assert disk.is_directory(aside)
    DataDirectory.open(disk, "/data")
    assert not disk.is_directory(aside)


def test_a_directory_that_only_looks_deleted_is_left_alone() -> None:
    disk, directory = opened()
    disk.make_directory("/data/precious-delete")
    directory.close()
    DataDirectory.open(disk, "/data")
    assert disk.is_directory("/data/precious-delete")


def test_the_longest_topic_can_be_created_and_deleted(tmp_path: Path) -> None:
    directory = DataDirectory.open(OsDisk(), str(tmp_path))
    topic = "t" * 249
    directory.create_partition(topic, 99999, METADATA)
    aside = directory.set_aside(topic, 99999, deletion_id=DELETION_ID)
    assert len(aside.rpartition("/")[2]) == 255
    directory.close()
    DataDirectory.open(OsDisk(), str(tmp_path)).close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ottla.format", "ottla.lock"]


# Names and metadata


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", ".a", "x" * 249, "-"])
def test_kafkas_topic_names_are_legal(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n", "a+b"])
def test_other_topic_names_are_not(name: str) -> None:
    assert not is_topic_name(name)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(is_topic_name), st.integers(0, 2**31 - 1))
def test_a_directory_name_tells_topic_and_partition(topic: str, partition: int) -> None:
    assert parse_partition_name(partition_name(topic, partition)) == (topic, partition)


@given(st.text(alphabet="ab.-019/ \n", max_size=12))
def test_only_names_that_we_would_give_are_partitions(name: str) -> None:
    found = parse_partition_name(name)
    assert found is None or partition_name(*found) == name


@pytest.mark.parametrize("name", ["a-2147483648", "a-00", "a-+1", "a--1 ", "a-", "..-0", "a-\N{SUPERSCRIPT TWO}"])
def test_a_number_that_no_partition_has_is_not_taken_for_one(name: str) -> None:
    assert parse_partition_name(name) is None


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("..", 0), ("a/b", 0), ("a", -1), ("a", 2**31)])
def test_no_directory_is_named_for_what_cannot_exist(topic: str, partition: int) -> None:
    with pytest.raises(ValueError, match="no directory can be named"):
        partition_name(topic, partition)


def test_metadata_is_written_as_kafka_writes_it() -> None:
    assert encode_metadata(METADATA) == b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n"


@given(st.uuids())
def test_metadata_survives_the_file(topic_id: UUID) -> None:
    metadata = PartitionMetadata(topic_id)
    assert decode_metadata(encode_metadata(metadata), "x") == metadata


def test_metadata_without_its_last_line_end_is_read_as_kafka_reads_it() -> None:
    assert decode_metadata(encode_metadata(METADATA)[:-1], "x") == METADATA


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
        b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_x\n",
        b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_\n",
        b"topic_id: ABEiM0RVZneImaq7zN3u_w\nversion: 0\n",
        b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n\0",
    ],
)
def test_metadata_that_cannot_be_right_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(InvalidTopicLayout) as caught:
        decode_metadata(data, "/data/a-0/partition.metadata")
    assert caught.value.path == "/data/a-0/partition.metadata"

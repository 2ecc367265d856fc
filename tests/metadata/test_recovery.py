"""Metadata at a start: from the store, from the directories when it is lost, and held against the directories."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from ottla.errors import InvalidConfig, InvalidTopicLayout, UnsupportedStore
from ottla.metadata.changes import (
    Change,
    Partition,
    PutBrokerConfigs,
    PutCluster,
    PutProducerIds,
    PutTopic,
    PutTopicConfigs,
    PutUnfinished,
    Topic,
    Unfinished,
    Work,
    encode,
)
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.metadata.judgement import STORE_FILE, HeldPartition
from ottla.metadata.local_store import LocalStore
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.recovery import (
    KEEP_EVERYTHING,
    PRODUCER_IDS_PER_MS,
    Owner,
    Restored,
    new_cluster_id,
    restore,
    restore_local,
)
from ottla.metadata.store import Commit
from ottla.storage.disk import OsDisk
from ottla.storage.layout import DataDirectory, PartitionMetadata
from ottla.storage.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000
NODE = 1
ON_NODE = Partition(NODE, 0, (NODE,), (NODE,))
CLUSTER = "AAAAAAAAAAAAAAAAAAAACQ"


def _id(number: int) -> UUID:
    return UUID(int=number)


@dataclass
class Place:
    """A data directory on the real disk, with whatever a test puts there."""

    path: str

    @contextmanager
    def opened(self) -> Iterator[DataDirectory]:
        directory = DataDirectory.open(OsDisk(), self.path)
        try:
            yield directory
        finally:
            directory.close()

    def make(self, name: str, *partitions: int, topic_id: UUID) -> None:
        with self.opened() as directory:
            for partition in partitions:
                directory.create_partition(name, partition, PartitionMetadata(topic_id))

    def write(self, *changes: Change) -> None:
        store = LocalStore.open(self.store)
        entries = dict(encode(change) for change in (PutCluster(CLUSTER), *changes))
        store.commit(Commit({key: value for key, value in entries.items() if value is not None}))
        store.close()

    @property
    def store(self) -> str:
        return os.path.join(self.path, STORE_FILE)

    def restore(self, owner: Owner | None = None) -> Restored:
        with self.opened() as directory:
            restored = restore_local(OsDisk(), directory, owner or Owner(NODE), now_ms=NOW_MS, new_id=lambda: _id(9))
        restored.store.close()
        return restored


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(str(tmp_path / "data"))
    with made.opened():
        pass
    return made


def _topic(name: str, count: int, number: int) -> Topic:
    return Topic(name, _id(number), (ON_NODE,) * count)


def _lose(place: Place) -> None:
    os.remove(place.store)


def _scribble(place: Place) -> None:
    Path(place.store).write_bytes(b"no database at all\n" * 100)


def _empty(place: Place) -> None:
    Path(place.store).write_bytes(b"")


def test_a_new_data_directory_gets_a_cluster_id_and_no_warning(place: Place) -> None:
    restored = place.restore()

    assert (restored.image.cluster_id, restored.image.topics, restored.warnings) == (CLUSTER, {}, ())
    assert restored.image.next_producer_id == 0


def test_the_cluster_id_stays_at_the_next_start(place: Place) -> None:
    place.restore(Owner(NODE, "chosen"))

    assert place.restore().image.cluster_id == "chosen"


def test_a_cluster_id_never_begins_with_a_dash() -> None:
    ids = iter([UUID(bytes=b"\xfb" * 16), UUID(int=9)])

    assert new_cluster_id(lambda: next(ids)) == CLUSTER


def test_what_the_store_holds_is_served_when_the_directories_fit(place: Place) -> None:
    place.make("orders", 0, 1, topic_id=_id(1))
    place.write(PutTopic(_topic("orders", 2, 1)), PutTopicConfigs("orders", {"retention.ms": "5"}))

    restored = place.restore()

    assert restored.image.topics == {"orders": _topic("orders", 2, 1)}
    assert restored.image.configs_of_topic("orders") == {"retention.ms": "5"}
    assert (restored.judgement.offline, restored.warnings) == ({}, ())


@pytest.mark.parametrize("harm", [_lose, _scribble, _empty])
def test_topics_come_back_from_their_directories_when_the_store_is_lost_or_damaged(
    place: Place, harm: Callable[[Place], None]
) -> None:
    place.make("orders", 0, 1, 2, topic_id=_id(1))
    place.make("a-b.c", 0, topic_id=_id(2))
    place.write(PutTopic(_topic("orders", 3, 1)), PutTopic(_topic("a-b.c", 1, 2)))
    harm(place)

    restored = place.restore()

    assert restored.image.topics == {"a-b.c": _topic("a-b.c", 1, 2), "orders": _topic("orders", 3, 1)}
    assert restored.judgement.offline == {}
    assert any("2 topic(s) came back" in warning for warning in restored.warnings)


def test_what_came_back_is_stored_and_the_next_start_has_nothing_to_warn_of(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))

    first, second = place.restore(), place.restore()

    assert first.warnings
    assert (second.warnings, second.image) == ((), first.image)


def test_a_damaged_store_is_set_aside_and_never_deleted(place: Place) -> None:
    place.restore()
    for _ in range(2):
        _scribble(place)
        place.restore()

    names = sorted(name for name in os.listdir(place.path) if "damaged" in name)
    assert names == [f"{STORE_FILE}.damaged.1", f"{STORE_FILE}.damaged.2"]
    assert Path(place.path, names[0]).read_bytes().startswith(b"no database at all")


def test_a_write_ahead_log_without_its_database_is_set_aside_too(place: Place) -> None:
    Path(place.store + "-wal").write_bytes(b"left behind")

    place.restore()

    assert Path(f"{place.store}.damaged.1-wal").read_bytes() == b"left behind"


def test_a_topic_whose_settings_are_lost_keeps_everything(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))

    assert place.restore().image.configs_of_topic("orders") == KEEP_EVERYTHING


def test_an_internal_topic_comes_back_compacted(place: Place) -> None:
    place.make(CONSUMER_OFFSETS, 0, topic_id=_id(1))

    assert place.restore().image.configs_of_topic(CONSUMER_OFFSETS)["cleanup.policy"] == "compact"


def test_producer_ids_go_on_beyond_any_that_were_given_out(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))

    assert place.restore().image.next_producer_id == NOW_MS * PRODUCER_IDS_PER_MS


def test_leader_epochs_go_on_where_the_log_has_been(place: Place) -> None:
    place.make("orders", 0, 1, topic_id=_id(1))
    Path(place.path, "orders-1", "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 100\n")

    assert [partition.leader_epoch for partition in place.restore().image.topic("orders").partitions] == [0, 7]


def test_settings_that_can_still_be_read_survive_the_damage(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))
    place.make("again", 0, topic_id=_id(3))
    place.write(
        PutTopic(_topic("orders", 1, 1)),
        PutTopicConfigs("orders", {"retention.ms": "5"}),
        PutTopic(_topic("again", 1, 2)),
        PutTopicConfigs("again", {"retention.ms": "6"}),
        PutBrokerConfigs("", {"message.max.bytes": "7"}),
        PutProducerIds(2**62),
        PutTopic(Topic("spoiled", _id(4), (ON_NODE,))),
    )
    data = bytearray(Path(place.store).read_bytes())
    data[data.index(b"topic/spoiled") + len("topic/spoiled") + 3] ^= 1
    Path(place.store).write_bytes(data)

    image = place.restore().image

    assert image.configs_of_topic("orders") == {"retention.ms": "5"}
    # The directory is of a later topic of this name, so the settings are not its own.
    assert image.configs_of_topic("again") == KEEP_EVERYTHING
    assert (image.cluster_id, image.next_producer_id) == (CLUSTER, 2**62)
    assert image.configs_of_cluster() == {"message.max.bytes": "7"}


def test_a_topic_that_was_being_deleted_does_not_come_back_with_the_damage(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))
    place.write(PutUnfinished(Unfinished(NODE, "orders", _id(1), Work.REMOVE, 0, 1)), PutTopic(_topic("spoiled", 1, 4)))
    data = bytearray(Path(place.store).read_bytes())
    data[data.index(b"topic/spoiled") + len("topic/spoiled") + 3] ^= 1
    Path(place.store).write_bytes(data)

    restored = place.restore()

    assert restored.image.topics == {}
    assert restored.judgement.to_remove == (HeldPartition("orders", 0, _id(1)),)


def _two_ids(place: Place) -> None:
    place.make("bad", 0, topic_id=_id(2))
    place.make("bad", 1, topic_id=_id(3))


def _gap(place: Place) -> None:
    place.make("bad", 0, 2, topic_id=_id(2))


def _without_metadata(place: Place) -> None:
    place.make("bad", 0, 1, topic_id=_id(2))
    os.remove(os.path.join(place.path, "bad-1", "partition.metadata"))


def _unreadable_metadata(place: Place) -> None:
    place.make("bad", 0, topic_id=_id(2))
    Path(place.path, "bad-0", "partition.metadata").write_bytes(b"\xff" * 50)


def _metadata_is_a_directory(place: Place) -> None:
    place.make("bad", 0, topic_id=_id(2))
    path = os.path.join(place.path, "bad-0", "partition.metadata")
    os.remove(path)
    os.mkdir(path)


@pytest.mark.parametrize("spoil", [_two_ids, _gap, _without_metadata, _unreadable_metadata, _metadata_is_a_directory])
def test_a_topic_that_contradicts_itself_stays_offline_and_the_others_are_served(
    place: Place, spoil: Callable[[Place], None]
) -> None:
    place.make("good", 0, topic_id=_id(1))
    spoil(place)

    restored = place.restore()

    assert list(restored.image.topics) == ["good"]
    assert list(restored.judgement.offline) == ["bad"]
    assert os.path.join(place.path, "bad-") in str(restored.judgement.offline["bad"])
    assert any("'bad' is offline" in warning for warning in restored.warnings)


def test_two_topics_with_one_id_are_both_offline(place: Place) -> None:
    place.make("good", 0, topic_id=_id(1))
    place.make("bad", 0, topic_id=_id(2))
    shutil.copytree(os.path.join(place.path, "bad-0"), os.path.join(place.path, "copy-0"))

    restored = place.restore()

    assert (list(restored.image.topics), sorted(restored.judgement.offline)) == (["good"], ["bad", "copy"])


def test_dot_names_and_lost_and_found_are_no_topics(place: Place) -> None:
    for name in (".hidden-0", "lost+found"):
        os.mkdir(os.path.join(place.path, name))

    restored = place.restore()

    assert (restored.image.topics, restored.judgement.offline, restored.warnings) == ({}, {}, ())


def test_a_file_that_does_not_belong_there_is_a_warning_and_no_more(place: Place) -> None:
    place.make("good", 0, topic_id=_id(1))
    place.restore()
    Path(place.path, "notes.txt").touch()

    restored = place.restore()

    assert restored.judgement.offline == {}
    assert ["notes.txt" in warning for warning in restored.warnings] == [True]


def test_a_missing_directory_takes_its_own_topic_offline_with_the_path(place: Place) -> None:
    place.make("good", 0, topic_id=_id(1))
    place.make("bad", 0, topic_id=_id(2))
    place.write(PutTopic(_topic("good", 1, 1)), PutTopic(_topic("bad", 2, 2)))

    offline = place.restore().judgement.offline

    assert {name: reason.path for name, reason in offline.items()} == {"bad": os.path.join(place.path, "bad-1")}
    assert isinstance(offline["bad"], InvalidTopicLayout)


@pytest.mark.parametrize(
    ("name", "partition", "number", "says"),
    [("new", 0, 7, "knows no topic"), ("good", 1, 1, "has 1 partitions"), ("good", 0, 7, "another topic of this name")],
)
def test_an_unknown_directory_takes_its_own_topic_offline(
    place: Place, name: str, partition: int, number: int, says: str
) -> None:
    place.make("fine", 0, topic_id=_id(5))
    if (name, partition) != ("good", 0):
        place.make("good", 0, topic_id=_id(1))
    place.make(name, partition, topic_id=_id(number))
    place.write(PutTopic(_topic("good", 1, 1)), PutTopic(_topic("fine", 1, 5)))

    offline = place.restore().judgement.offline

    assert list(offline) == [name]
    assert says in str(offline[name])


def test_a_creation_cut_short_by_a_crash_is_to_be_finished(place: Place) -> None:
    place.make("orders", 0, 1, topic_id=_id(1))
    place.write(PutTopic(_topic("orders", 4, 1)), PutUnfinished(Unfinished(NODE, "orders", _id(1), Work.PLACE, 1, 4)))

    judgement = place.restore().judgement

    assert judgement.to_place == (HeldPartition("orders", 2, _id(1)), HeldPartition("orders", 3, _id(1)))
    assert judgement.offline == {}


def test_a_directory_that_was_there_before_the_unfinished_work_is_missed(place: Place) -> None:
    place.make("orders", 1, topic_id=_id(1))
    place.write(PutTopic(_topic("orders", 2, 1)), PutUnfinished(Unfinished(NODE, "orders", _id(1), Work.PLACE, 1, 2)))

    assert list(place.restore().judgement.offline) == ["orders"]


def test_a_deletion_cut_short_by_a_crash_is_to_be_finished_although_the_name_is_taken_again(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))
    place.write(
        PutTopic(_topic("orders", 1, 2)),
        PutUnfinished(Unfinished(NODE, "orders", _id(1), Work.REMOVE, 0, 1)),
        PutUnfinished(Unfinished(NODE, "orders", _id(2), Work.PLACE, 0, 1)),
    )

    judgement = place.restore().judgement

    assert judgement.to_remove == (HeldPartition("orders", 0, _id(1)),)
    assert judgement.to_place == (HeldPartition("orders", 0, _id(2)),)
    assert judgement.offline == {}


def test_work_that_is_done_already_is_told(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))
    work = Unfinished(NODE, "orders", _id(1), Work.PLACE, 0, 1)
    place.write(PutTopic(_topic("orders", 1, 1)), PutUnfinished(work))

    assert place.restore().judgement.finished == (work,)


def test_a_data_directory_of_another_broker_is_refused(place: Place) -> None:
    place.make("orders", 0, topic_id=_id(1))
    place.write(PutTopic(_topic("orders", 1, 1)))

    with pytest.raises(InvalidConfig, match=r"of broker 1, none of node\.id=2"):
        place.restore(Owner(2))


def test_a_data_directory_of_another_cluster_is_refused(place: Place) -> None:
    place.restore()

    with pytest.raises(InvalidConfig, match=CLUSTER):
        place.restore(Owner(NODE, "other"))


def test_a_store_of_a_newer_version_stops_the_start_and_is_left_alone(place: Place) -> None:
    place.write()
    store = LocalStore.open(place.store)
    store.commit(Commit({"acl/1": b"{}"}))
    store.close()

    with pytest.raises(UnsupportedStore, match="acl/1"):
        place.restore()

    assert sorted(name for name in os.listdir(place.path) if name.startswith(STORE_FILE)) == [STORE_FILE]


def test_a_rebuilding_that_was_cut_short_is_done_again_on_the_memory_disk_and_store() -> None:
    disk = MemoryDisk()
    directory = DataDirectory.open(disk, "/data")
    directory.create_partition("orders", 0, PartitionMetadata(_id(1)))
    store = MemoryStore()

    first = restore(store, disk, directory, Owner(NODE), now_ms=NOW_MS, new_id=lambda: _id(9))
    after = restore(store.crash(), disk, directory, Owner(NODE), now_ms=NOW_MS, new_id=lambda: _id(8))

    assert after.image == first.image
    assert list(after.image.topics) == ["orders"]

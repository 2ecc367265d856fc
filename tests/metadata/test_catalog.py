"""The catalog: wishes are decided in order, true only when durable, and each is answered once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from ottla.config import Settings
from ottla.errors import (
    DiskFull,
    InvalidConfig,
    InvalidPartitionCount,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicLayout,
    MetadataBusy,
    MetadataConflict,
    OttlaError,
    TopicDeletionDisabled,
    TopicExists,
    TopicNotFound,
)
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.catalog import CONFLICTS_MAX, WISHES_WAITING_MAX, Catalog
from ottla.metadata.changes import EVERY_BROKER, Change, PutTopic, Topic, Work, encode
from ottla.metadata.configs import Alteration, Operation
from ottla.metadata.image import Image
from ottla.metadata.local_store import LocalStore
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Commit, MetadataStore
from ottla.metadata.topics import NewTopic

WAIT_S = 60


class Bench:
    """A catalog on a store, with an owner's thread that runs when it is told to."""

    def __init__(self, store: MetadataStore | None = None, *, offline: OttlaError | None = None, **flags: str) -> None:
        self.memory = store if isinstance(store, MemoryStore) else MemoryStore(held=True)
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.answers: list[object] = []
        ids = iter(UUID(int=number) for number in range(1, 100_000))
        self.catalog = Catalog(
            store or self.memory,
            node_id=1,
            settings=Settings.resolve(
                BROKER_CONFIGS, flags={name.replace("_", "."): text for name, text in flags.items()}
            ),
            post=self.posted.put,
            new_id=lambda: next(ids),
            offline={"offline": offline} if offline else {},
        )

    def run(self) -> None:
        """Let the owner's thread do all that was posted."""
        while not self.posted.empty():
            self.posted.get()()

    def settle(self) -> None:
        """Let owner and store go on until neither has anything to do."""
        self.run()
        for _ in range(1_000):
            self.memory.sync()
            if self.posted.empty():
                return
            self.run()
        raise AssertionError("the catalog does not come to rest")

    def answer(self, outcome: object) -> None:
        self.answers.append(outcome)

    def create(self, *names: str, partition_count: int = 1) -> None:
        self.catalog.create_topics([NewTopic(name, partition_count) for name in names], self.answers.extend)

    @property
    def kinds(self) -> list[type]:
        return [type(answer) for answer in self.answers]


def test_a_topic_is_there_and_answered_only_when_it_is_durable() -> None:
    bench = Bench()
    bench.create("orders")
    bench.run()

    assert (bench.answers, bench.catalog.image.topics) == ([], {})

    bench.settle()

    assert bench.answers == [bench.catalog.image.topic("orders")]


def test_of_fifty_wishes_for_one_name_one_wins() -> None:
    bench = Bench()
    for _ in range(50):
        bench.create("orders")

    bench.settle()

    assert bench.kinds.count(Topic) == 1
    assert bench.kinds.count(TopicExists) == 49
    assert list(bench.catalog.image.topics) == ["orders"]


def test_of_fifty_wishes_one_wins_whenever_they_come() -> None:
    bench = Bench()
    for number in range(50):
        bench.create("orders")
        if number % 3 == 0:
            bench.run()
        if number % 7 == 0:
            bench.memory.sync()

    bench.settle()

    assert (bench.kinds.count(Topic), bench.kinds.count(TopicExists)) == (1, 49)


def test_wishes_of_one_pass_share_a_commit() -> None:
    bench = Bench()
    for name in "abc":
        bench.create(name)

    bench.settle()

    assert (bench.catalog.image.revision, sorted(bench.catalog.image.topics)) == (1, ["a", "b", "c"])


def test_wishes_that_come_while_a_commit_is_under_way_share_the_next_one() -> None:
    bench = Bench()
    bench.create("first")
    bench.run()
    for name in "abc":
        bench.create(name)

    bench.settle()

    assert (bench.catalog.image.revision, len(bench.catalog.image.topics)) == (2, 4)


def test_a_request_for_many_topics_is_answered_once_with_an_outcome_for_each() -> None:
    bench = Bench()
    wanted = [NewTopic("a", 1), NewTopic("b", 0), NewTopic("twice"), NewTopic("c", 1, 2), NewTopic("twice")]
    answers: list[list[Topic | OttlaError]] = []

    bench.catalog.create_topics(wanted, answers.append)
    bench.settle()

    (outcomes,) = answers
    assert [type(outcome) for outcome in outcomes] == [
        Topic,
        InvalidPartitionCount,
        InvalidRequest,
        InvalidReplicationFactor,
        InvalidRequest,
    ]


def test_a_request_for_no_topics_is_answered() -> None:
    bench = Bench()
    answers: list[object] = []

    bench.catalog.create_topics([], answers.append)
    bench.settle()

    assert answers == [[]]


def test_a_check_without_creation_answers_as_a_creation_would_and_changes_nothing() -> None:
    bench = Bench()

    bench.catalog.create_topics([NewTopic("a", 3), NewTopic("a.b", 0)], bench.answers.extend, validate_only=True)
    bench.settle()

    assert bench.kinds == [Topic, InvalidPartitionCount]
    assert (bench.catalog.image.topics, bench.catalog.image.revision) == ({}, 0)


def test_a_wish_sees_those_before_it_in_the_same_pass() -> None:
    bench = Bench()
    bench.create("orders")
    bench.catalog.add_partitions("orders", 4, bench.answer)
    bench.catalog.delete_topic("orders", bench.answer)
    bench.catalog.add_partitions("orders", 5, bench.answer)

    bench.settle()

    assert bench.kinds == [Topic, Topic, Topic, TopicNotFound]
    assert (bench.catalog.image.topics, bench.catalog.image.revision) == ({}, 1)


def test_a_failed_commit_is_told_to_those_who_wanted_it_and_changes_nothing() -> None:
    bench = Bench()
    bench.memory.fail_next(DiskFull("store", "writing metadata"))
    bench.create("orders")

    bench.settle()

    assert bench.kinds == [DiskFull]
    assert bench.catalog.image.topics == {}


def test_a_refusal_that_rests_on_a_commit_which_fails_is_decided_anew() -> None:
    bench = Bench()
    bench.memory.fail_next(DiskFull("store", "writing metadata"))
    bench.create("orders")
    bench.create("orders")

    bench.settle()

    assert bench.kinds == [DiskFull, Topic]


def test_the_catalog_goes_on_after_a_failed_commit() -> None:
    bench = Bench()
    bench.memory.fail_next(DiskFull("store", "writing metadata"))
    bench.create("a")
    bench.settle()
    bench.create("b")

    bench.settle()

    assert bench.kinds == [DiskFull, Topic]


def _commit(*changes: Change, expected: dict[str, int] | None = None) -> Commit:
    entries = dict(encode(change) for change in changes)
    return Commit({key: value for key, value in entries.items() if value is not None}, expected=expected or {})


def test_a_topic_that_somebody_else_created_meanwhile_is_found_when_the_wish_is_decided_anew() -> None:
    bench = Bench()
    bench.create("orders")
    # The other's commit reaches the store first, but the news of it arrives after the wish was decided.
    other = Topic("orders", UUID(int=77), _some_topic().partitions)
    bench.memory.submit(_commit(PutTopic(other)))
    bench.run()

    bench.settle()

    assert bench.kinds == [TopicExists]
    assert bench.catalog.image.topic("orders").topic_id == UUID(int=77)


def _some_topic() -> Topic:
    bench = Bench()
    bench.create("some")
    bench.settle()
    return bench.catalog.image.topic("some")


def test_a_wish_that_always_conflicts_is_given_up() -> None:
    bench = Bench()
    for _ in range(CONFLICTS_MAX):
        bench.memory.fail_next(MetadataConflict("somebody was faster"))
    bench.create("orders")

    bench.settle()

    assert bench.kinds == [MetadataConflict]


def test_a_change_by_somebody_else_is_told_to_listeners() -> None:
    bench = Bench()
    heard: list[tuple[list[str], Sequence[Change]]] = []
    bench.catalog.listen(lambda image, changes: heard.append((list(image.topics), changes)))
    topic = _some_topic()

    bench.memory.commit(_commit(PutTopic(topic)))
    bench.settle()

    assert heard == [(["some"], [PutTopic(topic)])]


def test_listeners_hear_of_a_change_before_whoever_wished_for_it() -> None:
    bench = Bench()
    order: list[str] = []
    bench.catalog.listen(lambda image, changes: order.append("listener"))
    bench.catalog.create_topics([NewTopic("orders")], lambda outcomes: order.append("answer"))

    bench.settle()

    assert order == ["listener", "answer"]


def test_a_listener_may_wish_for_more() -> None:
    bench = Bench()

    def place(image: Image, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, PutTopic):
                bench.catalog.placed(change.topic.topic_id, bench.answer)

    bench.catalog.listen(place)
    bench.create("orders")
    bench.settle()

    assert bench.kinds == [Topic, type(None)]
    assert bench.catalog.image.unfinished == {}


def test_a_new_topic_has_directories_to_make_until_they_are_placed() -> None:
    bench = Bench()
    bench.create("orders", partition_count=3)
    bench.settle()
    (work,) = bench.catalog.image.unfinished.values()

    bench.catalog.placed(work.topic_id, bench.answer)
    bench.settle()

    assert (work.work, work.start, work.end) == (Work.PLACE, 0, 3)
    assert bench.catalog.image.unfinished == {}


def test_a_deleted_topic_has_directories_to_remove_until_they_are_gone() -> None:
    bench = Bench()
    bench.create("orders")
    bench.catalog.delete_topic("orders", bench.answer)
    bench.settle()
    (work,) = bench.catalog.image.unfinished.values()

    bench.catalog.removed(work.topic_id, bench.answer)
    bench.settle()

    assert work.work is Work.REMOVE
    assert bench.catalog.image.unfinished == {}


def test_a_recreated_topic_has_another_id_and_no_settings_of_the_old_one() -> None:
    bench = Bench()
    bench.catalog.create_topics([NewTopic("orders", configs={"retention.ms": "5"})], bench.answers.extend)
    bench.catalog.delete_topic("orders", bench.answer)
    bench.create("orders")

    bench.settle()

    old, _, new = bench.answers
    assert isinstance(old, Topic)
    assert isinstance(new, Topic)
    assert old.topic_id != new.topic_id
    assert bench.catalog.image.configs_of_topic("orders") == {}


def test_deletion_can_be_switched_off() -> None:
    bench = Bench(delete_topic_enable="false")
    bench.create("orders")
    bench.catalog.delete_topic("orders", bench.answer)

    bench.settle()

    assert bench.kinds == [Topic, TopicDeletionDisabled]


def test_a_name_whose_directories_cannot_be_served_is_taken() -> None:
    bench = Bench(offline=InvalidTopicLayout("/data/offline-0", "is strange"))
    bench.create("offline")

    bench.settle()

    assert bench.kinds == [TopicExists]
    assert "/data/offline-0" in str(bench.answers[0])


def test_a_topics_settings_take_effect_when_they_are_durable() -> None:
    bench = Bench()
    bench.create("orders")
    bench.settle()
    before = bench.catalog.topic_config("orders").log.retention_ms
    bench.catalog.alter_topic_configs("orders", [Alteration("retention.ms", Operation.SET, "5")], bench.answer)
    bench.run()

    assert bench.catalog.topic_config("orders").log.retention_ms == before

    bench.settle()

    assert bench.catalog.topic_config("orders").log.retention_ms == 5
    assert bench.answers[1:] == [None]


def test_a_replacement_of_a_topics_settings_forgets_the_others() -> None:
    bench = Bench()
    bench.catalog.create_topics([NewTopic("orders", configs={"retention.ms": "5"})], bench.answers.extend)
    bench.catalog.alter_topic_configs("orders", {"flush.ms": "6"}, bench.answer)

    bench.settle()

    assert bench.catalog.image.configs_of_topic("orders") == {"flush.ms": "6"}


@pytest.mark.parametrize(
    ("name", "config", "error"), [("orders", "bad.key", InvalidConfig), ("other", "flush.ms", TopicNotFound)]
)
def test_a_wrong_alteration_is_refused(name: str, config: str, error: type[OttlaError]) -> None:
    bench = Bench()
    bench.create("orders")
    bench.catalog.alter_topic_configs(name, [Alteration(config, Operation.SET, "5")], bench.answer)

    bench.settle()

    assert bench.kinds == [Topic, error]


def test_a_checked_alteration_changes_nothing() -> None:
    bench = Bench()
    bench.create("orders")
    alterations = [Alteration("flush.ms", Operation.SET, "5")]
    bench.catalog.alter_topic_configs("orders", alterations, bench.answer, validate_only=True)

    bench.settle()

    assert (bench.kinds, bench.catalog.image.configs_of_topic("orders")) == ([Topic, type(None)], {})


def test_two_appends_in_one_pass_both_count() -> None:
    bench = Bench()
    bench.catalog.alter_broker_configs(
        EVERY_BROKER, [Alteration("log.cleanup.policy", Operation.SUBTRACT, "delete")], bench.answer
    )
    for policy in ("compact", "delete"):
        bench.catalog.alter_broker_configs(
            EVERY_BROKER, [Alteration("log.cleanup.policy", Operation.APPEND, policy)], bench.answer
        )

    bench.settle()

    assert bench.answers == [None, None, None]
    assert bench.catalog.image.configs_of_cluster() == {"log.cleanup.policy": "compact,delete"}


def test_a_brokers_setting_reaches_the_topics_that_do_not_set_it() -> None:
    bench = Bench()
    bench.create("orders")
    bench.settle()
    before = bench.catalog.topic_config("orders").max_message_bytes

    bench.catalog.alter_broker_configs("1", [Alteration("message.max.bytes", Operation.SET, "5")], bench.answer)
    bench.settle()

    assert (before, bench.catalog.topic_config("orders").max_message_bytes) == (1_048_588, 5)


@pytest.mark.parametrize(
    ("node", "name", "error"), [("9", "message.max.bytes", InvalidRequest), ("1", "num.partitions", InvalidConfig)]
)
def test_a_wrong_alteration_of_a_broker_is_refused(node: str, name: str, error: type[OttlaError]) -> None:
    bench = Bench()
    bench.catalog.alter_broker_configs(node, [Alteration(name, Operation.SET, "5")], bench.answer)

    bench.settle()

    assert bench.kinds == [error]


def test_producer_ids_are_never_given_out_twice_even_after_a_crash() -> None:
    bench = Bench()
    bench.catalog.allocate_producer_ids(10, bench.answer)
    bench.catalog.allocate_producer_ids(5, bench.answer)
    bench.settle()
    bench.catalog.allocate_producer_ids(7, bench.answer)
    bench.run()

    later = Bench(bench.memory.crash(unanswered=1))
    later.catalog.allocate_producer_ids(1, later.answer)
    later.settle()

    assert bench.answers == [range(10), range(10, 15)]
    assert later.answers == [range(22, 23)]


def test_epochs_that_were_raised_are_there_after_a_restart() -> None:
    bench = Bench()
    bench.create("orders", partition_count=2)
    bench.catalog.raise_epochs("orders", {1: 3}, bench.answer)
    bench.settle()

    later = Bench(bench.memory.crash())

    assert [partition.leader_epoch for partition in later.catalog.image.topic("orders").partitions] == [0, 3]
    assert later.catalog.image == bench.catalog.image


def test_an_unanswered_creation_is_there_whole_or_not_at_all_after_a_crash() -> None:
    for unanswered in (0, 1):
        bench = Bench()
        bench.catalog.create_topics([NewTopic("orders", 2, configs={"flush.ms": "5"})], bench.answers.extend)
        bench.run()

        image = Bench(bench.memory.crash(unanswered=unanswered)).catalog.image

        assert bench.answers == []
        assert (len(image.topics), len(image.topic_configs), len(image.unfinished)) == (unanswered,) * 3


def test_more_wishes_than_the_limit_are_refused_and_the_others_fulfilled() -> None:
    bench = Bench()
    for _ in range(WISHES_WAITING_MAX + 2):
        bench.catalog.allocate_producer_ids(1, bench.answer)

    bench.settle()

    assert (bench.kinds.count(MetadataBusy), bench.kinds.count(range)) == (2, WISHES_WAITING_MAX)


def test_a_closed_catalog_tells_nobody_anything() -> None:
    bench = Bench()
    heard: list[Image] = []
    bench.catalog.listen(lambda image, changes: heard.append(image))

    bench.catalog.close()
    bench.memory.commit(_commit(PutTopic(_some_topic())))
    bench.settle()

    assert heard == []


def test_the_catalog_works_on_the_local_store_whose_thread_is_another(tmp_path: Path) -> None:
    store = LocalStore.open(str(tmp_path / "store"))
    bench = Bench(store)
    for _ in range(50):
        bench.create("orders")
    while len(bench.answers) < 50:
        bench.posted.get(timeout=WAIT_S)()
    store.close()

    reopened = LocalStore.open(str(tmp_path / "store"))
    found = Bench(reopened).catalog.image
    reopened.close()

    assert (bench.kinds.count(Topic), bench.kinds.count(TopicExists)) == (1, 49)
    assert found == bench.catalog.image

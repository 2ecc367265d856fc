"""The image and its changes: sharing, encoding, and what is refused when it is read."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DamagedStore, UnsupportedStore
from ottla.metadata.changes import (
    Change,
    Partition,
    PutBrokerConfigs,
    PutCluster,
    PutProducerIds,
    PutTopic,
    PutTopicConfigs,
    PutUnfinished,
    RemoveTopic,
    RemoveUnfinished,
    Topic,
    Unfinished,
    Work,
    decode,
    encode,
)
from ottla.metadata.image import Draft, Image

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
TOPIC = Topic("orders", ID, (Partition(1, 0, (1, 2), (1,)), Partition(2, 5, (2, 1), (1, 2))))

# The bytes of format 1: whoever changes one of these writes another format.
GOLDEN: list[tuple[Change, str, bytes | None]] = [
    (PutCluster("Zm9v"), "cluster", b'{"id":"Zm9v"}'),
    (
        PutTopic(TOPIC),
        "topic/orders",
        b'{"id":"01234567-89ab-cdef-0123-456789abcdef","partitions":[[1,0,[1,2],[1]],[2,5,[2,1],[1,2]]]}',
    ),
    (RemoveTopic("orders"), "topic/orders", None),
    (PutTopicConfigs("orders", {"b": "2", "a": "1"}), "topic-configs/orders", b'{"a":"1","b":"2"}'),
    (PutTopicConfigs("orders", {}), "topic-configs/orders", None),
    (PutBrokerConfigs("", {"a": "1"}), "broker-configs/", b'{"a":"1"}'),
    (PutBrokerConfigs("3", {"a": "1"}), "broker-configs/3", b'{"a":"1"}'),
    (PutProducerIds(2000), "producer-ids", b'{"next":2000}'),
    (
        PutUnfinished(Unfinished(1, "orders", ID, Work.PLACE, 0, 2)),
        "unfinished/1/01234567-89ab-cdef-0123-456789abcdef",
        b'{"topic":"orders","work":"place","start":0,"end":2}',
    ),
    (RemoveUnfinished(1, ID), "unfinished/1/01234567-89ab-cdef-0123-456789abcdef", None),
]


@pytest.mark.parametrize(("change", "key", "value"), GOLDEN)
def test_a_change_has_the_bytes_that_the_format_says(change: Change, key: str, value: bytes | None) -> None:
    assert encode(change) == (key, value)


@pytest.mark.parametrize(("change", "key", "value"), GOLDEN)
def test_an_entry_is_read_back_as_the_change_it_was(change: Change, key: str, value: bytes | None) -> None:
    assert decode(key, value) == change


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic/orders", b"{"),
        ("topic/orders", b"{}"),
        ("topic/orders", b'{"id":"01234567-89ab-cdef-0123-456789abcdef","partitions":[]}'),
        ("topic/orders", b'{"id":"no","partitions":[[1,0,[1],[1]]]}'),
        ("topic-configs/orders", b'{"a":1}'),
        ("producer-ids", b'{"next":"x"}'),
        ("cluster", None),
        ("unfinished/x/y", None),
        ("unfinished/1/01234567-89ab-cdef-0123-456789abcdef", b'{"topic":"t","work":"dance","start":0,"end":1}'),
        ("topic/orders", b"\xff"),
    ],
)
def test_an_entry_that_makes_no_sense_is_damage_that_names_it(key: str, value: bytes | None) -> None:
    with pytest.raises(DamagedStore, match=key):
        decode(key, value)


@pytest.mark.parametrize("key", ["acl/5", "topics", "", "cluster/", "topic"])
def test_an_entry_of_an_unknown_kind_is_refused_and_not_ignored(key: str) -> None:
    with pytest.raises(UnsupportedStore):
        decode(key, b"{}")


@given(key=st.text(max_size=30), value=st.binary(max_size=60) | st.none())
def test_no_entry_at_all_is_read_with_an_error_of_another_kind(key: str, value: bytes | None) -> None:
    for prefix in ("", "topic/", "topic-configs/", "unfinished/"):
        try:
            change = decode(prefix + key, value)
        except (DamagedStore, UnsupportedStore):
            continue
        assert isinstance(change, Change)


def test_a_change_leaves_the_image_it_came_from_as_it_was() -> None:
    before = Image().with_changes([PutTopic(TOPIC)], revision=1)

    after = before.with_changes([RemoveTopic("orders")], revision=2)

    assert (list(before.topics), list(before.topics_by_id), before.revision) == (["orders"], [ID], 1)
    assert (list(after.topics), list(after.topics_by_id), after.revision) == ([], [], 2)


def test_a_change_shares_every_map_that_it_does_not_touch() -> None:
    before = Image().with_changes([PutTopic(TOPIC), PutBrokerConfigs("", {"a": "1"})])

    after = before.with_changes([PutTopicConfigs("orders", {"a": "1"}), PutProducerIds(5)])

    assert after.topics is before.topics
    assert after.topics_by_id is before.topics_by_id
    assert after.broker_configs is before.broker_configs


def test_a_draft_shows_its_changes_and_the_image_behind_it_none() -> None:
    image = Image()
    draft = Draft(image)

    draft.apply([PutTopic(TOPIC)])
    draft.apply([PutProducerIds(7), PutTopic(Topic("other", UUID(int=2), TOPIC.partitions))])

    assert (sorted(draft.image.topics), draft.image.next_producer_id) == (["orders", "other"], 7)
    assert image == Image()


def test_configs_that_are_taken_away_leave_no_entry_behind() -> None:
    image = Image().with_changes([PutTopicConfigs("orders", {"a": "1"}), PutTopicConfigs("orders", {})])

    assert image.topic_configs == {}


def test_an_image_made_from_entries_equals_the_one_they_came_from() -> None:
    changes = [change for change, _, value in GOLDEN if value is not None]
    entries = [encode(change) for change in changes]

    assert Image().with_changes(decode(key, value) for key, value in entries) == Image().with_changes(changes)

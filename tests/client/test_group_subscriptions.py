"""What members of a classic group tell each other, byte for byte."""

from __future__ import annotations

import struct
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.subscriptions import (
    NO_GENERATION,
    decode_assignment,
    decode_previous,
    decode_subscription,
    encode_assignment,
    encode_previous,
    encode_subscription,
)
from ottla.client.values import TopicPartition
from ottla.errors import ProtocolError

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

PARTITIONS = st.sets(
    st.builds(TopicPartition, st.text("abcé", min_size=1, max_size=5), st.integers(0, 2**31 - 1)), max_size=12
)


@given(topics=st.sets(st.text("abcé", min_size=1, max_size=5)), owned=PARTITIONS, generation=st.integers(-1, 2**31 - 1))
def test_a_subscription_comes_back_as_it_was_written(
    topics: set[str], owned: set[TopicPartition], generation: int
) -> None:
    data = encode_subscription(topics, owned=sorted(owned), generation=generation)

    found = decode_subscription(data, "m", "i", previous_in_user_data=False)

    assert (found.member_id, found.instance_id, found.topics) == ("m", "i", frozenset(topics))
    assert (set(found.owned), found.generation) == (owned, generation)


@given(partitions=PARTITIONS)
def test_an_assignment_comes_back_as_it_was_written(partitions: set[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(partitions)) == partitions


@given(owned=PARTITIONS, generation=st.integers(-1, 2**31 - 1))
def test_what_the_sticky_assignor_remembers_comes_back(owned: set[TopicPartition], generation: int) -> None:
    found, told = decode_previous(encode_previous(owned, generation=generation))

    assert (set(found), told) == (owned, generation)


def test_another_client_reads_our_subscription() -> None:
    data = encode_subscription({"a", "b"}, owned=[TopicPartition("a", 1)], generation=3)

    found = ConsumerProtocolSubscription.decode(data)

    assert found.topics == ["a", "b"]
    assert [(each.topic, each.partitions) for each in found.owned_partitions] == [("a", [1])]
    assert found.generation_id == 3


def test_another_client_reads_our_assignment() -> None:
    found = ConsumerProtocolAssignment.decode(encode_assignment([TopicPartition("a", 1), TopicPartition("a", 0)]))

    assert [(topic, numbers) for topic, numbers in found.assigned_partitions] == [("a", [0, 1])]


def test_another_client_reads_what_our_sticky_assignor_remembers() -> None:
    data = encode_previous([TopicPartition("a", 1)], generation=4)

    found = StickyAssignorUserData.decode(data, version=1, header=False)

    assert [(each.topic, each.partitions) for each in found.previous_assignment] == [("a", [1])]
    assert found.generation == 4


def test_a_later_version_is_read_as_far_as_we_know_it() -> None:
    data = encode_subscription({"a"}, owned=[], generation=1)
    later = struct.pack(">h", 9) + data[2:] + b"something new"

    assert decode_subscription(later, "m", None, previous_in_user_data=False).topics == {"a"}


def test_no_bytes_at_all_are_an_assignment_of_nothing() -> None:
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\1\0\0\0\5", b"\xff\xff\0\0\0\0"])
def test_bytes_that_are_no_subscription_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data, "m", None, previous_in_user_data=False)


@given(data=st.binary(max_size=60))
def test_whatever_a_stranger_remembers_is_at_worst_nothing(data: bytes) -> None:
    owned, generation = decode_previous(data)

    assert isinstance(generation, int)
    assert owned == [] or len(owned) <= len(data)


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\1\0\3t", b"\0\0\0\1\0\1t\x7f\xff\xff\xff"])
def test_what_the_sticky_assignor_cannot_read_counts_as_nothing(data: bytes | None) -> None:
    assert decode_previous(data) == ([], NO_GENERATION)

"""What the broker reads of the bytes that consumers tell each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.groups.classic_subscription import EMPTY_ASSIGNMENT, no_assignment, subscribed_topics
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_topics_of_every_version_are_read(version: int) -> None:
    message = ConsumerProtocolSubscription(
        topics=["orders", "påls"],
        user_data=b"opaque",
        owned_partitions=[OwnedPartitions(topic="orders", partitions=[0, 1])] if version >= 1 else (),
        generation_id=7 if version >= 2 else -1,
    )

    assert subscribed_topics(version.to_bytes(2) + encode_bytes(message, version)) == frozenset({"orders", "påls"})


def test_what_a_newer_version_adds_is_not_looked_at() -> None:
    known = encode_bytes(ConsumerProtocolSubscription(topics=["t"]), 0)

    assert subscribed_topics((9).to_bytes(2) + known + b"more") == frozenset({"t"})


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\0\0\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\5abc",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
        b"anything at all",
    ],
    ids=bytes.hex,
)
def test_bytes_that_are_no_subscription_tell_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


@given(st.binary(max_size=64))
def test_any_bytes_are_read_without_harm(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)

    assert topics is None or sum(len(topic.encode()) + 2 for topic in topics) <= len(metadata)


def test_an_assignment_of_nothing_is_one_that_consumers_can_read() -> None:
    version = int.from_bytes(EMPTY_ASSIGNMENT[:2])

    assert decode(ConsumerProtocolAssignment, version, EMPTY_ASSIGNMENT, start=2) == ConsumerProtocolAssignment()


def test_other_kinds_of_members_get_no_bytes_of_ours() -> None:
    assert no_assignment("consumer") == EMPTY_ASSIGNMENT
    assert no_assignment("connect") == b""

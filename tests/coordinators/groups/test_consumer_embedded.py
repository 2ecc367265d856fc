"""The consumer protocol inside JoinGroup and SyncGroup."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest

from ottla.coordinators.groups.consumer_embedded import (
    MEMBER_ENTRIES_MAX,
    EmbeddedReader,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
    write_subscription,
)
from ottla.coordinators.groups.consumer_limits import TOPICS_MAX
from ottla.coordinators.groups.records import ClassicMemberMetadata, ClassicMemberProtocol
from ottla.errors import GroupMaxSizeReached, ProtocolError
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["orders", "payments"],
    user_data=b"from the assignor",
    owned_partitions=[OwnedPartitions(topic="orders", partitions=[1, 2])],
    generation_id=7,
    rack_id="north",
)


def written(message: ConsumerProtocolSubscription, version: int) -> bytes:
    return pack(">h", version) + encode_bytes(message, version)


@pytest.mark.parametrize("version", [*ConsumerProtocolSubscription.VERSIONS])
def test_a_subscription_of_any_version_is_read(version: int) -> None:
    read = read_subscription(written(SUBSCRIPTION, version))

    assert read.topics == {"orders", "payments"}
    assert read.owned == ({"orders": {1, 2}} if version >= 1 else {})
    assert read.rack_id == ("north" if version >= 3 else None)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    read = read_subscription(pack(">h", 9) + written(SUBSCRIPTION, 3)[2:] + b"and more")

    assert read.topics == {"orders", "payments"}
    assert read.rack_id == "north"


def test_fields_that_a_version_should_have_may_be_left_out() -> None:
    read = read_subscription(pack(">h", 3) + written(SUBSCRIPTION, 0)[2:])

    assert read.topics == {"orders", "payments"}
    assert read.owned == {}


def test_user_data_may_be_left_out_as_well() -> None:
    assert read_subscription(pack(">hih", 0, 1, 1) + b"t").topics == {"t"}


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00",
        pack(">h", -1),
        pack(">hi", 0, 5),
        pack(">hih", 0, 1, 100),
        pack(">hih", 0, 1, 1) + b"\xff" + pack(">i", -1),
        pack(">hii", 0, 0, 99),
        pack(">hih", 0, 2, 0) + b"\x00",
        pack(">hiiihi", 1, 0, -1, 1, 0, 2) + b"\x00\x00\x00\x01",
        pack(">hiiih", 1, 0, -1, 1, 9) + b"t",
        pack(">hiiih", 1, 0, -1, 1, 1) + b"\xff" + pack(">i", 0),
    ],
)
def test_bytes_that_are_no_subscription_are_told_from_one(metadata: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_subscription(metadata)


def test_whatever_a_client_sends_is_read_or_refused() -> None:
    random = Random(5)
    whole = written(SUBSCRIPTION, 3)
    read = 0
    for _ in range(3_000):
        damaged = bytearray(whole[: random.randint(0, len(whole))])
        for _ in range(random.randint(0, 4)):
            if damaged:
                damaged[random.randrange(len(damaged))] = random.randrange(256)
        for reads in (read_subscription, read_assignment):
            try:
                reads(bytes(damaged))
                read += 1
            except ProtocolError:
                continue
    assert read > 100


@pytest.mark.parametrize(("asked", "used"), [(0, 0), (2, 2), (3, 3), (12, 3)])
def test_an_assignment_is_written_in_a_version_that_the_member_knows(asked: int, used: int) -> None:
    assignment = write_assignment({"t": {3, 1}}, version=asked)

    assert assignment[:2] == pack(">h", used)
    (topic,) = decode(ConsumerProtocolAssignment, used, assignment, start=2).assigned_partitions
    assert (topic.topic, list(topic.partitions)) == ("t", [1, 3])
    assert read_assignment(assignment) == ({"t": {1, 3}}, False)


def test_no_bytes_are_no_assignment() -> None:
    assert read_assignment(b"") == ({}, False)


def test_what_an_assignor_sends_along_is_noticed() -> None:
    message = ConsumerProtocolAssignment(user_data=b"x")

    assert read_assignment(pack(">h", 1) + encode_bytes(message, 1)).has_user_data


def test_a_subscription_that_is_written_for_tools_can_be_read() -> None:
    read = read_subscription(write_subscription({"t"}, {"t": {0}}))

    assert read.topics == {"t"}
    assert read.owned == {"t": {0}}


@pytest.mark.parametrize(("metadata", "version"), [(pack(">h", 2), 2), (b"?", 0)])
def test_the_version_of_a_member_is_that_of_its_first_protocol(metadata: bytes, version: int) -> None:
    classic = ClassicMemberMetadata(supported_protocols=[ClassicMemberProtocol(name="range", metadata=metadata)])

    assert version_of(classic) == version


def many_names(count: int) -> bytes:
    """A subscription to topics whose names take no bytes but those of their lengths."""
    return pack(">hi", 0, count) + bytes(2 * count) + pack(">i", -1)


def many_partitions(count: int) -> bytes:
    """A subscription to nothing, by somebody who owns that many partitions of one topic."""
    return pack(">hiiihi", 1, 0, -1, 1, 0, count) + b"".join(number.to_bytes(4) for number in range(count))


def test_as_many_topics_are_read_as_a_member_may_be_subscribed_to() -> None:
    assert read_subscription(many_names(TOPICS_MAX)).topics == {""}
    with pytest.raises(GroupMaxSizeReached):
        read_subscription(many_names(TOPICS_MAX + 1))


def test_partitions_are_read_up_to_a_number() -> None:
    count = 10 * (MEMBER_ENTRIES_MAX - 2)
    assert len(read_subscription(many_partitions(count)).owned[""]) == count
    with pytest.raises(GroupMaxSizeReached):
        read_subscription(many_partitions(count + 10))


def test_an_assignment_is_read_up_to_a_number_of_topics() -> None:
    count = MEMBER_ENTRIES_MAX // 2
    assert read_assignment(pack(">hi", 0, count) + bytes(6 * count)).partitions == {"": set()}
    with pytest.raises(GroupMaxSizeReached):
        read_assignment(pack(">hi", 0, count + 1) + bytes(6 * (count + 1)))


def test_what_an_assignor_sends_along_may_be_large() -> None:
    message = ConsumerProtocolSubscription(topics=["t"], user_data=bytes(5_000_000))

    assert read_subscription(written(message, 0)).topics == {"t"}


def test_members_of_a_group_that_want_the_same_are_read_once() -> None:
    reader = EmbeddedReader(entries_max=10)
    same = ConsumerProtocolSubscription(topics=[f"t{number}" for number in range(8)])

    read = [reader.subscription(written(same, version)) for version in (0, 1, 2, 3)]

    assert {each.topics for each in read} == {frozenset(same.topics)}
    assert reader.subscription(many_names(0)).topics == frozenset()
    assert reader.subscription(many_names(2)).topics == {""}
    with pytest.raises(GroupMaxSizeReached):
        reader.subscription(written(same, 0))

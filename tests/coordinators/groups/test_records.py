"""The records of `__consumer_offsets`, byte by byte: what Kafka's tools read, and what a restart reads back."""

from __future__ import annotations

import pytest

from ottla.coordinators.groups import records
from ottla.coordinators.groups.records import (
    ClassicMemberMetadata,
    ClassicMemberProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
    TopicMetadata,
    TopicPartition,
    TopicPartitions,
)
from ottla.coordinators.outcome import CoordinatorRecord
from ottla.errors import ProtocolError
from ottla.protocol.schema import NO_UUID, Message

TOPIC_ID = bytes(range(16))

GOLDEN: list[tuple[Message, Message, str, str]] = [
    (
        OffsetCommitKey(group="g", topic="t", partition=3),
        OffsetCommitValue(offset=42, leader_epoch=5, metadata="note", commit_timestamp=1_000, topic_id=TOPIC_ID),
        "0001 0001 67 0001 74 00000003",
        "0004 000000000000002a 00000005 05 6e6f7465 00000000000003e8 01 00 10 000102030405060708090a0b0c0d0e0f",
    ),
    (
        OffsetCommitKey(group="g", topic="t", partition=3),
        OffsetCommitValue(offset=42, metadata="note", commit_timestamp=1_000, expire_timestamp=2_000),
        "0001 0001 67 0001 74 00000003",
        "0001 000000000000002a 0004 6e6f7465 00000000000003e8 00000000000007d0",
    ),
    (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=7,
            protocol="range",
            leader="m",
            current_state_timestamp=1_000,
            members=(
                MemberMetadata(
                    member_id="m",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=300,
                    session_timeout=100,
                    subscription=b"\x01",
                    assignment=b"\x02\x03",
                ),
            ),
        ),
        "0002 0001 67",
        "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0001 6d 00000000000003e8 00000001"
        "0001 6d 0001 69 0001 63 0002 2f68 0000012c 00000064 00000001 01 00000002 0203",
    ),
    (
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=9, metadata_hash=1),
        "0003 0001 67",
        "0000 00000009 01 00 08 0000000000000001",
    ),
    (
        ConsumerGroupPartitionMetadataKey(group_id="g"),
        ConsumerGroupPartitionMetadataValue(
            topics=(TopicMetadata(topic_id=TOPIC_ID, topic_name="t", num_partitions=2),)
        ),
        "0004 0001 67",
        "0000 02 000102030405060708090a0b0c0d0e0f 02 74 00000002 01 00 00",
    ),
    (
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=("t",),
            subscribed_topic_regex=None,
            rebalance_timeout_ms=300,
            server_assignor="range",
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=100, supported_protocols=(ClassicMemberProtocol(name="r", metadata=b"\x01"),)
            ),
        ),
        "0005 0001 67 0001 6d",
        "0000 00 00 02 63 03 2f68 02 02 74 00 0000012c 06 72616e6765 01 00 0c 01 00000064 02 02 72 02 01 00 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=9, assignment_timestamp=1_000),
        "0006 0001 67",
        "0000 00000009 01 00 08 00000000000003e8",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TopicPartition(topic_id=TOPIC_ID, partitions=(1,)),)
        ),
        "0007 0001 67 0001 6d",
        "0000 02 000102030405060708090a0b0c0d0e0f 02 00000001 00 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=9,
            previous_member_epoch=8,
            state=1,
            assigned_partitions=(TopicPartitions(topic_id=TOPIC_ID, partitions=(1,), assignment_epochs=(9,)),),
            partitions_pending_revocation=(TopicPartitions(topic_id=TOPIC_ID, partitions=(2,)),),
        ),
        "0008 0001 67 0001 6d",
        "0000 00000009 00000008 01"
        "02 000102030405060708090a0b0c0d0e0f 02 00000001 01 00 05 02 00000009"
        "02 000102030405060708090a0b0c0d0e0f 02 00000002 00 00",
    ),
    (
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"),
        ConsumerGroupRegularExpressionValue(topics=("t",), version=4, timestamp=1_000),
        "0010 0001 67 0003 742e2a",
        "0000 02 02 74 0000000000000004 00000000000003e8 00",
    ),
    (
        OffsetCommitKey(group="g", topic="t", partition=3),
        OffsetCommitValue(offset=42, metadata="note", commit_timestamp=1_000, order=7),
        "0001 0001 67 0001 74 00000003",
        "0004 000000000000002a ffffffff 05 6e6f7465 00000000000003e8 01 924e 08 0000000000000007",
    ),
    (
        PendingOffsetKey(producer_id=2_000, group="g", topic="t", partition=3),
        PendingOffsetValue(
            offset=42,
            leader_epoch=5,
            metadata="note",
            commit_timestamp=1_000,
            producer_epoch=6,
            order=7,
            topic_id=TOPIC_ID,
        ),
        "2710 00000000000007d0 0001 67 0001 74 00000003",
        "0000 000000000000002a 00000005 05 6e6f7465 00000000000003e8 0006 0000000000000007"
        "01 00 10 000102030405060708090a0b0c0d0e0f",
    ),
]
"""Worked out by hand from Kafka's message definitions; the last two are Ottla's own."""


@pytest.mark.parametrize(("key", "value", "key_bytes", "value_bytes"), GOLDEN, ids=lambda part: type(part).__name__)
def test_each_record_has_the_bytes_that_kafka_gives_it(
    key: Message, value: Message, key_bytes: str, value_bytes: str
) -> None:
    assert records.encode_key(key).hex() == key_bytes.replace(" ", "")
    assert records.encode_value(value).hex() == value_bytes.replace(" ", "")


@pytest.mark.parametrize(("key", "value", "key_bytes", "value_bytes"), GOLDEN, ids=lambda part: type(part).__name__)
def test_each_record_is_read_back_as_it_was_written(
    key: Message, value: Message, key_bytes: str, value_bytes: str
) -> None:
    decoded = records.decode(bytes.fromhex(key_bytes), bytes.fromhex(value_bytes))
    assert decoded == CoordinatorRecord(key, value)


def test_the_golden_records_are_all_there_are() -> None:
    assert {type(key) for key, _, _, _ in GOLDEN} == {key for key, _ in records.RECORDS.values()}


def test_a_record_without_a_value_is_a_tombstone() -> None:
    key = GroupMetadataKey(group="g")
    assert records.decode(records.encode_key(key), None) == CoordinatorRecord(key, None)


def test_offsets_of_the_first_kafka_are_read_too() -> None:
    decoded = records.decode(
        bytes.fromhex("0000 0001 67 0001 74 00000003"),
        bytes.fromhex("0000 000000000000002a 0004 6e6f7465 00000000000003e8"),
    )
    assert decoded == CoordinatorRecord(
        OffsetCommitKey(group="g", topic="t", partition=3),
        OffsetCommitValue(offset=42, metadata="note", commit_timestamp=1_000),
    )


def test_an_offset_of_version_3_has_no_topic_id() -> None:
    value = bytes.fromhex("0003 000000000000002a 00000005 0004 6e6f7465 00000000000003e8")
    decoded = records.decode(records.encode_key(OffsetCommitKey()), value)
    assert decoded is not None
    assert decoded.value == OffsetCommitValue(
        offset=42, leader_epoch=5, metadata="note", commit_timestamp=1_000, topic_id=NO_UUID
    )


def test_a_type_of_record_that_is_not_known_is_none() -> None:
    assert records.decode(bytes.fromhex("000b 0001 67"), bytes.fromhex("0000 00000001")) is None


@pytest.mark.parametrize("key", ["", "00", "0001", "0002 0005 67"])
def test_bytes_that_are_no_key_are_refused(key: str) -> None:
    with pytest.raises(ProtocolError):
        records.decode(bytes.fromhex(key), None)


@pytest.mark.parametrize("value", ["", "00", "0063", "0004 00"])
def test_bytes_that_are_no_value_are_refused(value: str) -> None:
    with pytest.raises(ProtocolError):
        records.decode(records.encode_key(OffsetCommitKey()), bytes.fromhex(value))

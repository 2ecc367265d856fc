"""Offsets in transactions: how many there may be, and that their end always fits into one batch.

What they mean is told by the scenarios `offsets_pending_*` and by `offsets_simulation`.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinators.groups import records
from ottla.coordinators.groups.offsets_limits import (
    COMMIT_BYTES_MAX,
    GROUP_BYTES_MAX,
    TRANSACTION_BYTES_MAX,
    CommitTooLarge,
)
from ottla.coordinators.groups.offsets_pending import deleting_bytes, ending_bytes, storing_bytes
from ottla.coordinators.groups.records import OffsetCommitKey, PendingOffsetKey, PendingOffsetValue
from ottla.coordinators.outcome import CoordinatorRecord
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.schema import NO_UUID
from ottla.records.builder import build_batch
from ottla.records.control import MarkerType
from tests.coordinators.groups.shard_stage import GROUP, ShardStage
from tests.storage.workbench import NOW_MS

WIDE = 2_000
PRODUCER = 7
LONG = "g" * 32_000
"""A name that stands in every key makes a commit large."""
NOTE = "n" * 4_096


@pytest.fixture
def stage() -> ShardStage:
    return ShardStage({"wide": WIDE})


def pend(
    stage: ShardStage,
    partitions: range,
    *,
    group: str = GROUP,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    note: str = "",
) -> Any:
    request = TxnOffsetCommitRequest(
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="wide",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=2**62 + index, committed_metadata=note
                    )
                    for index in partitions
                ],
            )
        ],
    )
    answer = stage.do(
        lambda shard, ticket, outcome, now_ms: shard.commit_transactional(request, 5, ticket, outcome, now_ms)
    )
    assert {each.error_code for topic in answer.topics for each in topic.partitions} <= {ErrorCode.NONE}
    return answer


def end(stage: ShardStage, kind: MarkerType, *, epoch: int = 1, producer_id: int = PRODUCER) -> list[CoordinatorRecord]:
    """End the transaction; gives the records of the one decision that this is."""
    before = len(stage.records)
    stage.do(
        lambda shard, ticket, outcome, now_ms: shard.end_transaction(
            EndTxnResponse(),
            ticket,
            outcome,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            marker_type=kind,
        )
    )
    return stage.records[before:]


def batch_bytes(written: list[CoordinatorRecord]) -> int:
    return len(
        build_batch(
            [
                (records.encode_key(key), None if value is None else records.encode_value(value), NOW_MS, ())
                for key, value in written
            ]
        )
    )


def test_a_commit_of_a_transaction_that_would_not_fit_a_batch_is_refused(stage: ShardStage) -> None:
    with pytest.raises(CommitTooLarge):
        pend(stage, range(COMMIT_BYTES_MAX // len(LONG) + 1), group=LONG)
    assert stage.records == []


def test_a_transaction_takes_as_many_offsets_as_can_be_committed_in_one_batch(stage: ShardStage) -> None:
    fitting = TRANSACTION_BYTES_MAX // (2 * len(LONG)) - 20
    pend(stage, range(fitting // 2), group=LONG)
    pend(stage, range(fitting // 2, fitting), group=LONG)
    with pytest.raises(CommitTooLarge):
        pend(stage, range(fitting, fitting + 100), group=LONG)
    # What it has may still be stored anew.
    pend(stage, range(fitting // 2), group=LONG)
    written = end(stage, MarkerType.COMMIT)
    assert len(stage.offsets) == fitting
    assert len(written) == 2 * fitting
    assert batch_bytes(written) <= TRANSACTION_BYTES_MAX


def test_all_groups_of_a_transaction_count_together() -> None:
    stage = ShardStage({"wide": WIDE})
    each = TRANSACTION_BYTES_MAX // (2 * len(LONG)) // 4
    for number in range(3):
        pend(stage, range(each), group=f"{number}{LONG}")
    with pytest.raises(CommitTooLarge):
        pend(stage, range(each + 10), group=f"4{LONG}")
    pend(stage, range(each + 10), group=f"4{LONG}", producer_id=PRODUCER + 1)


def test_what_an_older_epoch_has_left_does_not_count(stage: ShardStage) -> None:
    fitting = TRANSACTION_BYTES_MAX // (2 * len(LONG)) - 20
    pend(stage, range(fitting), group=LONG)
    pend(stage, range(10), group=LONG, epoch=1)
    pend(stage, range(10, 200), group=LONG, epoch=1)
    assert len(end(stage, MarkerType.COMMIT, epoch=2)) == 2 * 200


def test_a_group_has_room_for_what_may_yet_be_committed(stage: ShardStage) -> None:
    """So that it can be deleted in one batch at any time."""
    each = GROUP_BYTES_MAX // (3 * len(LONG)) - 5
    stage.commit({("wide", partition): 1 for partition in range(each)}, group=LONG)
    pend(stage, range(each, 2 * each), group=LONG)
    with pytest.raises(CommitTooLarge):
        pend(stage, range(2 * each), group=LONG, producer_id=PRODUCER + 1)
    with pytest.raises(CommitTooLarge):
        stage.commit({("wide", partition): 1 for partition in range(each, 2 * each)}, group=LONG)
    before = len(stage.records)
    stage.do(lambda shard, ticket, outcome, now_ms: shard.delete_group(LONG, ticket, outcome, now_ms))
    assert batch_bytes(stage.records[before:]) <= GROUP_BYTES_MAX
    assert (stage.offsets, len(stage.shard.pending)) == ({}, 0)


@pytest.mark.parametrize("group", ["g", "grüße" * 100])
@pytest.mark.parametrize("note", ["", NOTE], ids=["no note", "a note"])
def test_the_room_that_is_counted_is_enough(stage: ShardStage, group: str, note: str) -> None:
    pend(stage, range(WIDE), group=group, note=note, epoch=2**15 - 1)
    stored = {
        record.key: record.value
        for record in stage.records
        if isinstance(record.key, PendingOffsetKey) and isinstance(record.value, PendingOffsetValue)
    }
    assert batch_bytes(stage.records) <= sum(storing_bytes(key, value) for key, value in stored.items())
    written = end(stage, MarkerType.COMMIT, epoch=2**15 - 1)
    assert batch_bytes(written) <= sum(ending_bytes(key, value) for key, value in stored.items())
    assert batch_bytes([CoordinatorRecord(key, None) for key, _ in written]) <= WIDE * deleting_bytes(group, "wide")


def test_offsets_committed_in_a_transaction_are_kept_under_the_keys_of_all_others(stage: ShardStage) -> None:
    pend(stage, range(1))
    written = end(stage, MarkerType.COMMIT)
    assert [type(record.key) for record in written] == [OffsetCommitKey, PendingOffsetKey]
    assert stage.offsets == {(GROUP, "wide", 0): 2**62}


def test_a_group_that_has_only_pending_offsets_is_described_as_empty(stage: ShardStage) -> None:
    pend(stage, range(1))
    described = stage.do(lambda shard, ticket, outcome, now_ms: shard.describe_classic(GROUP, ticket, outcome, now_ms))
    assert (described.group_id, described.group_state) == (GROUP, "Empty")


@pytest.mark.parametrize("version", [8, 10])
def test_stable_offsets_are_asked_for_by_name_or_by_id(stage: ShardStage, version: int) -> None:
    pend(stage, range(1))
    topic_id = stage.topics.topic_id("wide")
    assert topic_id is not None
    topic = OffsetFetchRequestTopics(
        name="wide" if version < 10 else "", topic_id=topic_id if version >= 10 else NO_UUID, partition_indexes=[0, 1]
    )
    request = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    answer = stage.do(
        lambda shard, ticket, outcome, now_ms: shard.fetch_offsets(
            request, version, ticket, outcome, now_ms, require_stable=True
        )
    )
    told = [(each.partition_index, each.committed_offset, each.error_code) for each in answer.topics[0].partitions]
    assert told == [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (1, -1, ErrorCode.NONE)]

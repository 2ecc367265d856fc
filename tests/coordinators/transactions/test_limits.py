"""What a shard of transactions is bounded by: keys of commits, sizes of commits, and how much expires in one go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket
from ottla.coordinators.transactions.claims import Claim, shard_key
from ottla.coordinators.transactions.expiry import EXPIRE, KEYS_KEPT_MS, PIECE_BYTES, PIECE_ENTRIES
from ottla.coordinators.transactions.markers import TopicPartition
from ottla.coordinators.transactions.records import (
    CommittedBatchesKey,
    CommittedBatchesValue,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode,
)
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.coordinators.transactions.together import (
    BATCHES_KEPT,
    COMMIT_BYTES_MAX,
    ONE_BATCH_KEPT_MS,
    PARTITIONS_MAX,
    QUERIES_MAX,
    QUERY_CHARACTERS_MAX,
    TRANSACTIONS_MAX,
    record_bytes,
)
from ottla.coordinators.transactions.transactions import TIMERS
from ottla.errors import InvalidRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.commit_together import CommitTogetherRequest, CommitTogetherResponse, OpenTransaction
from ottla.protocol.messages.describe_commit import DescribeCommitRequest, DescribeCommitResponse
from ottla.protocol.schema import Message
from ottla.records.control import MarkerType

TICKET: Ticket = 1
SETTINGS = TransactionSettings(id_expiration_ms=1_000, expiry_interval_ms=500)
LATE_MS = 10_000


def asked(shard: TransactionShard, decide: Callable[[Ticket, Outcome, int], None]) -> Message:
    """The one reply to a request."""
    outcome = Outcome(shard.replay)
    decide(TICKET, outcome, 0)
    ((ticket, response),) = outcome.replies
    assert ticket == TICKET
    assert isinstance(response, Message)
    return response


def committed(shard: TransactionShard, batch_id: int) -> CommitTogetherResponse:
    request = CommitTogetherRequest(query_id="q", batch_id=batch_id)
    response = asked(shard, lambda *decided: shard.commit_together(request, *decided))
    assert isinstance(response, CommitTogetherResponse)
    return response


def is_remembered(shard: TransactionShard, batch_id: int) -> bool:
    request = DescribeCommitRequest(query_id="q", batch_id=batch_id)
    response = asked(shard, lambda *decided: shard.describe_commit(request, *decided))
    assert isinstance(response, DescribeCommitResponse)
    return response.is_committed


def give(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    status: TransactionStatus = TransactionStatus.EMPTY,
    partitions: range = range(0),
) -> None:
    """A record as if it had been written before."""
    value = TransactionLogValue(
        producer_id=producer_id,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=[PartitionsSchema(topic="p", partition_ids=partitions)] if partitions else (),
    )
    shard.replay(TransactionLogKey(transactional_id=transactional_id), value)


def expired(shard: TransactionShard) -> tuple[list[CoordinatorRecord], int | None]:
    """What one look at old entries writes, and when the next one comes."""
    outcome = Outcome(shard.replay)
    shard.on_timer((TIMERS, EXPIRE), outcome, LATE_MS)
    return outcome.records, outcome.timers[(TIMERS, EXPIRE)]


def test_the_last_keys_of_a_query_are_remembered() -> None:
    shard = TransactionShard(SETTINGS)

    for batch_id in range(BATCHES_KEPT + 2):
        assert not committed(shard, batch_id).is_repeated

    assert [batch_id for batch_id in range(2, BATCHES_KEPT + 3) if is_remembered(shard, batch_id)] == list(
        range(2, BATCHES_KEPT + 2)
    )
    assert committed(shard, 2).is_repeated


def test_a_commit_of_too_many_transactions_is_refused() -> None:
    shard = TransactionShard(SETTINGS)
    named = [OpenTransaction(transactional_id=f"q/{slot}") for slot in range(TRANSACTIONS_MAX + 1)]
    request = CommitTogetherRequest(query_id="q", batch_id=0, transactions=named)
    outcome = Outcome(shard.replay)

    with pytest.raises(InvalidRequest, match=f"{TRANSACTIONS_MAX} are the limit"):
        shard.commit_together(request, TICKET, outcome, 0)

    assert outcome.records == []


def test_a_commit_of_as_many_transactions_as_may_be_is_one_decision() -> None:
    shard = TransactionShard(SETTINGS)
    for slot in range(TRANSACTIONS_MAX):
        give(shard, f"q/{slot}", slot, TransactionStatus.ONGOING, range(1))
    named = [OpenTransaction(transactional_id=f"q/{slot}", producer_id=slot) for slot in range(TRANSACTIONS_MAX)]
    request = CommitTogetherRequest(query_id="q", batch_id=0, transactions=named)
    outcome = Outcome(shard.replay)

    shard.commit_together(request, TICKET, outcome, 0)

    assert len(outcome.records) == TRANSACTIONS_MAX + 1
    assert len(outcome.orders) == TRANSACTIONS_MAX


@pytest.mark.slow
def test_a_commit_of_too_many_partitions_is_refused_whole() -> None:
    shard = TransactionShard(SETTINGS)
    give(shard, "q/0", 1, TransactionStatus.ONGOING, range(1))
    give(shard, "q/1", 2, TransactionStatus.ONGOING, range(PARTITIONS_MAX))
    named = [OpenTransaction(transactional_id=f"q/{slot}", producer_id=slot + 1) for slot in range(2)]
    request = CommitTogetherRequest(query_id="q", batch_id=0, transactions=named)
    outcome = Outcome(shard.replay)

    with pytest.raises(InvalidRequest, match="partitions"):
        shard.commit_together(request, TICKET, outcome, 0)

    assert not is_remembered(shard, 0)
    shard.require_ongoing("q/0", producer_id=1, producer_epoch=0)


def give_topics(shard: TransactionShard, transactional_id: str, producer_id: int, topics: int) -> None:
    """An open transaction in one partition of each of so many topics with the longest of names."""
    value = TransactionLogValue(
        producer_id=producer_id,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionStatus.ONGOING,
        transaction_partitions=[PartitionsSchema(topic=f"{topic:0249}", partition_ids=(0,)) for topic in range(topics)],
    )
    shard.replay(TransactionLogKey(transactional_id=transactional_id), value)


def test_a_commit_whose_records_do_not_fit_one_batch_is_refused_whole() -> None:
    shard = TransactionShard(SETTINGS)
    topics = 1_000
    slots = range(COMMIT_BYTES_MAX // (topics * 249))
    for slot in slots:
        give_topics(shard, f"q/{slot}", slot + 1, topics)
    named = [OpenTransaction(transactional_id=f"q/{slot}", producer_id=slot + 1) for slot in slots]
    request = CommitTogetherRequest(query_id="q", batch_id=0, transactions=named)
    outcome = Outcome(shard.replay)

    with pytest.raises(InvalidRequest, match="bytes"):
        shard.commit_together(request, TICKET, outcome, 0)

    assert not is_remembered(shard, 0)
    shard.require_ongoing("q/0", producer_id=1, producer_epoch=0)


@pytest.mark.parametrize("transactional_id", ["q/0", "q/" + "\u20ac" * 10_000])
def test_a_commit_is_never_larger_than_it_is_taken_to_be(transactional_id: str) -> None:
    shard = TransactionShard(SETTINGS)
    give(shard, "q/few", 1, TransactionStatus.ONGOING, range(1))
    give(shard, transactional_id, 2**62, TransactionStatus.ONGOING, range(1_000))
    give_topics(shard, "q/many", 3, 100)
    for name in ("q/few", transactional_id, "q/many"):
        found = shard.transactions.get(name)
        assert found is not None
        ended = found.ended(MarkerType.COMMIT, 2**62, bumped=True)
        key, value = encode(CoordinatorRecord(TransactionLogKey(transactional_id=name), ended))
        assert value is not None
        assert len(key) + len(value) <= record_bytes(found)


def test_old_ids_expire_a_piece_at_a_time_and_all_of_them() -> None:
    shard = TransactionShard(SETTINGS)
    count = 2 * PIECE_ENTRIES + 10
    for number in range(count):
        give(shard, f"t{number}", number)

    pieces = [expired(shard) for _ in range(3)]

    assert [len(records) for records, _ in pieces] == [PIECE_ENTRIES, PIECE_ENTRIES, 10]
    assert [at_ms for _, at_ms in pieces] == [LATE_MS, LATE_MS, LATE_MS + SETTINGS.expiry_interval_ms]
    assert len(shard.transactions) == 0


def test_a_piece_of_long_ids_is_shorter_and_none_is_passed_over() -> None:
    shard = TransactionShard(SETTINGS)
    for number in range(7):
        give(shard, f"{number}" + "x" * (PIECE_BYTES // 3), number)

    sizes = []
    while len(shard.transactions):
        records, at_ms = expired(shard)
        sizes.append(len(records))
        assert at_ms == LATE_MS or not len(shard.transactions)

    assert sizes == [3, 3, 1]


def test_keys_of_commits_outlive_the_ids_and_expire_in_their_own_time() -> None:
    shard = TransactionShard(SETTINGS)
    committed(shard, 5)
    give(shard, "t", 1)

    records, at_ms = expired(shard)

    assert [type(key) for key, _ in records] == [TransactionLogKey]
    assert at_ms == LATE_MS + SETTINGS.expiry_interval_ms
    assert is_remembered(shard, 5)

    outcome = Outcome(shard.replay)
    shard.on_timer((TIMERS, EXPIRE), outcome, KEYS_KEPT_MS)

    assert [type(key) for key, _ in outcome.records] == [CommittedBatchesKey]
    assert not is_remembered(shard, 5)


def test_an_id_that_is_used_between_two_pieces_does_not_expire() -> None:
    shard = TransactionShard(SETTINGS)
    for number in range(PIECE_ENTRIES + 1):
        give(shard, f"t{number}", number)
    last = f"t{PIECE_ENTRIES}"
    expired(shard)

    claim = Claim(last, PIECE_ENTRIES, 0, (TopicPartition("p", 0),))
    asked(shard, lambda *decided: shard.add(claim, AddPartitionsToTxnResponse(), *decided))
    records, _ = expired(shard)

    assert records == []
    shard.require_ongoing(last, producer_id=PIECE_ENTRIES, producer_epoch=0)


@pytest.mark.parametrize(
    ("transactional_id", "key"), [("q/0", "q"), ("q/0/1", "q"), ("q", "q"), ("q/", "q"), ("/0", "/0"), ("/", "/")]
)
def test_all_slots_of_a_query_have_one_key(transactional_id: str, key: str) -> None:
    assert shard_key(transactional_id) == key


def test_a_batch_from_before_those_that_are_remembered_is_refused_and_not_committed_again() -> None:
    shard = TransactionShard(SETTINGS)
    for batch_id in range(1, BATCHES_KEPT + 2):
        committed(shard, batch_id)
    outcome = Outcome(shard.replay)

    with pytest.raises(InvalidRequest, match="older"):
        shard.commit_together(CommitTogetherRequest(query_id="q", batch_id=1), TICKET, outcome, 0)
    with pytest.raises(InvalidRequest, match="older"):
        shard.describe_commit(DescribeCommitRequest(query_id="q", batch_id=1), TICKET, outcome, 0)

    assert not outcome.records
    assert is_remembered(shard, 2)


def test_a_query_id_has_a_length_that_can_be_kept() -> None:
    shard = TransactionShard(SETTINGS)
    for query_id in ("", "x" * (QUERY_CHARACTERS_MAX + 1)):
        with pytest.raises(InvalidRequest, match="query id"):
            shard.commit_together(CommitTogetherRequest(query_id=query_id), TICKET, Outcome(shard.replay), 0)


def test_one_query_more_than_a_shard_remembers_takes_the_place_of_the_most_silent() -> None:
    shard = TransactionShard(SETTINGS)
    for number in range(QUERIES_MAX):
        shard.replay(CommittedBatchesKey(query_id=f"old{number}"), CommittedBatchesValue(batch_ids=[0]))
    shard.replay(CommittedBatchesKey(query_id="old0"), CommittedBatchesValue(batch_ids=[0, 1]))

    committed(shard, 0)

    assert len(shard.transactions.batches) == QUERIES_MAX
    assert "old0" in shard.transactions.batches
    assert "old1" not in shard.transactions.batches


@pytest.mark.parametrize(("age_ms", "forgotten"), [(ONE_BATCH_KEPT_MS, "save"), (ONE_BATCH_KEPT_MS - 1, "stream0")])
def test_a_query_of_one_batch_that_is_old_goes_before_those_that_go_on(age_ms: int, forgotten: str) -> None:
    shard = TransactionShard(SETTINGS)
    remembered = {f"stream{number}": [0, 1] for number in range(QUERIES_MAX - 1)} | {"save": [0]}
    for query_id, batch_ids in remembered.items():
        shard.replay(CommittedBatchesKey(query_id=query_id), CommittedBatchesValue(batch_ids=batch_ids))

    shard.commit_together(CommitTogetherRequest(query_id="new"), TICKET, Outcome(shard.replay), age_ms)

    assert {*remembered, "new"} - set(shard.transactions.batches) == {forgotten}

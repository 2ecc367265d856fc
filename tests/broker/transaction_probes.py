"""Probes of the transaction APIs: each version gets a request that must succeed in a transaction that fits it."""

from __future__ import annotations

from typing import Any

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import add_partitions_to_txn as adding
from ottla.protocol.messages import commit_together as together
from ottla.protocol.messages import describe_commit as commits
from ottla.protocol.messages import describe_transactions as describe
from ottla.protocol.messages import keep_transactions as keeping
from ottla.protocol.messages import list_transactions as listing
from ottla.protocol.messages import write_txn_markers as marking
from ottla.protocol.schema import Message
from ottla.records.batch import peek
from tests.broker.handlers.group_requests import fetched
from tests.broker.probing import TOPIC, Probe, Scene
from tests.broker.transactional_producer import TransactionalProducer, committed_values, markers
from tests.storage.workbench import sequenced

QUERY = "query"
SLOT = "query/0"
HANGING = 4_242


def producer_of(found: Scene, transactional_id: str = SLOT) -> TransactionalProducer:
    """A producer with nothing open; the same one whoever asks, as long as nothing has ended."""
    return TransactionalProducer(found.stage, transactional_id).init()


def writing(found: Scene) -> TransactionalProducer:
    """A producer with a transaction open in the second partition."""
    producer = producer_of(found)
    assert producer.produce(b"a", topic=TOPIC, partition=1) == ErrorCode.NONE
    return producer


def opened(producer: TransactionalProducer) -> together.OpenTransaction:
    return together.OpenTransaction(
        transactional_id=SLOT, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


def state(found: Scene) -> Any:
    return TransactionalProducer(found.stage, SLOT).state()


# --- requests ----------------------------------------------------------------------------------------------


def add(found: Scene) -> Message:
    producer = producer_of(found)
    if found.version < 4:
        return producer.add_request((TOPIC, 0), (TOPIC, 1))
    transaction = adding.AddPartitionsToTxnTransaction(
        transactional_id=SLOT,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[adding.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
    )
    return adding.AddPartitionsToTxnRequest(transactions=[transaction])


def add_offsets(found: Scene) -> Message:
    return producer_of(found).add_offsets_request("group")


def end(found: Scene) -> Message:
    return writing(found).end_request()


def write_markers(found: Scene) -> Message:
    open_batch = sequenced(HANGING, 0, transactional=True)
    found.stage.partition(TOPIC, 1).append(open_batch, peek(open_batch))
    marker = marking.WritableTxnMarker(
        producer_id=HANGING,
        producer_epoch=1,
        transaction_result=True,
        topics=[marking.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[1])],
        transaction_version=2 if found.version >= 2 else 0,
    )
    return marking.WriteTxnMarkersRequest(markers=[marker])


def commit_offsets(found: Scene) -> Message:
    producer = writing(found)
    if found.version < 5:
        assert producer.add_offsets("group") == ErrorCode.NONE
    return producer.offsets_request(2, group="group", topic=TOPIC)


def list_transactions(found: Scene) -> Message:
    producer = writing(found)
    producer_of(found, "other").end(committed=False)
    found.stage.scheduler.advance(1_000)
    return listing.ListTransactionsRequest(
        state_filters=["Ongoing", "CompleteAbort", "Strange"],
        producer_id_filters=[producer.producer_id],
        duration_filter=500 if found.version >= 1 else -1,
        transactional_id_pattern="que.*" if found.version >= 2 else None,
    )


def describe_transactions(found: Scene) -> Message:
    writing(found)
    return describe.DescribeTransactionsRequest(transactional_ids=[SLOT, "unknown"])


def commit_together(found: Scene) -> Message:
    return together.CommitTogetherRequest(query_id=QUERY, batch_id=7, transactions=[opened(writing(found))])


def describe_commit(found: Scene) -> Message:
    response = found.stage.call(commit_together(found))
    assert response.error_code == ErrorCode.NONE, response.error_message
    return commits.DescribeCommitRequest(query_id=QUERY, batch_id=7)


def keep(found: Scene) -> Message:
    return keeping.KeepTransactionsRequest(query_id=QUERY, transactions=[opened(writing(found))])


# --- what must be true of the answers ----------------------------------------------------------------------


def check_added(found: Scene, response: Any) -> None:
    topics = response.results_by_topic_v3_and_below
    if found.version >= 4:
        (result,) = response.results_by_transaction
        assert result.transactional_id == SLOT
        topics = result.topic_results
    told = [
        (topic.name, each.partition_index, each.partition_error_code)
        for topic in topics
        for each in topic.results_by_partition
    ]
    assert told == [(TOPIC, 0, ErrorCode.NONE), (TOPIC, 1, ErrorCode.NONE)]
    assert [(topic.topic, list(topic.partitions)) for topic in state(found).topics] == [(TOPIC, [0, 1])]


def check_offsets_added(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE
    assert [topic.topic for topic in state(found).topics] == ["__consumer_offsets"]


def check_ended(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE
    assert response.producer_epoch == (1 if found.version >= 5 else -1)
    assert state(found).transaction_state == "CompleteCommit"
    assert committed_values(found.stage, TOPIC, 1) == [b"a"]


def check_marked(found: Scene, response: Any) -> None:
    (result,) = response.markers
    assert result.producer_id == HANGING
    told = [(each.partition_index, each.error_code) for each in result.topics[0].partitions]
    assert (result.topics[0].name, told) == (TOPIC, [(1, ErrorCode.NONE)])
    assert markers(found.stage, TOPIC, 1) == [(HANGING, 1, "COMMIT")]


def check_offsets_committed(found: Scene, response: Any) -> None:
    partition = response.topics[0].partitions[0]
    assert (response.topics[0].name, partition.error_code) == (TOPIC, ErrorCode.NONE)
    assert fetched(found.stage, [(TOPIC, 0)], group="group")[TOPIC, 0] == -1
    epoch = state(found).producer_epoch
    TransactionalProducer(found.stage, SLOT, producer_id=state(found).producer_id, epoch=epoch).end()
    assert fetched(found.stage, [(TOPIC, 0)], group="group")[TOPIC, 0] == 2


def check_listed(found: Scene, response: Any) -> None:
    assert (response.error_code, list(response.unknown_state_filters)) == (ErrorCode.NONE, ["Strange"])
    (told,) = response.transaction_states
    assert (told.transactional_id, told.transaction_state) == (SLOT, "Ongoing")


def check_described(found: Scene, response: Any) -> None:
    known, unknown = response.transaction_states
    assert (known.error_code, known.transactional_id, known.transaction_state) == (ErrorCode.NONE, SLOT, "Ongoing")
    assert known.transaction_timeout_ms == 60_000
    assert [(topic.topic, list(topic.partitions)) for topic in known.topics] == [(TOPIC, [1])]
    assert (unknown.transactional_id, unknown.error_code) == ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def check_together(found: Scene, response: Any) -> None:
    assert (response.error_code, response.is_repeated) == (ErrorCode.NONE, False)
    assert committed_values(found.stage, TOPIC, 1) == [b"a"]


def check_commit(found: Scene, response: Any) -> None:
    assert (response.error_code, response.is_committed, response.last_batch_id) == (ErrorCode.NONE, True, 7)


def check_kept(found: Scene, response: Any) -> None:
    assert response.error_code == ErrorCode.NONE
    assert state(found).transaction_state == "Ongoing"


TRANSACTION_PROBES: dict[ApiKey, Probe] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: Probe(add, check_added),
    ApiKey.ADD_OFFSETS_TO_TXN: Probe(add_offsets, check_offsets_added),
    ApiKey.END_TXN: Probe(end, check_ended),
    ApiKey.WRITE_TXN_MARKERS: Probe(write_markers, check_marked),
    ApiKey.TXN_OFFSET_COMMIT: Probe(commit_offsets, check_offsets_committed),
    ApiKey.DESCRIBE_TRANSACTIONS: Probe(describe_transactions, check_described),
    ApiKey.LIST_TRANSACTIONS: Probe(list_transactions, check_listed),
    ApiKey.COMMIT_TOGETHER: Probe(commit_together, check_together),
    ApiKey.DESCRIBE_COMMIT: Probe(describe_commit, check_commit),
    ApiKey.KEEP_TRANSACTIONS: Probe(keep, check_kept),
}

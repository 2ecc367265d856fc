"""How records, replies and orders of transactions read in a scenario: one line each, nothing left out that matters."""

from __future__ import annotations

import msgspec

from ottla.coordinators.outcome import CoordinatorRecord
from ottla.coordinators.transactions.markers import WriteMarkers
from ottla.coordinators.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CommittedBatchesKey,
    CommittedBatchesValue,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
)
from ottla.protocol.messages.describe_transactions import TransactionState as Described
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.protocol.schema import Message

HIDDEN = frozenset({"throttle_time_ms", "unknown_tags"})


def shown_record(record: CoordinatorRecord) -> str:
    """`record t Ongoing producer=1 epoch=0 timeout=60000 started=0 updated=0 p-0`."""
    key, value = record
    if isinstance(key, CommittedBatchesKey):
        if value is None:
            return f"record commits of {key.query_id} tombstone"
        assert isinstance(value, CommittedBatchesValue)
        batches = " ".join(str(each) for each in value.batch_ids)
        return f"record commits of {key.query_id} {batches} updated={value.last_update_timestamp_ms}"
    assert isinstance(key, TransactionLogKey)
    if value is None:
        return f"record {key.transactional_id} tombstone"
    assert isinstance(value, TransactionLogValue)
    return f"record {key.transactional_id} {_shown_value(value)}"


def _shown_value(value: TransactionLogValue) -> str:
    parts = [TransactionStatus(value.transaction_status).told]
    parts += [f"producer={value.producer_id}", f"epoch={value.producer_epoch}"]
    if value.last_producer_epoch != NO_PRODUCER_EPOCH:
        parts.append(f"last={value.last_producer_epoch}")
    if value.previous_producer_id != NO_PRODUCER_ID:
        parts.append(f"previous={value.previous_producer_id}")
    if (value.next_producer_id, value.next_producer_epoch) != (NO_PRODUCER_ID, NO_PRODUCER_EPOCH):
        parts.append(f"next={value.next_producer_id}:{value.next_producer_epoch}")
    if value.is_fenced:
        parts.append("fenced")
    if value.client_transaction_version:
        parts.append(f"version={value.client_transaction_version}")
    parts.append(f"timeout={value.transaction_timeout_ms}")
    parts.append(f"started={value.transaction_start_timestamp_ms}")
    parts.append(f"updated={value.transaction_last_update_timestamp_ms}")
    topics = value.transaction_partitions or ()
    parts += [f"{topic.topic}-{partition}" for topic in topics for partition in topic.partition_ids]
    return " ".join(parts)


def shown_order(order: WriteMarkers) -> str:
    """`order t: COMMIT producer=1 epoch=1 p-0 p-1`."""
    places = " ".join(f"{topic}-{partition}" for topic, partition in order.partitions)
    told = f"{order.marker_type.name} producer={order.producer_id} epoch={order.producer_epoch}"
    return f"order {order.transactional_id}: {told} {places or 'nowhere'}"


def shown_reply(response: Message) -> str:
    """The name of the API and what the answer says."""
    name = type(response).__name__.removesuffix("Response")
    if isinstance(response, ListTransactionsResponse):
        found = [
            f"{each.transactional_id}({each.producer_id} {each.transaction_state})"
            for each in response.transaction_states
        ]
        unknown = [f"unknown={each}" for each in response.unknown_state_filters]
        return " ".join([name, *(found or ["none"]), *unknown])
    if isinstance(response, Described):
        places = [f"{topic.topic}-{each}" for topic in response.topics for each in topic.partitions]
        told = [
            response.transactional_id,
            response.transaction_state,
            f"producer={response.producer_id}",
            f"epoch={response.producer_epoch}",
            f"timeout={response.transaction_timeout_ms}",
            f"started={response.transaction_start_time_ms}",
        ]
        return " ".join(["Describe", *told, *places])
    if isinstance(response, InitProducerIdResponse | EndTxnResponse) and response.producer_id != NO_PRODUCER_ID:
        return f"{name} producer={response.producer_id} epoch={response.producer_epoch}"
    fields = [
        f"{field.name}={getattr(response, field.name)}"
        for field in msgspec.structs.fields(response)
        if field.name not in HIDDEN and getattr(response, field.name) != field.default
    ]
    return " ".join([name, *fields])

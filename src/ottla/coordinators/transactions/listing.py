"""ListTransactions and DescribeTransactions: what tools are shown."""

from __future__ import annotations

from typing import Any

from ottla.coordinators.groups.regex_subscriptions import compile_pattern
from ottla.coordinators.transactions.records import TransactionStatus
from ottla.coordinators.transactions.transaction import Transaction
from ottla.coordinators.transactions.transactions import Transactions
from ottla.errors import TransactionalIdNotFound
from ottla.protocol.messages.describe_transactions import TopicData
from ottla.protocol.messages.describe_transactions import TransactionState as Described
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.list_transactions import TransactionState as Listed

_BY_NAME = {status.told: status for status in TransactionStatus}
_RUNNING = (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


class Listing:
    """Tells; decides nothing."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def listed(self, request: ListTransactionsRequest, now_ms: int) -> ListTransactionsResponse:
        """Those that pass every filter that was given."""
        pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
        statuses = {_BY_NAME[name] for name in request.state_filters if name in _BY_NAME}
        producer_ids = frozenset(request.producer_id_filters)
        found = []
        for transaction in self._transactions:
            if request.state_filters and transaction.status not in statuses:
                continue
            if producer_ids and transaction.value.producer_id not in producer_ids:
                continue
            if request.duration_filter >= 0 and not _runs_longer(transaction, request.duration_filter, now_ms):
                continue
            if pattern is not None and not _matches(pattern, transaction.transactional_id):
                continue
            found.append(
                Listed(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.value.producer_id,
                    transaction_state=transaction.status.told,
                )
            )
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in _BY_NAME],
            transaction_states=found,
        )

    def described(self, transactional_id: str) -> Described:
        """All that is known of one id."""
        found = self._transactions.get(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(f"nothing is known of transactional id {transactional_id!r}")
        value = found.value
        return Described(
            transactional_id=transactional_id,
            transaction_state=found.status.told,
            transaction_timeout_ms=value.transaction_timeout_ms,
            transaction_start_time_ms=value.transaction_start_timestamp_ms,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            topics=[
                TopicData(topic=topic.topic, partitions=topic.partition_ids)
                for topic in value.transaction_partitions or ()
            ],
        )


def _runs_longer(transaction: Transaction, duration_ms: int, now_ms: int) -> bool:
    is_running = transaction.status in _RUNNING
    return is_running and now_ms - transaction.value.transaction_start_timestamp_ms > duration_ms


def _matches(pattern: Any, transactional_id: str) -> bool:
    return pattern.fullmatch(transactional_id.encode("utf-8", "surrogatepass")) is not None

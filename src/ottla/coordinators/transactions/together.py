"""Commits of several transactions as one, for a query whose tasks each write in a transaction of their own.

The decisions about all of them and the key of the commit are one batch of records, so that a crash keeps all or none.
A key is committed once: whoever asks again is told that it has been, and nothing else happens. The latest keys of each
query are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.transactions.claims import shard_key
from ottla.coordinators.transactions.records import CommittedBatchesKey, CommittedBatchesValue, TransactionStatus
from ottla.coordinators.transactions.transaction import VERSION_1, Transaction
from ottla.coordinators.transactions.transactions import TIMEOUT, TIMERS, Transactions
from ottla.errors import ConcurrentTransactions, InvalidRequest, InvalidTransactionState
from ottla.protocol.messages.commit_together import CommitTogetherRequest, CommitTogetherResponse, OpenTransaction
from ottla.protocol.messages.describe_commit import DescribeCommitRequest, DescribeCommitResponse
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest, KeepTransactionsResponse
from ottla.records.control import MarkerType

BATCHES_KEPT = 100
"""How many keys of a query are remembered. A query asks about its last one when it begins again."""
QUERY_CHARACTERS_MAX = 1_000
QUERIES_MAX = 10_000
"""How many queries a shard remembers: for one more, one is forgotten that has been silent for longest."""
ONE_BATCH_KEPT_MS = 3_600_000
"""How long a query that has committed nothing but its batch 0 is as good as any other.

Whoever writes one batch and no more, under a name for this once, asks about it within moments or never. Such names are
many, and must not push out queries that go on.
"""
TRANSACTIONS_MAX = 10_000
PARTITIONS_MAX = 1_000_000
COMMIT_BYTES_MAX = 32 << 20
"""What one commit may come to, so that its records fit one batch."""
_RECORD_BYTES = 150
_TOPIC_BYTES = 16
_PARTITION_BYTES = 4
"""What a record takes beside names, each of its topics beside the name, and each of their partitions; at most."""


class Together:
    """Decides about group commits."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def commit(self, request: CommitTogetherRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Commit all or refuse all."""
        _check_query(request.query_id, request.transactions)
        if request.batch_id < 0:
            raise InvalidRequest(f"batch id {request.batch_id}; it counts from 0")
        known = self._transactions.batches.get(request.query_id)
        batch_ids = () if known is None else tuple(known.batch_ids)
        if request.batch_id in batch_ids:
            outcome.reply(ticket, CommitTogetherResponse(is_repeated=True))
            return
        _check_age(request.batch_id, batch_ids)
        open_ones = [found for named in request.transactions if (found := self._committable(named)) is not None]
        if sum(len(found.partitions) for found in open_ones) > PARTITIONS_MAX:
            raise InvalidRequest(f"the transactions have more than {PARTITIONS_MAX} partitions together")
        commit_bytes = sum(map(record_bytes, open_ones))
        if commit_bytes > COMMIT_BYTES_MAX:
            # A batch that cannot be written would end the shard, and whoever asked would only ask again.
            raise InvalidRequest(f"the commit comes to {commit_bytes} bytes, the limit is {COMMIT_BYTES_MAX}")
        for found in open_ones:
            # A slot is initialized again before its next transaction: that is soon enough for another producer id.
            value = found.ended(MarkerType.COMMIT, now_ms, bumped=True)
            self._transactions.end(found.transactional_id, value, outcome)
        if known is None:
            self._forget_oldest(outcome, now_ms)
        outcome.write(
            CommittedBatchesKey(query_id=request.query_id),
            CommittedBatchesValue(
                batch_ids=(*batch_ids, request.batch_id)[-BATCHES_KEPT:], last_update_timestamp_ms=now_ms
            ),
        )
        outcome.reply(ticket, CommitTogetherResponse())

    def _forget_oldest(self, outcome: Outcome, now_ms: int) -> None:
        """Make room for one more query."""
        batches = self._transactions.batches
        if len(batches) < QUERIES_MAX:
            return
        forgotten = next(iter(batches))
        for query_id, known in batches.items():
            # They are in the order of their last commits.
            if known.last_update_timestamp_ms > now_ms - ONE_BATCH_KEPT_MS:
                break
            if tuple(known.batch_ids) == (0,):
                forgotten = query_id
                break
        outcome.write(CommittedBatchesKey(query_id=forgotten), None)

    def _committable(self, named: OpenTransaction) -> Transaction | None:
        """The transaction to commit; None if its producer has written nothing. Raises a Refusal for any other state."""
        found = self._transactions.of_claimant(
            named.transactional_id, producer_id=named.producer_id, producer_epoch=named.producer_epoch
        )
        if found.status is TransactionStatus.ONGOING:
            return found
        if found.ending is not None:
            raise ConcurrentTransactions(f"the last transaction of {named.transactional_id!r} is still being ended")
        if found.status is TransactionStatus.COMPLETE_ABORT and found.value.client_transaction_version == VERSION_1:
            # The epoch is that of what was aborted, so nobody can tell that from a transaction without a batch.
            raise InvalidTransactionState(f"the transaction of {named.transactional_id!r} was aborted")
        return None

    def describe(self, request: DescribeCommitRequest, ticket: Ticket, outcome: Outcome) -> None:
        """Whether a key is committed."""
        known = self._transactions.batches.get(request.query_id)
        if known is not None and request.batch_id not in known.batch_ids:
            _check_age(request.batch_id, known.batch_ids)
        outcome.reply(
            ticket,
            DescribeCommitResponse(
                is_committed=known is not None and request.batch_id in known.batch_ids,
                last_batch_id=known.batch_ids[-1] if known is not None and known.batch_ids else -1,
            ),
        )

    def keep(self, request: KeepTransactionsRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Let the time of open transactions begin anew, or refuse it for all if one is no longer open."""
        _check_query(request.query_id, request.transactions)
        kept = []
        for named in request.transactions:
            found = self._transactions.of_claimant(
                named.transactional_id, producer_id=named.producer_id, producer_epoch=named.producer_epoch
            )
            if found.status is not TransactionStatus.ONGOING:
                raise InvalidTransactionState(f"{named.transactional_id!r} has no transaction open")
            kept.append(found)
        for found in kept:
            at_ms = now_ms + found.value.transaction_timeout_ms
            outcome.set_timer((TIMERS, TIMEOUT, found.transactional_id), at_ms=at_ms)
        outcome.reply(ticket, KeepTransactionsResponse())


def record_bytes(found: Transaction) -> int:
    """What the decision about a transaction takes in a batch; a topic stands in it by its name, however long."""
    topics_bytes = sum(
        _TOPIC_BYTES + len(topic.topic) + _PARTITION_BYTES * len(topic.partition_ids)
        for topic in found.value.transaction_partitions or ()
    )
    return _RECORD_BYTES + len(found.transactional_id.encode("utf-8", "surrogatepass")) + topics_bytes


def _check_age(batch_id: int, batch_ids: Sequence[int]) -> None:
    """Of a batch from before those that are remembered nobody knows whether it was committed."""
    if len(batch_ids) >= BATCHES_KEPT and batch_id < min(batch_ids):
        raise InvalidRequest(f"batch {batch_id} is older than the {BATCHES_KEPT} that are remembered of this query")


def _check_query(query_id: str, transactions: Sequence[OpenTransaction]) -> None:
    if not 0 < len(query_id) <= QUERY_CHARACTERS_MAX:
        raise InvalidRequest(f"a query id of {len(query_id)} characters; it may have 1 to {QUERY_CHARACTERS_MAX}")
    if len(transactions) > TRANSACTIONS_MAX:
        raise InvalidRequest(f"{len(transactions)} transactions at once; {TRANSACTIONS_MAX} are the limit")
    seen = set()
    for named in transactions:
        transactional_id = named.transactional_id
        if shard_key(transactional_id) != query_id:
            raise InvalidRequest(f"transactional id {transactional_id!r} does not begin with the query id and a slash")
        if transactional_id in seen:
            raise InvalidRequest(f"transactional id {transactional_id!r} is named twice")
        seen.add(transactional_id)

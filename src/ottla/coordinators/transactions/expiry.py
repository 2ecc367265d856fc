"""Transactional ids, and keys of commits, that nobody has used for long are forgotten; a few in one go."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ottla.coordinators.outcome import Outcome
from ottla.coordinators.transactions.records import (
    CommittedBatchesKey,
    TransactionLogKey,
    TransactionStatus,
)
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.transactions import TIMERS, Transactions

EXPIRE = "expire"
KEYS_KEPT_MS = 400 * 24 * 60 * 60 * 1_000
"""How long the keys of a query are remembered: it may be begun again long after it was stopped, and asks for them."""
PIECE_ENTRIES = 500
PIECE_BYTES = 1 << 20
"""What is looked at, and what is written, in one go."""

_AT_REST = (TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


class Expiry:
    """Looks through all of them every now and then."""

    def __init__(self, transactions: Transactions, settings: TransactionSettings) -> None:
        self._transactions = transactions
        self._settings = settings
        self._ids: Iterator[str] | None = None
        self._queries: Iterator[str] = iter(())

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        outcome.set_timer((TIMERS, EXPIRE), at_ms=now_ms + self._settings.expiry_interval_ms)

    def on_timer(self, outcome: Outcome, now_ms: int) -> None:
        """Look at the next piece."""
        if self._ids is None:
            self._ids = iter([found.transactional_id for found in self._transactions])
            self._queries = iter(tuple(self._transactions.batches))
        if self._look(self._ids, self._queries, outcome, now_ms):
            outcome.set_timer((TIMERS, EXPIRE), at_ms=now_ms)
        else:
            self._ids = None
            self.loaded(outcome, now_ms)

    def _look(self, ids: Iterator[str], queries: Iterator[str], outcome: Outcome, now_ms: int) -> bool:
        """Whether there is more to look at."""
        oldest_ms = now_ms - self._settings.id_expiration_ms
        looked_at = written_bytes = 0
        for transactional_id in islice(ids, PIECE_ENTRIES):
            looked_at += 1
            found = self._transactions.get(transactional_id)
            if found is None or found.status not in _AT_REST:
                continue
            if found.value.transaction_last_update_timestamp_ms <= oldest_ms:
                outcome.write(TransactionLogKey(transactional_id=transactional_id), None)
                written_bytes += len(transactional_id)
                if written_bytes >= PIECE_BYTES:
                    return True
        for query_id in islice(queries, PIECE_ENTRIES - looked_at):
            looked_at += 1
            known = self._transactions.batches.get(query_id)
            if known is not None and known.last_update_timestamp_ms <= now_ms - KEYS_KEPT_MS:
                outcome.write(CommittedBatchesKey(query_id=query_id), None)
        return looked_at >= PIECE_ENTRIES

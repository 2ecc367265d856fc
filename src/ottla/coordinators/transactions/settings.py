"""The settings of transactions, read once from the broker's configs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's own names and defaults."""

    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`"""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1_000
    """`transactional.id.expiration.ms`: how long an id is remembered after its last transaction."""
    expiry_interval_ms: int = 60 * 60 * 1_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""

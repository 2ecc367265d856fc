"""A copier by Ottla's own client and its loop of transactions, in either protocol of groups; version 2.

The loop does not tell when a turn was committed: the next one comes. So this says of each transaction that it has
begun, and of those that it gives up on purpose that it has.
"""

from __future__ import annotations

from typing import Any

import ottla
from ottla import ProducerFenced
from tests.clients.groups.members import Wish
from tests.clients.transactions.copy_copier import ANSWER_SECONDS_MAX, Errand, Notes

HEARTBEATS_IN_A_SESSION = 6


def run_classic(errand: Errand, notes: Notes, wish: Wish) -> None:
    session = {
        "session_timeout_ms": errand.session_ms,
        "heartbeat_interval_ms": errand.session_ms // HEARTBEATS_IN_A_SESSION,
    }
    _run(errand, notes, wish, {"protocol": "classic", **session})


def run_consumer(errand: Errand, notes: Notes, wish: Wish) -> None:
    _run(errand, notes, wish, {"protocol": "consumer"})


def _run(errand: Errand, notes: Notes, wish: Wish, settings: dict[str, Any]) -> None:
    with (
        ottla.connect(errand.address, client_id=errand.name, retry_backoff_ms=20, retry_backoff_max_ms=200) as client,
        client.process(
            errand.source,
            group=errand.group,
            transactional_id=errand.transactional_id,
            consumer={**settings, "records_max": errand.transaction_records_max, "fetch_wait_ms": 100},
            # Several requests for each transaction, so that a kill finds it half written.
            producer={"batch_bytes": 512, "linger_ms": 1, "transaction_timeout_ms": ANSWER_SECONDS_MAX * 1000},
        ) as work,
    ):
        notes.started()
        try:
            while wish.is_to_stay:
                _copy(errand, notes, wish, work)
        except ProducerFenced as error:
            notes.fenced(repr(error))
            notes.fatal(repr(error))
            return
    notes.left()


def _copy(errand: Errand, notes: Notes, wish: Wish, work: ottla.Processor) -> None:
    """Turn after turn, until one is given up: the records of a turn that is left in the middle come again."""
    for records in work:
        number = notes.begin(len(records))
        for record in records:
            work.send(errand.target, record.value, record.key, partition=record.partition, headers=number.headers)
        work.send(errand.receipts, number.receipt, partition=number.receipt_partition(errand.partitions))
        if not wish.is_to_stay:
            work.stop()
        elif notes.is_to_abort():
            notes.aborted(number, "on purpose")
            return

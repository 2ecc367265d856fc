"""The broker's settings of transactions and of the topic that keeps them, with Kafka's names and defaults.

All are read once, when the broker starts.
"""

from __future__ import annotations

from ottla.config import Kind, Setting
from ottla.metadata.group_configs import PARTITIONS_MAX

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def _number(name: str, default: int, text: str, *, at_least: int = 1, at_most: int | None = None) -> Setting:
    return Setting(name=name, kind=Kind.INT, default=default, at_least=at_least, at_most=at_most, help=text)


TRANSACTION_SETTINGS = (
    _number(
        "transaction.max.timeout.ms",
        15 * MINUTE_MS,
        "The longest transaction timeout that a producer may ask for; a transaction that is open for longer than its "
        "timeout is aborted.",
    ),
    _number(
        "transactional.id.expiration.ms",
        7 * DAY_MS,
        "How long a transactional id is remembered after its last transaction.",
    ),
    _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        "How often transactional ids that have outlived their time are looked for.",
    ),
    _number(
        "transaction.state.log.num.partitions",
        50,
        "How many partitions __transaction_state gets when it is made; transactional ids are spread over them, so the "
        "number of an existing topic must not change.",
        at_most=PARTITIONS_MAX,
    ),
    _number(
        "transaction.state.log.replication.factor",
        1,
        "How many copies __transaction_state gets when it is made.",
        at_most=2**15 - 1,
    ),
    _number(
        "transaction.state.log.segment.bytes",
        100 << 20,
        "The size of a segment of __transaction_state: small ones are compacted sooner, and read back faster.",
        at_least=14,
    ),
)

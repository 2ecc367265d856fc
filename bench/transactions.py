"""What a transaction costs: a transactional producer against a plain idempotent one, of the same client.

Both send the same records to as many partitions of the same server, acks=all, and every transaction touches all of the
partitions. The plain one is asked twice: once it waits for its records as often as the other commits, so that the
ratio is the price of the transactions alone; and once it waits only when all are sent, as a program would that need
not care. The ratio in the table is the share of the plain rate that is left.

A row cannot pass on a broken path: after each turn the ends of all partitions as a read_committed reader sees them must
be exactly where the records and one marker for each transaction put them, and when all is measured everything is read
back. The version of transactions (KIP-890) is what the client chose, read off its epoch. This knows the server
only as its clients do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

import ottla
from bench.network import start_process
from bench.turns import Comparison, Side

VALUE = bytes(256)
PARTITIONS = 6
SHAPES = ((100, 10), (10_000, 1))
"""Records in a transaction, and how many transactions one timed call makes."""
WAIT_S = 30.0
LOOK_AGAIN_S = 0.005
READ_MAX = 10_000


class Sending(Protocol):
    """A producer of either client: sends one record after the other to the partitions in turn."""

    def send(self, topic: str, *, records: int) -> None:
        """Plain: return when all are acknowledged."""

    def commit(self, topic: str, *, records: int) -> None:
        """The same in a transaction: return when it is committed."""


class Confluent:
    """What most people use, with its defaults."""

    def __init__(self, bootstrap: str, transactional_id: str | None = None) -> None:
        settings: dict[str, object] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        # It complains of the server's end, which is none of the run's concern.
        self._producer = ConfluentProducer({**settings, "log_level": 0})
        if transactional_id is not None:
            self._producer.init_transactions(WAIT_S)

    def send(self, topic: str, *, records: int) -> None:
        self._hand_over(topic, records)
        left = self._producer.flush(WAIT_S)
        assert left == 0, f"{left} records were not acknowledged within {WAIT_S} s"

    def commit(self, topic: str, *, records: int) -> None:
        self._producer.begin_transaction()
        self._hand_over(topic, records)
        self._producer.commit_transaction(WAIT_S)

    def _hand_over(self, topic: str, records: int) -> None:
        produce = self._producer.produce
        for number in range(records):
            produce(topic, VALUE, partition=number % PARTITIONS)


class Own:
    """Our own client. A call hands over all records at once, which is its quickest way."""

    def __init__(self, producer: ottla.Producer) -> None:
        self._producer = producer
        self._batches = {
            count: [ottla.NewRecord(VALUE, partition=number % PARTITIONS) for number in range(count)]
            for count in {size for records, transactions in SHAPES for size in (records, records * transactions)}
        }

    def send(self, topic: str, *, records: int) -> None:
        self._producer.send_batch(topic, self._batches[records])

    def commit(self, topic: str, *, records: int) -> None:
        with self._producer.transaction():
            self._producer.send_batch(topic, self._batches[records])


class Ledger:
    """What was sent to one topic, and so what must be there."""

    def __init__(self, admin: ottla.Admin, topic: str) -> None:
        self.topic = topic
        self._admin = admin
        self._ends = [0] * PARTITIONS
        self._markers = 0
        admin.create_topic(topic, partitions=PARTITIONS)

    @property
    def records(self) -> int:
        return sum(self._ends) - self._markers * PARTITIONS

    def send(self, producer: Sending, *, records: int, times: int) -> None:
        for _ in range(times):
            producer.send(self.topic, records=records)
            self._count(records=records, markers=0)

    def commit(self, producer: Sending, *, records: int, times: int) -> None:
        for _ in range(times):
            producer.commit(self.topic, records=records)
            self._count(records=records, markers=1)

    def _count(self, *, records: int, markers: int) -> None:
        self._markers += markers
        for number in range(PARTITIONS):
            self._ends[number] += len(range(number, records, PARTITIONS)) + markers

    def check_ends(self) -> None:
        """Wait until readers of committed records may read all of it: markers come after the answer to a commit."""
        wanted = {(self.topic, number): ottla.OffsetSpec.LATEST for number in range(PARTITIONS)}
        until = monotonic() + WAIT_S
        while True:
            found = self._admin.list_offsets(wanted, isolation="read_committed")
            ends = [-1 if (place := found[key]) is None else place.offset for key in sorted(found)]
            if ends == self._ends:
                return
            if monotonic() > until:
                raise RuntimeError(f"{self.topic} ends at {ends} for readers; what was sent ends at {self._ends}")
            sleep(LOOK_AGAIN_S)

    def check_records(self, bootstrap: str) -> None:
        """Read everything back; an aborted transaction has markers too, but no record that comes."""
        settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        consumer.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        count = 0
        try:
            # It gives fewer than it is asked for only when the time is over.
            while messages := consumer.consume(min(READ_MAX, self.records - count), WAIT_S):
                assert all(message.error() is None for message in messages)
                count += len(messages)
                if count == self.records:
                    break
        finally:
            consumer.close()
        if count != self.records:
            raise RuntimeError(f"{self.topic} gives {count:,} committed records of {self.records:,}")


@contextmanager
def comparisons(directory: Path) -> Iterator[list[Comparison]]:
    """Both clients at both sizes, on one server that runs while they are measured."""
    data = directory / "transactions"
    serve = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    with ExitStack() as stack:
        _, bootstrap = start_process(stack, serve)
        client = stack.enter_context(ottla.connect(bootstrap))
        admin = client.admin()
        own = Own(stack.enter_context(client.producer(transactional_id="ottla.connect")))
        clients: list[tuple[str, Sending, Sending]] = [
            ("confluent-kafka", Confluent(bootstrap, "confluent-kafka"), Confluent(bootstrap)),
            ("ottla.connect", own, Own(stack.enter_context(client.producer()))),
        ]
        rows, ledgers = [], [Ledger(admin, "first")]
        for name, transactional, plain in clients:
            ledgers[0].commit(transactional, records=SHAPES[0][0], times=1)
            version = transactions_version(admin, name)
            for records, transactions in SHAPES:
                topic = f"{name}-{records}"
                committed, sent = Ledger(admin, topic), Ledger(admin, f"{topic}-plain")
                ledgers += [committed, sent]
                sides = (transactional, committed), (plain, sent)
                rows.append(_row(f"{name}, version {version}", *sides, records=records, transactions=transactions))
        yield rows
        for ledger in ledgers:
            ledger.check_records(bootstrap)


def _row(
    client: str, ours: tuple[Sending, Ledger], peer: tuple[Sending, Ledger], *, records: int, transactions: int
) -> Comparison:
    commit = partial(ours[1].commit, ours[0], records=records)
    send = partial(peer[1].send, peer[0])
    as_often = partial(send, records=records, times=transactions)
    once = partial(send, records=records * transactions, times=1)
    peers = [("idempotent, waits as often", as_often)]
    if transactions > 1:
        peers.append(("idempotent, waits once", once))
    # The markers of a transaction are written while the next one begins, so none is timed as if it were the first:
    # each turn follows upon a transaction that is not timed. The plain side warms up in the same way.
    return Comparison(
        f"{transactions} transaction{'s' * (transactions > 1)} of {records:,} records",
        f"{client}, {len(VALUE)} B, {PARTITIONS} partitions, acks=all, on disk",
        Side("transactional", partial(commit, times=transactions), partial(commit, times=1), ours[1].check_ends),
        tuple((Side(name, work, as_often, peer[1].check_ends), None) for name, work in peers),
    )


def transactions_version(admin: ottla.Admin, transactional_id: str) -> int:
    """Which version of transactions a producer speaks that has committed one: from 2 on that gave it a new epoch."""
    described = admin.describe_transaction(transactional_id)
    assert described is not None, f"{transactional_id} has committed a transaction and is not known"
    return 2 if described.producer_epoch > 0 else 1

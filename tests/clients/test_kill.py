"""`kill -9` of the server under load from confluent-kafka: what was acknowledged is there, once, in order.

KILL_ROUNDS says how often (default 8). The idempotent producer lives through all rounds and sends again what a
kill left unanswered; the plain one is new in each round and never sends twice.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.server_process import Make, ServerProcess
from tests.report import Report
from tests.server.wire import Wire

ROUNDS = int(os.environ.get("KILL_ROUNDS", "8"))
SEED = int(os.environ.get("KILL_SEED", "1"))
ACKNOWLEDGED_EACH = 1_000
PARTITIONS = 3
SEGMENT_BYTES = 65_536
TOPIC = "killed"
ROUND_SECONDS_MAX = 60
SECTION = "kill -9 under load"

Place = tuple[int, int]
"""Partition and offset."""


class Sender:
    """A producer that remembers what was acknowledged, and where."""

    def __init__(self, name: str, server: ServerProcess, **settings: str | int | bool) -> None:
        self.name = name
        self.acknowledged: dict[Place, bytes] = {}
        self.failed: Counter[str] = Counter()
        self.fatal: list[str] = []
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": server.address,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "error_cb": self._on_error,
                "log_level": 0,
                **settings,
            }
        )

    def send(self) -> None:
        """One record more; numbered, so that its place among the others can be checked."""
        number = self._sent
        value = b"%s %d " % (self.name.encode(), number) + b"." * (number % 300)
        try:
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._on_delivery)
        except BufferError:
            self._producer.poll(0.05)
        else:
            self._sent += 1
        self._producer.poll(0)

    def finish(self, seconds: float) -> int:
        """Wait for what is unanswered; how many still are."""
        return self._producer.flush(seconds)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed[error.name()] += 1
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        assert (partition, offset) not in self.acknowledged, "one place was given to two records"
        self.acknowledged[partition, offset] = value

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal.append(str(error))


def _number(value: bytes) -> tuple[bytes, int]:
    """Who sent a record, and as which of its own."""
    name, number, _ = value.split(b" ")
    return name, int(number)


def _live_and_die(server: ServerProcess, senders: list[Sender], chance: random.Random) -> None:
    """One round: load until enough is acknowledged and a little longer, then the kill."""
    already = sum(len(sender.acknowledged) for sender in senders)
    deadline = time.monotonic() + ROUND_SECONDS_MAX
    extra = chance.randrange(3_000)
    while sum(len(sender.acknowledged) for sender in senders) - already < ACKNOWLEDGED_EACH or extra > 0:
        for sender in senders:
            sender.send()
        extra -= 1
        assert time.monotonic() < deadline, [(sender.failed, sender.fatal) for sender in senders]
    server.kill()


def _found(server: ServerProcess) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    for partition in range(PARTITIONS):
        with Wire(server) as wire:
            yield partition, [(offset, value or b"") for offset, value in wire.fetch_all(TOPIC, partition=partition)]


def _check(server: ServerProcess, senders: list[Sender]) -> int:
    """Everything that was promised; the number of records in the log."""
    total = 0
    for partition, found in _found(server):
        assert [offset for offset, _ in found] == list(range(len(found))), "the offsets have no gaps"
        values = dict(found)
        for sender in senders:
            promised = {at: value for (of, at), value in sender.acknowledged.items() if of == partition}
            missing = {at: value for at, value in promised.items() if values.get(at) != value}
            assert not missing, f"{sender.name}: acknowledged and not there: {missing}"
            numbers = [number for name, number in map(_number, values.values()) if name == sender.name.encode()]
            assert numbers == sorted(set(numbers)), f"{sender.name}: in order, and none twice"
        total += len(found)
    return total


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order_when_the_server_is_killed(
    make_server: Make, report_lines: Report
) -> None:
    chance = random.Random(SEED)
    server = make_server(settings={"log.segment.bytes": str(SEGMENT_BYTES)}).start()
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    steady = Sender("steady", server, **{"enable.idempotence": True, "message.timeout.ms": 300_000})
    plain: list[Sender] = []
    for round_number in range(ROUNDS):
        plain.append(Sender(f"plain{round_number}", server, **{"message.send.max.retries": 0}))
        _live_and_die(server, [steady, plain[-1]], chance)
        server.start()
        _check(server, [steady, *plain])
    assert steady.finish(60) == 0
    assert not steady.fatal
    assert not steady.failed
    total = _check(server, [steady, *plain])

    acknowledged = sum(len(sender.acknowledged) for sender in (steady, *plain))
    segments = len(list(server.data.glob(f"{TOPIC}-*/*.log")))
    assert segments > ROUNDS * 2
    report_lines.say(
        SECTION,
        f"{ROUNDS} kills (seed {SEED}), {acknowledged} records acknowledged, {len(steady.acknowledged)} of them "
        f"idempotent, {total} in the log, {segments} segments",
    )

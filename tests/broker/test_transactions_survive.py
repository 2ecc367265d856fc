"""Transactions over crashes, restarts and compaction: each is there as a whole or not at all."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from ottla.coordinators.runtime import shard_index
from ottla.error_codes import ErrorCode
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.schema import Message
from ottla.storage.memory_disk import MemoryDisk
from tests.broker.handlers.group_requests import fetched
from tests.broker.stage import Sent, Stage, creation
from tests.broker.test_housekeeping import FakeCompactor
from tests.broker.transactional_producer import (
    TransactionalProducer,
    code_of,
    committed_values,
    end_offset,
    settle,
)

STATE = "__transaction_state"
PARTITIONS = 3
SEEDS = 30
STEPS = 40


class PowerLoss(Exception):
    """The broker went down while somebody waited for it."""


@dataclass
class Attempt:
    """One transaction, as its producer knows it."""

    value: bytes
    partitions: list[int]
    offset: int | None
    committed: bool | None = None
    """None as long as nobody was told."""


@dataclass
class World:
    """A broker that may lose its power in any moment, and what its clients have been told."""

    seed: int
    attempts: list[Attempt] = field(default_factory=list)
    crashes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        settings = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
        self.stage = Stage(settings, disk=MemoryDisk(seed=self.seed), held=True)
        self.stage.send(creation("t", PARTITIONS))
        settle(self.stage)

    def call(self, doing: str, request: Message, version: int) -> Sent:
        """Send a request and wait for its answer, if the power lasts."""
        sent = self.stage.send(request, version)
        for _ in range(1_000):
            self.stage.scheduler.run()
            if self.chance.random() < 0.02:
                self.crashes[doing] += 1
                raise PowerLoss
            if sent.is_answered:
                return sent
            if self.stage.jobs.waiting:
                self.stage.jobs.finish(self.chance.randrange(len(self.stage.jobs.waiting)))
            else:
                self.stage.scheduler.advance(10)
        raise AssertionError(f"{doing}: nobody answers")

    def transact(self, producer: TransactionalProducer, number: int) -> None:
        chance = self.chance
        partitions = sorted(chance.sample(range(PARTITIONS), chance.randrange(1, PARTITIONS + 1)))
        attempt = Attempt(b"%d" % number, partitions, number if chance.random() < 0.5 else None)
        self.attempts.append(attempt)
        for partition in partitions:
            if not producer.second:
                self.call("add", producer.add_request(("t", partition)), 3)
            data = producer.data(attempt.value, partition=partition)
            sent = self.call("produce", producer.request(("t", partition, data)), producer.version)
            assert code_of(sent) == ErrorCode.NONE, ErrorCode(code_of(sent))
        if attempt.offset is not None:
            if not producer.second:
                self.call("add offsets", producer.add_offsets_request(), 3)
            sent = self.call("offsets", producer.offsets_request(attempt.offset), 5 if producer.second else 3)
            assert sent.response.topics[0].partitions[0].error_code == ErrorCode.NONE
        committed = chance.random() < 0.7
        sent = self.call("end", producer.end_request(committed=committed), 5 if producer.second else 3)
        assert sent.response.error_code == ErrorCode.NONE, ErrorCode(sent.response.error_code)
        attempt.committed = committed
        if producer.second:
            producer.epoch = sent.response.producer_epoch
            producer.sequences.clear()

    def begin(self, transactional_id: str, *, second: bool) -> TransactionalProducer:
        producer = TransactionalProducer(self.stage, transactional_id, second=second)
        while True:
            response = self.call("init", producer.init_request(), 4).response
            # The coordinator may be reading its state back.
            if response.error_code == ErrorCode.NONE:
                producer.producer_id, producer.epoch = response.producer_id, response.producer_epoch
                return producer
            assert response.error_code in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ), ErrorCode(response.error_code)

    def check(self) -> None:
        """On a disk that answers at once: what readers see is whole."""
        seen = [committed_values(self.stage, "t", partition) for partition in range(PARTITIONS)]
        for attempt in self.attempts:
            counts = [seen[partition].count(attempt.value) for partition in attempt.partitions]
            if attempt.committed is True:
                assert counts == [1] * len(counts), attempt
            elif attempt.committed is False:
                assert counts == [0] * len(counts), attempt
            else:
                assert counts in ([0] * len(counts), [1] * len(counts)), attempt
        for partition, values in enumerate(seen):
            numbers = [int(value or b"-1") for value in values]
            assert numbers == sorted(numbers)
            assert end_offset(self.stage, "t", partition) == end_offset(self.stage, "t", partition, committed=False)
        known = [attempt.offset for attempt in self.attempts if attempt.offset is not None and attempt.committed]
        open_ones = [attempt.offset for attempt in self.attempts if attempt.offset and attempt.committed is None]
        found = fetched(self.stage, [("t", 0)], group="g")["t", 0]
        assert found in ({max(known, default=-1)} | {offset for offset in open_ones if offset > max(known, default=-1)})


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_transaction_is_seen_as_a_whole_or_not_at_all(seed: int) -> None:
    world = World(seed)
    number = 0
    producer: TransactionalProducer | None = None
    while number < STEPS:
        number += 1
        try:
            if producer is None:
                producer = world.begin("id", second=world.chance.random() < 0.5)
            world.transact(producer, number)
        except PowerLoss:
            world.stage.crash()
            producer = None
    world.stage.held = False
    world.stage.crash()
    TransactionalProducer(world.stage).init()
    world.check()


def test_the_state_of_transactions_is_readable_after_it_was_compacted() -> None:
    disk = MemoryDisk(seed=1)
    settings = {
        "log.cleaner.backoff.ms": "1000",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.segment.bytes": "1500",
    }
    stage = Stage(settings, disk=disk, compactor=FakeCompactor(disk))
    stage.create("t", 2)
    producers = [TransactionalProducer(stage, f"id{number}").init() for number in range(4)]
    for turn in range(20):
        for producer in producers:
            assert producer.produce(b"%d" % turn) == ErrorCode.NONE
            assert producer.end(committed=turn % 2 == 0) == ErrorCode.NONE
    assert producers[0].produce(b"open", partition=1) == ErrorCode.NONE
    log = stage.partition(STATE, shard_index("id0", 2)).log
    before = log.size
    stage.scheduler.advance(30_000)
    assert log.size < before // 2
    stage.crash()
    listed = stage.call(ListTransactionsRequest()).transaction_states
    assert {state.transactional_id: state.transaction_state for state in listed} == {
        "id0": "Ongoing",
        "id1": "CompleteAbort",
        "id2": "CompleteAbort",
        "id3": "CompleteAbort",
    }
    assert producers[0].end() == ErrorCode.NONE
    assert committed_values(stage, partition=1) == [b"open"]
    assert [producer.produce(b"next") for producer in producers[1:]] == [ErrorCode.NONE] * 3


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    stage = Stage()
    stage.create("t", 2)
    producer = TransactionalProducer(stage).init()
    producer.produce(b"a")
    stage.restart()
    assert producer.produce(b"b") == ErrorCode.NONE
    assert producer.produce(b"c", partition=1) == ErrorCode.NONE
    assert producer.end() == ErrorCode.NONE
    assert committed_values(stage) == [b"a", b"b"]
    assert committed_values(stage, partition=1) == [b"c"]


def test_an_open_transaction_has_its_whole_time_again_after_a_crash() -> None:
    stage = Stage()
    stage.create("t")
    producer = TransactionalProducer(stage).init(timeout_ms=10_000)
    producer.produce(b"a")
    stage.scheduler.advance(9_000)
    stage.crash()
    stage.scheduler.advance(9_000)
    assert producer.state().transaction_state == "Ongoing"
    stage.scheduler.advance(2_000)
    assert producer.state().transaction_state == "CompleteAbort"
    assert end_offset(stage) == end_offset(stage, committed=False)

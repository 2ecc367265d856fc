"""Kafka's TransactionsCommand, unmodified: it lists, describes, finds and ends transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ottla.clock import ManualClock
from ottla.error_codes import ErrorCode
from ottla.records.builder import build_batch
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.clients.server_process import ServerProcess, running
from tests.clients.transactions import kill_reader
from tests.clients.transactions.java_command import TransactionsCommand
from tests.clients.transactions.kill_producer import KillProducer
from tests.peers.tools import Tools
from tests.server.wire import Wire

PARTITIONS = 2
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
HUNG, HUNG_PRODUCER, HUNG_EPOCH = "hung", 987_654, 3
HUNG_MINUTES = 60
TIMEOUT_MS = 45_000


class Stage:
    """A server and the tool."""

    def __init__(self, server: ServerProcess, tools: Tools) -> None:
        self.server = server
        self.command = TransactionsCommand(tools, server)

    def make_topic(self, name: str) -> str:
        with Wire(self.server) as wire:
            wire.make_topic(name)
        return name

    def seen(self, topic: str) -> list[bytes]:
        """What a read_committed reader sees of a topic."""
        found = kill_reader.committed(self.server, topic, partitions=PARTITIONS)
        return sorted(value for values in found.values() for value in values)

    def listed(self, *arguments: str) -> dict[str, tuple[str, str]]:
        """Producer id and state of each transactional id."""
        rows = self.command.rows("list", *arguments)
        return {row["TransactionalId"]: (row["ProducerId"], row["TransactionState"]) for row in rows}

    def described(self, transactional_id: str) -> dict[str, str]:
        (row,) = self.command.rows("describe", "--transactional-id", transactional_id)
        return row

    def open_producers(self, topic: str, *, partition: int = 0) -> dict[str, str]:
        """Where the open transaction of each producer in a partition begins."""
        rows = self.command.rows("describe-producers", "--topic", topic, "--partition", str(partition))
        return {
            row["ProducerId"]: row["CurrentTransactionStartOffset"]
            for row in rows
            if row["CurrentTransactionStartOffset"] != "None"
        }


def _leave_hanging(server: ServerProcess) -> None:
    """Put a transaction into a partition that no coordinator knows, an hour ago: as a bug of Kafka's used to."""
    now_ms = time.time_ns() // 1_000_000
    clock = ManualClock(now_ms)
    log = Log.open(OsDisk(), str(server.data / f"{HUNG}-0"), config=LogConfig(), clock=clock)
    records = [(None, b"hung", now_ms - HUNG_MINUTES * 60_000, ())]
    log.append(
        build_batch(records, producer_id=HUNG_PRODUCER, producer_epoch=HUNG_EPOCH, base_sequence=0, transactional=True),
        leader_epoch=0,
    )
    log.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, java: Path, kafka_jars: Path) -> Iterator[Stage]:
    with running(tmp_path_factory.mktemp("command"), SETTINGS) as server:
        stage = Stage(server, Tools(java, kafka_jars))
        stage.make_topic(HUNG)
        server.terminate()
        _leave_hanging(server)
        server.start()
        yield stage


def _begin(stage: Stage, transactional_id: str, topic: str) -> KillProducer:
    """A producer with an open transaction over both partitions."""
    producer = KillProducer(stage.server, transactional_id)
    producer.init(timeout_ms=TIMEOUT_MS)
    producer.send(topic, {0: [b"open 0"], 1: [b"open 1"]})
    return producer


def test_it_lists_transactions_with_their_states(stage: Stage) -> None:
    topic = stage.make_topic("listed")
    with closing(_begin(stage, "listed.open", topic)) as open_one, closing(_begin(stage, "listed.over", topic)) as over:
        over.end(is_commit=True)
        over.send(topic, {0: [b"given up"]})
        over.end(is_commit=False)
        found = stage.listed()
        assert found["listed.open"] == (str(open_one.producer_id), "Ongoing")
        assert found["listed.over"] == (str(over.producer_id), "CompleteAbort")
        open_one.end(is_commit=True)


def test_it_lists_only_what_is_asked_for(stage: Stage) -> None:
    topic = stage.make_topic("filtered")
    with closing(_begin(stage, "filtered.1", topic)) as first, closing(_begin(stage, "filtered.2", topic)) as second:
        first.end(is_commit=True)
        assert set(stage.listed("--transactional-id-pattern", r"filtered\..*")) == {"filtered.1", "filtered.2"}
        assert "filtered.1" not in stage.listed("--duration-filter", "0")
        assert stage.listed("--duration-filter", "3600000") == {}
        second.end(is_commit=True)


def test_it_describes_a_transaction(stage: Stage) -> None:
    topic = stage.make_topic("described")
    with closing(_begin(stage, "described", topic)) as producer:
        row = stage.described("described")
        assert (row["CoordinatorId"], row["TransactionalId"]) == ("1", "described")
        assert (row["ProducerId"], row["ProducerEpoch"]) == (str(producer.producer_id), str(producer.epoch))
        assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Ongoing", str(TIMEOUT_MS))
        assert int(row["CurrentTransactionStartTimeMs"]) > 0
        assert set(row["TopicPartitions"].split(",")) == {"described-0", "described-1"}
        producer.end(is_commit=True)
        row = stage.described("described")
        assert (row["TransactionState"], row["TopicPartitions"]) == ("CompleteCommit", "")


def test_it_describes_the_producers_of_a_partition(stage: Stage) -> None:
    topic = stage.make_topic("produced")
    with closing(_begin(stage, "produced", topic)) as producer:
        (row,) = stage.command.rows("describe-producers", "--topic", topic, "--partition", "1")
        assert (row["ProducerId"], row["ProducerEpoch"]) == (str(producer.producer_id), str(producer.epoch))
        assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("0", "0")
        producer.end(is_commit=True)
        assert stage.open_producers(topic) == {}


def test_it_finds_and_aborts_a_hanging_transaction_and_takes_no_other_for_one(stage: Stage) -> None:
    topic = stage.make_topic("busy")
    with closing(_begin(stage, "busy", topic)) as producer:
        found = stage.command.rows("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
        assert [(row["Topic"], row["Partition"], row["ProducerId"], row["StartOffset"]) for row in found] == [
            (HUNG, "0", str(HUNG_PRODUCER), "0")
        ]
        assert int(found[0]["Duration(min)"]) == HUNG_MINUTES
        with Wire(stage.server) as wire:
            wire.produce(HUNG, [b"behind"])
        stage.command.run("abort", "--topic", HUNG, "--partition", "0", "--start-offset", "0")
        assert stage.command.rows("find-hanging", "--topic", HUNG) == []
        assert stage.seen(HUNG) == [b"behind"]
        producer.end(is_commit=True)
        assert stage.seen(topic) == [b"open 0", b"open 1"]


def test_it_aborts_an_open_transaction_in_all_its_partitions_and_its_producer_is_told(stage: Stage) -> None:
    topic = stage.make_topic("aborted")
    with closing(_begin(stage, "aborted", topic)) as producer:
        stage.command.run("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert [stage.open_producers(topic, partition=number) for number in range(PARTITIONS)] == [{}, {}]
        assert producer.try_end(is_commit=True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert stage.seen(topic) == []
        assert stage.described("aborted")["TransactionState"] == "CompleteAbort"


def test_it_ends_a_transaction_by_force_and_its_producer_is_told(stage: Stage) -> None:
    topic = stage.make_topic("forced")
    with closing(_begin(stage, "forced", topic)) as producer:
        stage.command.run("forceTerminateTransaction", "--transactionalId", "forced")
        assert producer.try_end(is_commit=True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert stage.seen(topic) == []
        assert stage.open_producers(topic) == {}

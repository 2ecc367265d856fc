"""Kafka's TransactionalMessageCopier, unmodified, by transactions version 2: what it copies, and how it speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.protocol.api_keys import ApiKey
from tests.clients.groups.churn_topics import Topics
from tests.clients.server_process import Make, ServerProcess
from tests.clients.transactions import java_copier, kill_files, kill_reader
from tests.clients.transactions.copy_copier import Errand
from tests.clients.transactions.java_proxy import RecordingProxy
from tests.clients.transactions.kill_producer import KillProducer
from tests.peers.tools import Tools
from tests.server.wire import Wire

PARTITIONS = 3
RECORDS = 900
TRANSACTION_RECORDS = 15
END_SECONDS_MAX = 60
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


@dataclass(frozen=True)
class Copied:
    """What was there before the copier ran, and what it left."""

    written: dict[int, list[bytes]]
    seen: dict[int, list[bytes]]
    committed: dict[tuple[str, int], int]
    requests: RecordingProxy
    tally: kill_files.Tally


def _fill(server: ServerProcess, topic: str) -> dict[int, list[bytes]]:
    written = {
        number: [b"%d %d" % (number, each) for each in range(RECORDS // PARTITIONS)] for number in range(PARTITIONS)
    }
    with Wire(server) as wire:
        wire.make_topic(topic)
        for number, values in written.items():
            wire.produce(topic, values, partition=number)
    return written


def _errand(address: str, source: str, transactional_id: str, *, size: int = TRANSACTION_RECORDS) -> Errand:
    return Errand(
        name=transactional_id,
        client=java_copier.CLIENT,
        address=address,
        group=f"{source}.group",
        source=source,
        target=f"{source}.copy",
        transactional_id=transactional_id,
        partitions=PARTITIONS,
        transaction_records_max=size,
        session_ms=10_000,
    )


@pytest.fixture(scope="module")
def tools(java: Path, kafka_jars: Path) -> Tools:
    return Tools(java, kafka_jars)


@pytest.fixture(scope="module")
def copied(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    with RecordingProxy() as proxy:
        told = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        server = ServerProcess(tmp_path_factory.mktemp("copier"), told)
        proxy.pass_on_to(server.port)
        try:
            server.start()
            written = _fill(server, "source")
            with Wire(server) as wire:
                wire.make_topic("source.copy")
            tools.run(java_copier.MAIN, *java_copier.arguments(_errand(proxy.address, "source", "copier")))
            seen = kill_reader.committed(server, "source.copy", partitions=PARTITIONS, at_least=RECORDS)
            committed = Topics(server.address).committed("source.group")
            server.terminate()
            yield Copied(written, seen, committed, proxy, kill_files.tally(server.data, "copier"))
        finally:
            server.end()


def test_it_copies_every_record_once_and_in_order(copied: Copied) -> None:
    assert copied.seen == copied.written


def test_the_offsets_that_it_commits_with_its_records_are_the_ends(copied: Copied) -> None:
    assert copied.committed == {("source", number): len(values) for number, values in copied.written.items()}


def test_it_commits_and_aborts(copied: Copied) -> None:
    assert copied.tally.commits >= RECORDS / TRANSACTION_RECORDS
    assert copied.tally.aborts > 0


def test_it_speaks_version_2(copied: Copied) -> None:
    """Every end takes a new epoch, and partitions and groups are never added by requests of their own."""
    requests = copied.requests
    assert requests.versions(ApiKey.END_TXN) == {5}
    assert requests.versions(ApiKey.TXN_OFFSET_COMMIT) == {5}
    assert min(requests.versions(ApiKey.PRODUCE)) >= 12
    assert requests.versions(ApiKey.ADD_PARTITIONS_TO_TXN) == set()
    assert requests.versions(ApiKey.ADD_OFFSETS_TO_TXN) == set()


def test_one_whose_id_is_taken_over_ends_and_says_so(tools: Tools, make_server: Make, tmp_path: Path) -> None:
    server = make_server(settings=SETTINGS).start()
    _fill(server, "source")
    with Wire(server) as wire:
        wire.make_topic("source.copy")
    output = tmp_path / "output"
    errand = _errand(server.address, "source", "taken", size=1)
    with (
        tools.background(java_copier.MAIN, *java_copier.arguments(errand), output=output) as copier,
        closing(KillProducer(server, "taken")) as other,
    ):
        kill_reader.committed(server, "source.copy", partitions=PARTITIONS, at_least=1)
        other.init()
        assert copier.wait(END_SECONDS_MAX) == 1
    assert java_copier.FENCED in output.read_text(encoding="utf-8")

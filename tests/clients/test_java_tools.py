"""Apache Kafka's own command-line tools, unmodified, against a server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.protocol.api_keys import ApiKey, is_private
from tests.clients.abilities import Ability, check_account, shows
from tests.clients.server_process import ServerProcess
from tests.peers.tools import Tools
from tests.server.wire import Wire

TRIES_MAX = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

LACKING = {
    Ability.FETCH_TIMESTAMP: "the console consumer starts at an offset, not at a time; GetOffsetShell looks it up",
}

pytestmark = pytest.mark.slow


class Kafka:
    """Kafka's tools, and the server that they are told to use."""

    def __init__(self, tools: Tools, server: ServerProcess) -> None:
        self._tools = tools
        self.server = server

    def run(self, main: str, *arguments: str, text: str = "") -> str:
        return self._tools.run(main, "--bootstrap-server", self.server.address, *arguments, text=text)

    def background(self, main: str, *arguments: str, output: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return self._tools.background(main, "--bootstrap-server", self.server.address, *arguments, output=output)

    def topics(self, *arguments: str) -> str:
        return self.run("org.apache.kafka.tools.TopicCommand", *arguments)

    def create(self, topic: str, *arguments: str) -> None:
        self.topics("--create", "--topic", topic, *arguments)

    def produce(self, topic: str, values: list[str], *arguments: str) -> None:
        text = "".join(f"{value}\n" for value in values)
        self.run("org.apache.kafka.tools.ConsoleProducer", "--topic", topic, *arguments, text=text)

    def consume(self, topic: str, *arguments: str) -> list[str]:
        """What the console consumer prints, its last line of statistics aside."""
        printed = self.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", *arguments
        )
        return [line for line in printed.splitlines() if not line.startswith("Processed a total of")]

    def offsets(self, topic: str, time: str) -> str:
        return self.run("org.apache.kafka.tools.GetOffsetShell", "--topic", topic, "--time", time).strip()


@pytest.fixture(scope="module")
def kafka(java: Path, kafka_jars: Path, ottla_server: ServerProcess) -> Kafka:
    return Kafka(Tools(java, kafka_jars), ottla_server)


def test_the_table_accounts_for_every_ability() -> None:
    check_account(sys.modules[__name__], LACKING)


def test_the_broker_api_versions_command_finds_every_api_that_is_announced(kafka: Kafka) -> None:
    told = kafka.run("org.apache.kafka.tools.BrokerApiVersionsCommand")
    rows = dict(re.findall(r"(\w+)\((\d+)\): (?!UNSUPPORTED)", told))
    assert {int(number) for number in rows.values()} == {int(key) for key in HANDLERS if not is_private(key)}
    assert "FETCH" in {ApiKey(int(number)).name for number in rows.values()}


@shows(Ability.CREATE_TOPICS, Ability.ADD_PARTITIONS, Ability.DELETE_TOPICS)
def test_the_topic_command_creates_describes_grows_and_deletes(kafka: Kafka) -> None:
    kafka.create("managed", "--partitions", "2", "--config", "retention.ms=123456")
    described = kafka.topics("--describe", "--topic", "managed")
    assert "PartitionCount: 2" in described
    assert "retention.ms=123456" in described
    kafka.topics("--alter", "--topic", "managed", "--partitions", "5")
    assert "PartitionCount: 5" in kafka.topics("--describe", "--topic", "managed")
    assert "managed" in kafka.topics("--list").split()
    kafka.topics("--delete", "--topic", "managed")
    assert "managed" not in kafka.topics("--list").split()


@shows(Ability.ALTER_CONFIG)
def test_the_config_command_alters_and_describes(kafka: Kafka) -> None:
    kafka.create("configs")
    place = ("--entity-type", "topics", "--entity-name", "configs")
    kafka.run("kafka.admin.ConfigCommand", *place, "--alter", "--add-config", "retention.ms=777")
    assert "retention.ms=777" in kafka.run("kafka.admin.ConfigCommand", *place, "--describe")
    kafka.run("kafka.admin.ConfigCommand", *place, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=777" not in kafka.run("kafka.admin.ConfigCommand", *place, "--describe")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "auto.create.topics.enable=true" in kafka.run("kafka.admin.ConfigCommand", *broker, "--describe", "--all")


@shows(Ability.EVERY_CODEC, Ability.FETCH_BEGIN)
@pytest.mark.parametrize("codec", CODECS)
def test_the_console_tools_read_what_they_wrote_with_each_codec(kafka: Kafka, codec: str) -> None:
    values = [f"{number} {'x' * 300}" for number in range(100)]
    topic = f"codec-{codec}"
    with Wire(kafka.server) as wire:
        wire.make_topic(topic)
    kafka.produce(topic, values, "--compression-codec", codec)
    assert kafka.consume(topic, "--from-beginning", "--max-messages", "100") == values


@shows(Ability.EVERY_ACKS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_the_console_producer_writes_with_each_acks_mode(kafka: Kafka, acks: str) -> None:
    topic = f"acks-{acks}"
    kafka.produce(topic, ["a", "b", "c"], "--producer-property", f"acks={acks}")
    with Wire(kafka.server) as wire:
        assert [value for _, value in wire.fetch_all(topic)] == [b"a", b"b", b"c"]


@shows(Ability.IDEMPOTENT)
def test_the_verifiable_producer_gets_every_record_acknowledged(kafka: Kafka) -> None:
    told = kafka.run(
        "org.apache.kafka.tools.VerifiableProducer", "--topic", "verified", "--max-messages", "1000", "--acks", "-1"
    )
    summary = json.loads(told.splitlines()[-1])
    assert (summary["sent"], summary["acked"]) == (1000, 1000)
    with Wire(kafka.server) as wire:
        assert [value for _, value in wire.fetch_all("verified")] == [b"%d" % number for number in range(1000)]


@shows(Ability.FETCH_OFFSET)
def test_offsets_are_found_and_read_from(kafka: Kafka) -> None:
    with Wire(kafka.server) as wire:
        wire.make_topic("offsets")
        for number in range(10):
            wire.produce("offsets", [b"%d" % number])
    assert kafka.offsets("offsets", "-1") == "offsets:0:10"
    assert kafka.offsets("offsets", "earliest") == "offsets:0:0"
    assert kafka.offsets("offsets", "max-timestamp").startswith("offsets:0:")
    assert kafka.offsets("offsets", "1") == "offsets:0:0"
    assert kafka.consume("offsets", "--offset", "7", "--max-messages", "2") == ["7", "8"]


@shows(Ability.FETCH_END)
def test_the_console_consumer_reads_from_the_end_only_what_comes_afterwards(kafka: Kafka, tmp_path: Path) -> None:
    output = tmp_path / "consumed"
    wanted = ("--topic", "end", "--partition", "0", "--offset", "latest", "--max-messages", "1")
    with Wire(kafka.server) as wire:
        wire.make_topic("end")
        wire.produce("end", [b"old"] * 20)
        with kafka.background("org.apache.kafka.tools.consumer.ConsoleConsumer", *wanted, output=output) as consumer:
            # When it has found the end is not told, so it is given something new until it has enough.
            for _ in range(TRIES_MAX):
                wire.produce("end", [b"new"])
                with suppress(subprocess.TimeoutExpired):
                    consumer.wait(0.1)
                    break
    assert "new" in output.read_text(encoding="utf-8").splitlines()
    assert "old" not in output.read_text(encoding="utf-8").splitlines()


@shows(Ability.DELETE_RECORDS)
def test_the_delete_records_command_moves_the_start_of_the_log(kafka: Kafka, tmp_path: Path) -> None:
    with Wire(kafka.server) as wire:
        wire.make_topic("trimmed")
        wire.produce("trimmed", [b"%d" % number for number in range(10)])
    wanted = tmp_path / "offsets.json"
    partitions = [{"topic": "trimmed", "partition": 0, "offset": 4}]
    wanted.write_text(json.dumps({"partitions": partitions, "version": 1}), encoding="utf-8")
    told = kafka.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in told
    assert kafka.offsets("trimmed", "earliest") == "trimmed:0:4"


def test_the_log_dirs_command_tells_sizes(kafka: Kafka) -> None:
    with Wire(kafka.server) as wire:
        wire.make_topic("sized")
        wire.produce("sized", [bytes(1000)])
    told = kafka.run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "sized")
    (directories,) = json.loads(told.splitlines()[-1])["brokers"]
    (directory,) = directories["logDirs"]
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    assert partition["partition"] == "sized-0"
    assert partition["size"] > 1000

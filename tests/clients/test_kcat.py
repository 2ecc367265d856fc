"""kcat, unmodified, against a server: Debian's, with a librdkafka years older than confluent-kafka's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.clients.abilities import Ability, check_account, shows
from tests.clients.missing import program
from tests.clients.server_process import ServerProcess
from tests.server.wire import Wire

SECONDS_MAX = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

pytestmark = pytest.mark.slow

LACKING = {
    Ability.CREATE_TOPICS: "has no admin commands; a topic is made by asking for it",
    Ability.ALTER_CONFIG: "has no admin commands",
    Ability.ADD_PARTITIONS: "has no admin commands",
    Ability.DELETE_RECORDS: "has no admin commands",
    Ability.DELETE_TOPICS: "has no admin commands",
}


class Kcat:
    """The program, and the server that it is told to use."""

    def __init__(self, binary: str, server: ServerProcess) -> None:
        self._binary = binary
        self.server = server

    def run(self, *arguments: str, text: str = "") -> str:
        command = [self._binary, "-b", self.server.address, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def produce(self, topic: str, values: list[str], *arguments: str) -> None:
        self.run("-P", "-t", topic, "-p", "0", *arguments, text="".join(f"{value}\n" for value in values))

    def consume(self, topic: str, *arguments: str) -> list[str]:
        return self.run("-C", "-q", "-e", "-t", topic, "-p", "0", *arguments).splitlines()


@pytest.fixture(scope="module")
def kcat(ottla_server: ServerProcess) -> Kcat:
    return Kcat(program("kcat"), ottla_server)


def test_the_table_accounts_for_every_ability() -> None:
    check_account(sys.modules[__name__], LACKING)


def test_it_lists_the_broker_and_makes_a_topic_by_producing_to_it(kcat: Kcat) -> None:
    kcat.produce("listed", ["value"])
    told: dict[str, Any] = json.loads(kcat.run("-L", "-J"))
    assert [broker["name"] for broker in told["brokers"]] == [kcat.server.address]
    assert "listed" in [topic["topic"] for topic in told["topics"]]


@shows(Ability.EVERY_CODEC, Ability.FETCH_BEGIN)
@pytest.mark.parametrize("codec", CODECS)
def test_it_reads_from_the_beginning_what_it_produced_with_each_codec(kcat: Kcat, codec: str) -> None:
    values = [f"{number} {'x' * 300}" for number in range(200)]
    kcat.produce(f"codec-{codec}", values, "-z", codec)
    assert kcat.consume(f"codec-{codec}", "-o", "beginning") == values


@shows(Ability.EVERY_ACKS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_it_produces_with_each_acks_mode(kcat: Kcat, acks: str) -> None:
    with Wire(kcat.server) as wire:
        wire.make_topic(f"acks-{acks}")
    values = [f"{number}" for number in range(50)]
    kcat.produce(f"acks-{acks}", values, "-X", f"acks={acks}")
    assert kcat.consume(f"acks-{acks}", "-o", "beginning") == values


@shows(Ability.IDEMPOTENT)
def test_it_produces_idempotently(kcat: Kcat) -> None:
    values = [f"{number}" for number in range(500)]
    kcat.produce("idempotent", values, "-X", "enable.idempotence=true", "-X", "batch.num.messages=7")
    assert kcat.consume("idempotent", "-o", "beginning") == values


@shows(Ability.FETCH_OFFSET)
def test_it_reads_from_an_offset_and_counts_back_from_the_end(kcat: Kcat) -> None:
    kcat.produce("offset", [f"{number}" for number in range(100)])
    assert kcat.consume("offset", "-o", "63", "-c", "2") == ["63", "64"]
    assert kcat.consume("offset", "-o", "-3") == ["97", "98", "99"]


@shows(Ability.FETCH_END)
def test_it_finds_nothing_at_the_end_until_something_comes(kcat: Kcat) -> None:
    kcat.produce("end", ["old"] * 20)
    assert kcat.consume("end", "-o", "end") == []


@shows(Ability.FETCH_TIMESTAMP)
def test_it_finds_offsets_by_timestamp_and_reads_from_there(kcat: Kcat) -> None:
    kcat.produce("times", ["before"])
    kcat.produce("times", ["after"])
    stamped = [line.split() for line in kcat.consume("times", "-o", "beginning", "-f", "%T %s\\n")]
    time_ms = stamped[1][0]
    assert kcat.run("-Q", "-t", f"times:0:{time_ms}").split() == ["times", "[0]", "offset", "1"]
    assert kcat.consume("times", "-o", f"s@{time_ms}") == ["after"]

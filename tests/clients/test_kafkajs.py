"""kafkajs, unmodified, against a server. What it wrote is read by a plain connection."""

from __future__ import annotations

import sys

import pytest

from tests.clients.abilities import Ability, check_account, shows
from tests.clients.kafkajs_peer import Kafkajs, install
from tests.clients.server_process import ServerProcess
from tests.server.wire import Wire

LACKING = {
    Ability.EVERY_CODEC: "brings gzip only; the others are packages of their own",
    Ability.FETCH_BEGIN: "reads only as a member of a group",
    Ability.FETCH_END: "reads only as a member of a group",
    Ability.FETCH_OFFSET: "reads only as a member of a group",
    Ability.FETCH_TIMESTAMP: "reads only as a member of a group; it can look the offset up",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kafkajs(ottla_server: ServerProcess) -> Kafkajs:
    return install(ottla_server.address)


def _values(server: ServerProcess, topic: str) -> list[bytes | None]:
    with Wire(server) as wire:
        return [value for _, value in wire.fetch_all(topic)]


def test_the_table_accounts_for_every_ability() -> None:
    check_account(sys.modules[__name__], LACKING)


@shows(Ability.CREATE_TOPICS)
def test_it_creates_topics_and_is_told_when_they_exist(kafkajs: Kafkajs) -> None:
    assert kafkajs.run("create", topic="created", partitions=4, configs={"retention.ms": "123456"}) is True
    assert kafkajs.run("create", topic="created", partitions=4) is False
    assert len(kafkajs.run("offsets", topic="created")) == 4


@shows(Ability.EVERY_ACKS)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_it_produces_with_each_acks_mode(kafkajs: Kafkajs, ottla_server: ServerProcess, acks: int) -> None:
    topic = f"acks{acks}"
    kafkajs.run("create", topic=topic, partitions=1)
    kafkajs.run("produce", topic=topic, values=["a", "b", "c"], acks=acks)
    assert _values(ottla_server, topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("gzip", [False, True])
def test_it_produces_with_the_codecs_that_it_brings(kafkajs: Kafkajs, ottla_server: ServerProcess, gzip: bool) -> None:
    topic = f"gzip-{gzip}"
    kafkajs.run("create", topic=topic, partitions=1)
    values = [f"{number} {'x' * 300}" for number in range(100)]
    assert kafkajs.run("produce", topic=topic, values=values, acks=-1, gzip=gzip) == ["0"]
    assert _values(ottla_server, topic) == [value.encode() for value in values]


@shows(Ability.IDEMPOTENT)
def test_it_produces_idempotently(kafkajs: Kafkajs, ottla_server: ServerProcess) -> None:
    kafkajs.run("create", topic="idempotent", partitions=1)
    kafkajs.run("produce", topic="idempotent", values=["a", "b"], acks=-1, idempotent=True)
    assert _values(ottla_server, "idempotent") == [b"a", b"b"]


def test_it_looks_up_the_ends_of_a_topic_and_offsets_by_timestamp(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="lookup", partitions=1)
    kafkajs.run("produce", topic="lookup", values=[str(number) for number in range(10)], acks=-1)
    (ends,) = kafkajs.run("offsets", topic="lookup")
    assert (ends["low"], ends["high"]) == ("0", "10")
    (found,) = kafkajs.run("offsetsAt", topic="lookup", timestamp=1_000_004)
    assert found["offset"] == "4"


@shows(Ability.ALTER_CONFIG)
def test_it_alters_a_config_and_sees_the_change(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="configs", partitions=1)
    entries = kafkajs.run("alter", topic="configs", name="retention.ms", value="777")
    assert {entry["configName"]: entry["configValue"] for entry in entries}["retention.ms"] == "777"


@shows(Ability.ADD_PARTITIONS)
def test_it_adds_partitions(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="grown", partitions=1)
    assert kafkajs.run("addPartitions", topic="grown", count=3) == 3


@shows(Ability.DELETE_RECORDS)
def test_it_deletes_records_below_an_offset(kafkajs: Kafkajs, ottla_server: ServerProcess) -> None:
    kafkajs.run("create", topic="trimmed", partitions=1)
    kafkajs.run("produce", topic="trimmed", values=["a", "b", "c"], acks=-1)
    kafkajs.run("deleteRecords", topic="trimmed", offset="2")
    assert _values(ottla_server, "trimmed") == [b"c"]


@shows(Ability.DELETE_TOPICS)
def test_it_deletes_topics(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="deleted", partitions=1)
    assert "deleted" not in kafkajs.run("deleteTopic", topic="deleted")
    assert "does not host this topic-partition" in kafkajs.failure("deleteTopic", topic="deleted")

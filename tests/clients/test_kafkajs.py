"""kafkajs, unmodified, against a server. What it wrote is read by a plain connection.

It reads only as a member of a group; how it behaves among others is in `tools/test_kafkajs_groups`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.clients.abilities import Ability, check_account, shows
from tests.clients.kafkajs_peer import Kafkajs, install
from tests.clients.server_process import ServerProcess, running
from tests.server.wire import Wire

TRIES_MAX = 300

LACKING = {
    Ability.EVERY_CODEC: "brings gzip only; the others are packages of their own",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ottla_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Whoever is alone in a group need not wait for others."""
    with running(tmp_path_factory.mktemp("ottla"), {"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


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


@shows(Ability.FETCH_BEGIN)
@pytest.mark.parametrize("gzip", [False, True])
def test_it_reads_from_the_beginning_with_the_codecs_that_it_brings(kafkajs: Kafkajs, gzip: bool) -> None:
    topic = f"begin-{gzip}"
    kafkajs.run("create", topic=topic, partitions=1)
    values = [f"{number} {'x' * 300}" for number in range(100)]
    kafkajs.run("produce", topic=topic, values=values, acks=-1, gzip=gzip)
    found = kafkajs.run("consume", topic=topic, group=topic, count=100, **{"from": "beginning"})
    assert found == [[offset, value] for offset, value in enumerate(values)]


@shows(Ability.FETCH_OFFSET)
def test_it_reads_from_an_offset(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="seek", partitions=1)
    kafkajs.run("produce", topic="seek", values=[str(number) for number in range(10)], acks=-1)
    assert kafkajs.run("consume", topic="seek", group="seek", count=2, offset="7") == [[7, "7"], [8, "8"]]


@shows(Ability.FETCH_TIMESTAMP)
def test_it_reads_from_a_timestamp_that_it_looks_up(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="since", partitions=1)
    kafkajs.run("produce", topic="since", values=[str(number) for number in range(10)], acks=-1)
    (found,) = kafkajs.run("offsetsAt", topic="since", timestamp=1_000_004)
    assert kafkajs.run("consume", topic="since", group="since", count=1, offset=found["offset"]) == [[4, "4"]]


@shows(Ability.FETCH_END)
def test_it_reads_from_the_end_only_what_comes_afterwards(kafkajs: Kafkajs, ottla_server: ServerProcess) -> None:
    kafkajs.run("create", topic="end", partitions=1)
    kafkajs.run("produce", topic="end", values=["old"] * 20, acks=-1)
    with kafkajs.background("consume", topic="end", group="end", count=1) as consumer, Wire(ottla_server) as wire:
        # When it has found the end is not told, so it is given something new until it has enough.
        for _ in range(TRIES_MAX):
            wire.produce("end", [b"new"])
            with suppress(subprocess.TimeoutExpired):
                consumer.wait(0.1)
                break
        assert consumer.stdout is not None
        ((offset, value),) = json.loads(consumer.stdout.read())
    assert value == "new"
    assert offset >= 20


def test_it_goes_on_where_its_group_has_committed(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="resumed", partitions=1)
    kafkajs.run("produce", topic="resumed", values=[str(number) for number in range(10)], acks=-1)
    kafkajs.run("setGroupOffset", group="resumed", topic="resumed", offset="6")
    assert kafkajs.run("consume", topic="resumed", group="resumed", count=4)[0] == [6, "6"]
    ((topic),) = kafkajs.run("groupOffsets", group="resumed", topic="resumed")
    assert [part["offset"] for part in topic["partitions"]] == ["10"]


def test_it_lists_describes_and_deletes_groups(kafkajs: Kafkajs) -> None:
    kafkajs.run("create", topic="managed", partitions=1)
    kafkajs.run("produce", topic="managed", values=["a"], acks=-1)
    kafkajs.run("consume", topic="managed", group="managed", count=1, **{"from": "beginning"})
    assert {"groupId": "managed", "protocolType": "consumer"} in kafkajs.run("groups")["groups"]
    (described,) = kafkajs.run("describeGroup", group="managed")["groups"]
    assert (described["state"], described["members"]) == ("Empty", [])
    (deleted,) = kafkajs.run("deleteGroup", group="managed")
    assert deleted["errorCode"] == 0
    assert "managed" not in {group["groupId"] for group in kafkajs.run("groups")["groups"]}


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

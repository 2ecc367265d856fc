"""Consumers with a group against real brokers: Ottla embedded, Ottla over sockets, Apache Kafka; both protocols."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.blocking.consumer import Consumer
from ottla.client.client import AsyncClient
from ottla.client.consumer import AsyncConsumer
from ottla.client.errors import CommitFailed, InvalidGroupName, NoCommittedOffset, NoGroup
from ottla.client.values import Committed, Record, TopicPartition
from ottla.errors import InvalidRequest
from ottla.testing.server_thread import ServerThread
from tests.cli.server_process import serving
from tests.client.kafka_server import kafka_server
from tests.peers.tools import Tools

pytestmark = pytest.mark.slow

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "200",
    "auto.create.topics.enable": "false",
}
KAFKA_ONLY = {"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.min.session.timeout.ms": "1000"}
SECONDS_MAX = 60
_numbers = count()


@pytest.fixture(scope="module")
def kafka_address(java: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = "".join(f"{name}={value}\n" for name, value in {**QUICK, **KAFKA_ONLY}.items() if "auto." not in name)
    with kafka_server(Tools(java, kafka_jars), tmp_path_factory.mktemp("kafka"), lines) as address:
        yield address


class Target:
    """A running broker, and the ways to it."""

    def __init__(self, blocking: Callable[[], Client], background: Callable[[], AsyncClient]) -> None:
        self.blocking = blocking
        self.background = background


@pytest.fixture(params=["embedded", "sockets", pytest.param("kafka", marks=pytest.mark.peers)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "kafka":
        address = request.getfixturevalue("kafka_address")
        yield Target(lambda: ottla.connect(address), lambda: ottla.connect_async(address))
    elif request.param == "sockets":
        server = ServerThread(str(tmp_path / "data"), QUICK)
        server.start()
        yield Target(lambda: ottla.connect(server.bootstrap), lambda: ottla.connect_async(server.bootstrap))
        server.stop()
    else:
        path = tmp_path / "data"
        yield Target(lambda: ottla.open(path, config=QUICK), lambda: ottla.open_async(path, config=QUICK))


@pytest.fixture
def client(target: Target) -> Iterator[Client]:
    with target.blocking() as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    """A fresh topic of four partitions."""
    name = f"topic-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture(params=["classic", "consumer", "cooperative"])
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings that choose a protocol, with short heartbeats."""
    if request.param == "cooperative":
        return {"protocol": "classic", "assignors": ("cooperative-sticky",), "heartbeat_interval_ms": 100}
    return {"protocol": request.param, "heartbeat_interval_ms": 100}


def fill(client: Client, topic: str, values: range) -> None:
    with client.producer() as producer:
        for number in values:
            producer.send(topic, b"%d" % number, partition=number % 4)


def until(consumers: list[Consumer], settled: Callable[[], bool]) -> list[Record]:
    """Poll all of them in turn until it is so; what they gave."""
    deadline = time.monotonic() + SECONDS_MAX
    found: list[Record] = []
    while not settled():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            found += consumer.poll(50)
    return found


def read(consumer: Consumer, how_many: int) -> list[int]:
    found: list[Record] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < how_many:
        assert time.monotonic() < deadline, f"{len(found)} of {how_many} records came"
        found += consumer.poll(200)
    return sorted(int(record.value or b"") for record in found)


def test_a_group_goes_on_where_it_committed(client: Client, topic: str, group: str, protocol: dict[str, Any]) -> None:
    fill(client, topic, range(40))
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        assert consumer.group() == group
        assert consumer.committed(topic, 0) is None
        assert read(consumer, 40) == list(range(40))
        consumer.commit()
        assert [consumer.committed(topic, number) for number in range(4)] == [10] * 4
    fill(client, topic, range(40, 50))

    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 10) == list(range(40, 50))


def test_what_was_not_committed_comes_again(client: Client, topic: str, group: str, protocol: dict[str, Any]) -> None:
    fill(client, topic, range(20))
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        read(consumer, 20)

    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 20) == list(range(20))


def test_two_members_share_the_partitions_and_one_inherits_the_other(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    fill(client, topic, range(40))
    told: list[tuple[str, list[TopicPartition]]] = []
    settings = {"group": group, "auto_commit": True, "auto_commit_interval_ms": 100, **protocol}
    with client.consumer(**settings) as first:
        first.subscribe(
            [topic],
            on_assigned=lambda partitions: told.append(("assigned", partitions)),
            on_revoked=lambda partitions: told.append(("revoked", partitions)),
        )
        seen = until([first], lambda: len(first.assignment()) == 4)
        with client.consumer(**settings) as second:
            second.subscribe([topic])
            seen += until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert not set(first.assignment()) & set(second.assignment())
        seen += until([first], lambda: len(first.assignment()) == 4)
        fill(client, topic, range(40, 60))
        seen += until([first], lambda: first.committed(topic, 0) == 15 and first.committed(topic, 3) == 15)

    assert {record.value for record in seen} == {b"%d" % number for number in range(60)}
    assert told[0] == ("assigned", [TopicPartition(topic, number) for number in range(4)])
    assert told[-1][0] == "revoked"
    revoked = {key for kind, partitions in told[:-1] if kind == "revoked" for key in partitions}
    assert len(revoked) >= 2


def test_positions_are_committed_before_partitions_are_given_up(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    fill(client, topic, range(40))
    with ExitStack() as stack:
        first = stack.enter_context(client.consumer(group=group, auto_commit=True, **protocol))
        first.subscribe([topic])
        read(first, 40)
        second = stack.enter_context(client.consumer(group=group, auto_commit=True, **protocol))
        second.subscribe([topic])

        again = until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)

        again += second.poll(300)
        assert again == []


def test_groups_do_not_touch_each_other(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    for name in (f"{group}-a", f"{group}-b"):
        with client.consumer(group=name, protocol="consumer") as consumer:
            consumer.subscribe([topic])
            assert read(consumer, 8) == list(range(8))
            consumer.commit()


def test_a_commit_takes_positions_with_a_note(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, protocol="consumer") as consumer:
        consumer.subscribe([topic])
        read(consumer, 8)

        consumer.commit({(topic, 0): 1, (topic, 1): Committed(2, "half way")})

        assert consumer.committed(topic, 0) == 1
        found = consumer.committed_entry(topic, 1)
        assert found is not None
        assert (found.offset, found.metadata) == (2, "half way")
        assert consumer.committed(topic, 2) is None


def test_a_submitted_commit_is_stored_and_a_later_one_is_not_overtaken(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        read(consumer, 8)

        futures = [consumer.submit_commit({(topic, 0): offset}) for offset in (0, 1)]
        consumer.commit({(topic, 0): 2})

        assert consumer.committed(topic, 0) == 2
        assert [future.result(SECONDS_MAX) for future in futures] == [None, None]


def test_a_loop_commits_only_what_it_has_come_to(client: Client, topic: str, group: str) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [ottla.NewRecord(b"%d" % number, partition=0) for number in range(10)])
    with client.consumer(group=group, protocol="consumer") as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            if record.value == b"3":
                consumer.commit()
                break

        assert consumer.committed(topic, 0) == 4


def test_leaving_by_an_error_commits_nothing(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))

    def work() -> None:
        with client.consumer(group=group, auto_commit=True, protocol="consumer") as consumer:
            consumer.subscribe([topic])
            read(consumer, 8)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()

    assert client.admin().group_offsets(group) == {}


def test_auto_commit_stores_what_was_read_when_the_consumer_closes(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, auto_commit=True, **protocol) as consumer:
        consumer.subscribe([topic])
        read(consumer, 8)

    offsets = client.admin().group_offsets(group)
    assert {key.partition: entry.offset for key, entry in offsets.items()} == dict.fromkeys(range(4), 2)


def test_auto_commit_stores_what_was_read_from_time_to_time(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, auto_commit=True, auto_commit_interval_ms=1, protocol="consumer") as consumer:
        consumer.subscribe([topic])
        read(consumer, 8)

        until([consumer], lambda: consumer.committed(topic, 3) == 2)


def test_partitions_chosen_by_hand_use_the_group_s_positions(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 2) == [0, 4]
        consumer.commit()
    fill(client, topic, range(8, 12))

    with client.consumer(group=group) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 1) == [8]


def test_partitions_chosen_by_hand_cannot_be_committed_for_a_group_with_members(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, **protocol) as member, client.consumer(group=group) as stranger:
        member.subscribe([topic])
        read(member, 8)
        stranger.assign([(topic, 0)])
        read(stranger, 2)

        with pytest.raises(CommitFailed):
            stranger.commit()


def test_where_nothing_is_committed_the_setting_decides(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, auto_offset_reset="latest") as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.position(topic, 0) == 2
    with client.consumer(group=group, auto_offset_reset="error") as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(NoCommittedOffset):
            consumer.poll(1_000)


def test_a_position_beyond_the_log_is_reset(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    client.admin().alter_group_offsets(group, {(topic, 0): 2})
    client.admin().delete_topic(topic)
    client.admin().create_topic(topic, partitions=4)
    client.admin().alter_group_offsets(group, {(topic, 0): 50})
    fill(client, topic, range(4))

    with client.consumer(group=group) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 1) == [0]


def test_a_pattern_follows_topics_by_their_whole_names(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    client.admin().create_topic(f"{topic}-x")
    client.admin().create_topic(f"x-{topic}-x")
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe(pattern=f"{topic}(-x)?")

        until([consumer], lambda: len(consumer.assignment()) == 5)

        assert {key.topic for key in consumer.assignment()} == {topic, f"{topic}-x"}


def test_a_static_member_that_returns_gets_its_partitions_without_a_rebalance(
    client: Client, topic: str, group: str
) -> None:
    settings: dict[str, Any] = {"group": group, "protocol": "classic", "heartbeat_interval_ms": 100}
    revoked: list[TopicPartition] = []
    with client.consumer(group_instance_id="a", **settings) as first:
        first.subscribe([topic], on_revoked=revoked.extend)
        with client.consumer(group_instance_id="b", **settings) as second:
            second.subscribe([topic])
            until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
            had = second.assignment()
            del revoked[:]

        with client.consumer(group_instance_id="b", **settings) as second:
            second.subscribe([topic])
            until([first, second], lambda: len(second.assignment()) == 2)

            assert second.assignment() == had
            assert revoked == []


def test_a_member_that_was_replaced_is_told_so(client: Client, topic: str, group: str) -> None:
    settings: dict[str, Any] = {
        "group": group, "protocol": "classic", "group_instance_id": "a", "heartbeat_interval_ms": 100
    }  # fmt: skip
    with client.consumer(**settings) as first, client.consumer(**settings) as second:
        first.subscribe([topic])
        until([first], lambda: len(first.assignment()) == 4)
        second.subscribe([topic])
        until([second], lambda: len(second.assignment()) == 4)

        with pytest.raises(ottla.Refusal, match="FENCED_INSTANCE_ID"):
            until([first], lambda: False)


def test_a_member_that_computes_for_long_stays_one(client: Client, topic: str, group: str) -> None:
    settings: dict[str, Any] = {"group": group, "protocol": "classic", "heartbeat_interval_ms": 100}
    lost: list[TopicPartition] = []
    with client.consumer(session_timeout_ms=1_500, **settings) as consumer:
        consumer.subscribe([topic], on_lost=lost.extend)
        until([consumer], lambda: len(consumer.assignment()) == 4)

        # Longer than the session, without a poll.
        threading.Event().wait(2.5)
        consumer.poll(100)
        consumer.commit()

        assert lost == []
        described = client.admin().describe_group(group)
        assert described is not None
        assert len(described.members) == 1


def test_a_member_that_does_not_poll_for_too_long_is_out_and_comes_back(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    lost: list[TopicPartition] = []
    with client.consumer(group=group, poll_interval_max_ms=1_000, **protocol) as consumer:
        consumer.subscribe([topic], on_lost=lost.extend)
        until([consumer], lambda: len(consumer.assignment()) == 4)

        deadline = time.monotonic() + SECONDS_MAX
        while (found := client.admin().describe_group(group)) is not None and found.members:
            assert time.monotonic() < deadline

        with pytest.raises(CommitFailed):
            consumer.commit({(topic, 0): 0})
        until([consumer], lambda: len(lost) == 4 and len(consumer.assignment()) == 4)


def test_a_callback_may_use_the_consumer(client: Client, topic: str, group: str, protocol: dict[str, Any]) -> None:
    fill(client, topic, range(8))
    with client.consumer(group=group, **protocol) as consumer:

        def begin(partitions: list[TopicPartition]) -> None:
            for key in partitions:
                consumer.seek(*key, offset=1)

        consumer.subscribe([topic], on_assigned=begin, on_revoked=lambda partitions: consumer.commit())
        assert read(consumer, 4) == [4, 5, 6, 7]

    assert {entry.offset for entry in client.admin().group_offsets(group).values()} == {2}


def test_a_consumer_that_unsubscribes_leaves_its_group(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        until([consumer], lambda: len(consumer.assignment()) == 4)

        consumer.unsubscribe()

        assert consumer.assignment() == []
        deadline = time.monotonic() + SECONDS_MAX
        while (found := client.admin().describe_group(group)) is not None and found.members:
            assert time.monotonic() < deadline


def test_a_consumer_that_unsubscribes_may_subscribe_again_at_once(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    with client.consumer(group=group, **protocol) as consumer:
        for _ in range(3):
            consumer.subscribe([topic])
            until([consumer], lambda: len(consumer.assignment()) == 4)
            consumer.unsubscribe()


def test_partitions_chosen_by_hand_are_not_kept_beside_those_of_the_group(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    with client.consumer(group=group, **protocol) as first, client.consumer(group=group, **protocol) as second:
        first.subscribe([topic])
        until([first], lambda: len(first.assignment()) == 4)
        first.assign([(topic, number) for number in range(4)])
        first.commit({(topic, 0): 0})
        second.subscribe([topic])
        until([second], lambda: len(second.assignment()) == 4)

        first.subscribe([topic])

        assert first.assignment() == []
        until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
        assert not set(first.assignment()) & set(second.assignment())


def test_a_topic_that_was_deleted_and_created_anew_is_read_although_the_group_has_not_noticed(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    client.admin().create_topic(f"{topic}-x")
    with client.consumer(group=group, **protocol) as leader, client.consumer(group=group, **protocol) as consumer:
        leader.subscribe([f"{topic}-x"])
        until([leader], lambda: len(leader.assignment()) == 1)
        consumer.subscribe([topic])
        until([leader, consumer], lambda: len(consumer.assignment()) == 4)
        fill(client, topic, range(4))
        assert read(consumer, 4) == list(range(4))

        client.admin().delete_topic(topic)
        until([consumer], lambda: consumer.assignment() == [])
        client.admin().create_topic(topic, partitions=4)
        fill(client, topic, range(10, 18))

        found: list[Record] = []
        deadline = time.monotonic() + SECONDS_MAX
        while len(found) < 8:
            assert time.monotonic() < deadline, consumer.assignment()
            found += leader.poll(10) + consumer.poll(100)
        assert sorted(int(record.value or b"") for record in found) == list(range(10, 18))


def test_closing_in_the_middle_of_a_join_does_not_take_long(client: Client, topic: str, group: str) -> None:
    settings: dict[str, Any] = {"group": group, "protocol": "classic", "heartbeat_interval_ms": 100}
    with client.consumer(**settings) as first:
        first.subscribe([topic])
        until([first], lambda: len(first.assignment()) == 4)
        second = client.consumer(**settings)
        second.subscribe([topic])
        # The first one does not poll, so the second one's join is not answered.
        assert second.poll(500) == []
        closer = threading.Thread(target=second.close)
        closer.start()
        closer.join(SECONDS_MAX)

        assert not closer.is_alive()
        until([first], lambda: len(first.assignment()) == 4)


def test_a_deleted_topic_takes_only_its_own_partitions_away(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    client.admin().create_topic(f"{topic}-x")
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic, f"{topic}-x"])
        until([consumer], lambda: len(consumer.assignment()) == 5)

        client.admin().delete_topic(f"{topic}-x")
        until([consumer], lambda: len(consumer.assignment()) == 4)
        fill(client, topic, range(8))

        assert read(consumer, 8) == list(range(8))


def test_the_async_face_does_the_same(target: Target, group: str, protocol: dict[str, Any]) -> None:
    topic = f"async-{group}"
    revoked: list[TopicPartition] = []

    async def give_up(partitions: list[TopicPartition]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, revoked.extend, partitions)

    async def both(*consumers: AsyncConsumer) -> int:
        return sum([len(await consumer.poll(50)) for consumer in consumers])

    async def work() -> list[int | None]:
        async with target.background() as client:
            await client.admin().create_topic(topic, partitions=4)
            async with client.producer() as producer:
                for number in range(8):
                    await producer.send(topic, b"x", partition=number % 4)
            async with client.consumer(group=group, auto_commit=True, **protocol) as first:
                await first.subscribe([topic], on_revoked=give_up)
                seen = 0
                while seen < 8:
                    seen += await both(first)
                await (await first.submit_commit())
                async with client.consumer(group=group, **protocol) as second:
                    await second.subscribe([topic])
                    while not len(first.assignment()) == len(second.assignment()) == 2:
                        seen += await both(first, second)
                assert seen == 8
                return [await first.committed(topic, number) for number in range(4)]

    assert asyncio.run(asyncio.wait_for(work(), SECONDS_MAX)) == [2, 2, 2, 2]
    assert len(revoked) >= 2


def test_many_async_members_in_one_process_all_get_their_share(target: Target, group: str) -> None:
    topic = f"many-{group}"

    async def work() -> None:
        async with target.background() as client, asyncio.TaskGroup() as tasks:
            await client.admin().create_topic(topic, partitions=10)
            all_have_one = asyncio.Event()
            shares: dict[int, int] = {}

            async def member(number: int) -> None:
                async with client.consumer(group=group, protocol="classic", heartbeat_interval_ms=100) as consumer:
                    await consumer.subscribe([topic])
                    while not all_have_one.is_set():
                        await consumer.poll(50)
                        shares[number] = len(consumer.assignment())
                        if list(shares.values()) == [1] * 10:
                            all_have_one.set()

            for number in range(10):
                tasks.create_task(member(number))
            await all_have_one.wait()

    # It ends only when each of the ten has one of the ten partitions.
    asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))


def test_an_async_member_without_a_task_is_refused(target: Target, group: str) -> None:
    async def work() -> None:
        async with target.background() as client:
            await client.admin().create_topic(f"t-{group}")
            await client.consumer(group=group).subscribe([f"t-{group}"])

    with pytest.raises(InvalidRequest, match="async with"):
        asyncio.run(work())


def test_a_name_that_no_group_can_have_is_refused_before_anything_is_sent() -> None:
    client = ottla.connect("127.0.0.1:1")

    for name in ("", ".", "..", "a/b"):
        with pytest.raises(InvalidGroupName):
            client.consumer(group=name)
        with pytest.raises(InvalidGroupName):
            client.admin().describe_group(name)


def test_a_commit_without_a_group_does_nothing_unless_one_is_required(client: Client, topic: str) -> None:
    with client.consumer() as consumer:
        consumer.subscribe([topic])
        consumer.commit()
        assert consumer.submit_commit().result(1) is None
        assert (consumer.group(), consumer.committed(topic, 0)) == (None, None)
    with client.consumer(require_group=True) as consumer, pytest.raises(NoGroup):
        consumer.commit()


def test_the_admin_shows_groups_of_both_kinds(client: Client, topic: str, group: str, protocol: dict[str, Any]) -> None:
    kind = protocol["protocol"]
    fill(client, topic, range(8))
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        read(consumer, 8)
        consumer.commit({(topic, 0): 1})

        listed = {each.group: each for each in client.admin().list_groups(kinds=[kind])}
        described = client.admin().describe_groups([group, f"{group}-none"])
        lag = client.admin().group_lag(group)

    assert (listed[group].kind, listed[group].state) == (kind, "Stable")
    found = described[group]
    assert found is not None
    assert described[f"{group}-none"] is None
    assert (found.kind, found.state, found.has_members) == (kind, "Stable", True)
    (member,) = found.members
    assert member.topics == (topic,)
    assert member.partitions == tuple(TopicPartition(topic, number) for number in range(4))
    assert {key.partition: (entry.end, entry.lag) for key, entry in lag.items()} == {
        0: (2, 1), 1: (2, None), 2: (2, None), 3: (2, None)
    }  # fmt: skip


def test_positions_are_altered_and_forgotten_only_where_nobody_reads(
    client: Client, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    fill(client, topic, range(8))
    admin = client.admin()
    admin.alter_group_offsets(group, {(topic, 0): 1, (topic, 1): Committed(2, "by hand")})
    assert admin.group_offsets(group)[TopicPartition(topic, 1)].metadata == "by hand"
    with client.consumer(group=group, **protocol) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 5) == [2, 3, 4, 6, 7]

        with pytest.raises(ottla.Refusal, match="NON_EMPTY_GROUP"):
            admin.alter_group_offsets(group, {(topic, 0): 0})
        with pytest.raises(ottla.Refusal, match="GROUP_SUBSCRIBED_TO_TOPIC"):
            admin.delete_group_offsets(group, [(topic, 0)])
        with pytest.raises(ottla.Refusal, match="NON_EMPTY_GROUP"):
            admin.delete_group(group)

    admin.delete_group_offsets(group, [(topic, 0)])
    assert set(admin.group_offsets(group)) == {TopicPartition(topic, 1)}
    admin.delete_groups([group])
    assert admin.describe_group(group) is None
    with pytest.raises(ottla.Refusal, match="GROUP_ID_NOT_FOUND"):
        admin.delete_group(group)


def test_a_position_of_a_topic_that_is_not_there_is_refused(client: Client, topic: str, group: str) -> None:
    with pytest.raises(ottla.TopicNotFound):
        client.admin().alter_group_offsets(group, {(f"{topic}-none", 0): 1})
    with pytest.raises(ottla.PartitionNotFound):
        client.admin().alter_group_offsets(group, {(topic, 4): 1})


def test_subscribing_needs_topics_or_a_pattern(client: Client, topic: str, group: str) -> None:
    consumer = client.consumer(group=group)

    with pytest.raises(InvalidRequest, match="pattern"):
        consumer.subscribe()
    with pytest.raises(InvalidRequest, match="pattern"):
        consumer.subscribe([topic], pattern="t.*")
    with pytest.raises(ottla.InvalidSetting, match="pattern"):
        consumer.subscribe(pattern="(")
    with pytest.raises(ottla.TopicNotFound):
        consumer.subscribe([f"{topic}-none"])
    with pytest.raises(InvalidRequest, match="without a group"):
        client.consumer().subscribe([topic], on_assigned=print)


def test_a_pattern_works_without_a_group_too(client: Client, topic: str) -> None:
    client.admin().create_topic(f"{topic}-x")
    with client.consumer() as consumer:
        consumer.subscribe(pattern=f"{topic}.*")

        assert len(consumer.assignment()) == 5


def test_a_consumer_that_was_closed_by_another_thread_commits_nothing(client: Client, topic: str, group: str) -> None:
    fill(client, topic, range(8))
    consumer = client.consumer(group=group, auto_commit=True, protocol="consumer")
    consumer.subscribe([topic])
    read(consumer, 8)

    closer = threading.Thread(target=consumer.close)
    closer.start()
    closer.join(SECONDS_MAX)

    # Nobody knows whether the thread that polled has dealt with what it got.
    assert client.admin().group_offsets(group) == {}


def test_members_go_on_when_the_broker_was_killed_and_is_back(tmp_path: Path, protocol: dict[str, Any]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = ("--listen", f"127.0.0.1:{probe.getsockname()[1]}")
    flags = [part for name, value in QUICK.items() for part in ("--set", f"{name}={value}")]
    committed: list[int] = []
    with ExitStack() as stack:
        with serving(tmp_path, *flags, listen=listen) as server:
            client = stack.enter_context(ottla.connect(server.address))
            client.admin().create_topic("t", partitions=4)
            fill(client, "t", range(40))
            members = [stack.enter_context(client.consumer(group="g", **protocol)) for _ in range(2)]
            for member in members:
                member.subscribe(["t"])
            seen = until(members, lambda: all(len(member.assignment()) == 2 for member in members))
            for member in members:
                member.commit()
            committed = [members[0].committed("t", number) or 0 for number in range(4)]
            server.stop(signal.SIGKILL)
        with serving(tmp_path, *flags, listen=listen):
            again = [members[0].committed("t", number) or 0 for number in range(4)]
            assert again == committed
            fill(client, "t", range(40, 60))
            deadline = time.monotonic() + SECONDS_MAX
            while {record.value for record in seen} != {b"%d" % number for number in range(60)}:
                assert time.monotonic() < deadline
                for member in members:
                    seen += member.poll(50)
            for member in members:
                member.commit()
            assert [members[0].committed("t", number) for number in range(4)] == [15] * 4
            stack.close()

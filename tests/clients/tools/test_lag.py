"""What three tools tell of the same groups is the same, and what one resets the others see.

Of kafka-python's admin client, Kafka's ConsumerGroupCommand and `ottla groups`: only the first says nothing of a
partition that a member has and never committed in.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.server_process import ServerProcess, running
from tests.clients.tools.looks import (
    JavaLook,
    Look,
    OttlaLook,
    Place,
    PythonLook,
    ResetRefused,
    Standing,
    committed_only,
)
from tests.peers.tools import Tools
from tests.server.wire import Wire

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.errors import CommitFailedError, RebalanceInProgressError
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as PythonPartition

POLLS_MAX = 300
POLL_MS = 100
JOIN_MS = 10_000
"""kafka-python never looks at the answer to a SyncGroup that its poll has ended before; with this it waits for it."""
RECORDS = 10
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "3"}
TOPICS = ("orders", "payments")
IDLE, CLASSIC, CONSUMER = GROUPS = ("idle", "active.classic", "active.consumer")
COMMITTED = {("orders", 0): 4, ("orders", 1): 10, ("payments", 2): 0}
"""By each group: somewhere, at the end, at the beginning; nothing in the other partitions."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With three groups: one without members, and one with a member for each protocol."""
    with running(tmp_path_factory.mktemp("lag"), SETTINGS) as server, ExitStack() as members:
        with Wire(server) as wire:
            for topic in TOPICS:
                wire.make_topic(topic)
                for partition in range(3):
                    wire.produce(topic, [b"x"] * RECORDS, partition=partition)
        PythonLook(server).commit(IDLE, COMMITTED)
        members.enter_context(closing(_classic_member(server)))
        members.enter_context(closing(_consumer_member(server)))
        yield server


def _classic_member(server: ServerProcess) -> Any:
    member = KafkaConsumer(
        bootstrap_servers=server.address,
        group_id=CLASSIC,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
        metadata_max_age_ms=500,
    )
    # It has to know the topics before it joins; otherwise it joins twice, and sleeps through a whole poll between.
    assert all(member.partitions_for_topic(topic) for topic in TOPICS)
    member.subscribe(TOPICS)
    offsets = {PythonPartition(*place): OffsetAndMetadata(at, "", -1) for place, at in COMMITTED.items()}
    until = monotonic() + POLLS_MAX * POLL_MS / 1000
    while monotonic() < until:
        member.poll(JOIN_MS)
        if len(member.assignment()) == 6:
            # It may have seen a topic too late for its first join; then it joins again, and asks for patience.
            with suppress(RebalanceInProgressError, CommitFailedError):
                member.commit(offsets)
                return member
    member.close()
    pytest.fail("the member was never given its partitions")


def _consumer_member(server: ServerProcess) -> Consumer:
    settings = {"group.protocol": "consumer", "enable.auto.commit": False, "log_level": 0}
    member = Consumer({"bootstrap.servers": server.address, "group.id": CONSUMER, **settings})
    member.subscribe(list(TOPICS))
    for _ in range(POLLS_MAX):
        member.poll(POLL_MS / 1000)
        if len(member.assignment()) == 6:
            break
    member.commit(offsets=[TopicPartition(*place, offset) for place, offset in COMMITTED.items()], asynchronous=False)
    return member


@pytest.fixture(scope="module")
def looks(server: ServerProcess, tools: Tools) -> dict[str, Look]:
    return {
        "kafka-python": PythonLook(server),
        "java": JavaLook(tools, server),
        "ottla": OttlaLook(server),
    }


def test_every_tool_tells_the_same_committed_offsets_and_lag(looks: dict[str, Look]) -> None:
    expected = {place: Standing(offset, RECORDS, RECORDS - offset) for place, offset in COMMITTED.items()}
    for name, look in looks.items():
        found = look.standings(*GROUPS)
        assert {group: committed_only(found[group]) for group in GROUPS} == dict.fromkeys(GROUPS, expected), name


@pytest.mark.parametrize("name", ["java", "ottla"])
def test_partitions_that_a_member_has_are_told_also_where_nothing_is_committed(
    looks: dict[str, Look], name: str
) -> None:
    found = looks[name].standings(CLASSIC, CONSUMER)
    never: dict[Place, Standing] = {
        (topic, partition): Standing(None, RECORDS, None)
        for topic in TOPICS
        for partition in range(3)
        if (topic, partition) not in COMMITTED
    }
    for group in (CLASSIC, CONSUMER):
        assert {place: standing for place, standing in found[group].items() if standing.committed is None} == never


def test_what_one_tool_resets_the_others_see(looks: dict[str, Look], server: ServerProcess) -> None:
    group, place = "reset", ("orders", 2)
    PythonLook(server).commit(group, {place: 1, ("payments", 0): 9})
    for offset, (name, look) in enumerate(looks.items(), start=5):
        look.reset(group, place, offset)
        expected = {place: Standing(offset, RECORDS, RECORDS - offset), ("payments", 0): Standing(9, RECORDS, 1)}
        for other_name, other in looks.items():
            assert other.standings(group)[group] == expected, f"reset by {name}, told by {other_name}"


@pytest.mark.parametrize("name", ["kafka-python", "java", "ottla"])
def test_a_group_with_members_is_not_reset(looks: dict[str, Look], name: str) -> None:
    for group in (CLASSIC, CONSUMER):
        with pytest.raises(ResetRefused):
            looks[name].reset(group, ("orders", 0), 0)
        assert looks["kafka-python"].standings(group)[group]["orders", 0].committed == COMMITTED["orders", 0]

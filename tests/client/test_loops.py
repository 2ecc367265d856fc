"""Loops over a consumer: what they have come to, and who has the last word about where it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.blocking.consumer import Consumer
from tests.client.scripted_broker import ScriptedCluster

IDLE_MS = 100


@pytest.fixture
def consumer(cluster: ScriptedCluster, client: Client) -> Iterator[Consumer]:
    """Two partitions: 0 to 5 in the first, 10 to 12 in the second."""
    cluster.create("t", 2)
    cluster.write("t", 0, *(b"%d" % number for number in range(6)))
    cluster.write("t", 1, *(b"%d" % number for number in range(10, 13)))
    with client.consumer() as made:
        yield made


def _rest(consumer: Consumer) -> list[int]:
    return [int(record.value or b"") for record in consumer.records(idle_ms=IDLE_MS)]


def test_a_loop_goes_on_where_it_was_sent(consumer: Consumer) -> None:
    consumer.assign([("t", 0)])
    seen = []
    for record in consumer.records(idle_ms=IDLE_MS):
        seen.append(record.offset)
        if len(seen) == 4:
            consumer.seek("t", 0, offset=1)

    assert seen == [0, 1, 2, 3, 1, 2, 3, 4, 5]


def test_a_place_that_was_chosen_in_a_loop_holds_after_it(consumer: Consumer) -> None:
    consumer.assign([("t", 0)])
    for record in consumer:
        if record.offset == 3:
            consumer.seek("t", 0, offset=3)
            break

    assert consumer.position("t", 0) == 3
    assert _rest(consumer) == [3, 4, 5]


@pytest.mark.parametrize("to_beginning", [True, False])
def test_a_place_that_was_chosen_holds_although_the_loop_ends_later(consumer: Consumer, to_beginning: bool) -> None:
    consumer.assign([("t", 0)])
    loop = iter(consumer)
    next(loop)
    if to_beginning:
        consumer.seek_to_beginning()
    else:
        consumer.seek_all(offset=0)

    del loop

    assert _rest(consumer) == [0, 1, 2, 3, 4, 5]


def test_a_place_in_one_partition_takes_nothing_away_from_another(consumer: Consumer) -> None:
    consumer.assign([("t", 0), ("t", 1)])
    loop = consumer.records(idle_ms=IDLE_MS)
    seen = [next(loop).value]
    consumer.seek("t", 0, offset=5)

    seen += [record.value for record in loop]

    # Either partition may have been the first.
    assert sorted(value for value in seen if value and value != b"0") == [b"10", b"11", b"12", b"5"]


def test_a_poll_beside_a_loop_passes_nothing_over(consumer: Consumer) -> None:
    consumer.assign([("t", 0)])
    loop = iter(consumer)
    first = next(loop).offset
    polled = [record.offset for record in consumer.poll(IDLE_MS, records_max=2)]

    assert [first, *polled, next(loop).offset] == [0, 1, 2, 3]


def test_the_position_in_a_loop_is_behind_the_record_that_it_has_come_to(consumer: Consumer) -> None:
    consumer.assign([("t", 0)])
    loop = iter(consumer)
    next(loop)

    assert consumer.position("t", 0) == 1


def test_a_loop_gives_nothing_of_a_partition_that_is_read_no_more(consumer: Consumer) -> None:
    consumer.assign([("t", 0), ("t", 1)])
    loop = consumer.records(idle_ms=IDLE_MS)
    next(loop)
    consumer.assign([("t", 1)])

    assert {record.partition for record in loop} == {1}


def test_an_async_loop_has_no_say_once_a_place_was_chosen(tmp_path: Path) -> None:
    async def read() -> list[int]:
        async with ottla.open_async(tmp_path / "data") as client:
            await client.admin().create_topic("t", partitions=1)
            async with client.producer() as producer:
                await producer.send_batch("t", [b"%d" % number for number in range(10)])
            async with client.consumer() as consumer:
                await consumer.subscribe(["t"])
                async for record in consumer:
                    if record.offset == 3:
                        break
                # An async loop hears only later that it was left.
                await consumer.seek("t", 0, offset=0)
                return [record.offset async for record in consumer.records(idle_ms=IDLE_MS)]

    assert asyncio.run(read()) == list(range(10))

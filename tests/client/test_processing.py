"""Read, transform, write: every record once, whatever happens between two turns or in the middle of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.client.blocking.client import Client, in_process
from ottla.client.blocking.processing import Processor
from ottla.client.errors import InvalidSetting, ProducerFenced
from ottla.client.transport import Reply
from ottla.client.values import NewRecord, OffsetSpec, RecordPosition, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import RecordTooLarge, TopicNotFound
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.schema import Message
from tests.client.lossy_broker import LossyBroker, lossy, lost

WAIT_SECONDS = 60
IDLE_MS = WAIT_SECONDS * 1_000
"""A loop is stopped when all is done; on a busy machine nothing shorter says that nothing more will come."""
LOOK_SECONDS = 0.02
PARTITIONS = 2


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[LossyBroker, Client]]:
    with lossy(tmp_path / "data") as (broker, client):
        client.admin().create_topic("in", partitions=PARTITIONS)
        client.admin().create_topic("out", partitions=1)
        yield broker, client


@pytest.fixture
def client(world: tuple[LossyBroker, Client]) -> Client:
    return world[1]


@pytest.fixture
def broker(world: tuple[LossyBroker, Client]) -> LossyBroker:
    return world[0]


def fill(client: Client, count: int) -> list[bytes]:
    """Numbers, alternating between the partitions; returns them as they come out in order of partition."""
    client.producer().send_batch("in", [NewRecord(b"%d" % number, partition=number % 2) for number in range(count)])
    return [b"%d" % number for number in range(count)]


def written(client: Client) -> list[bytes]:
    """What readers of committed records find in the output."""
    end = client.admin().list_offsets({("out", 0): OffsetSpec.LATEST}, isolation="read_committed")
    place = end[TopicPartition("out", 0)]
    found: list[bytes] = []
    with client.consumer(isolation="read_committed") as consumer:
        consumer.assign([("out", 0)])
        while place is not None and consumer.position("out", 0) < place.offset:
            found += [record.value or b"" for record in consumer.poll(1_000)]
    return found


def copy(client: Client, expected: int, **settings: Any) -> int:
    """Copy until so many different records were given, or nothing more comes; returns how many were given."""
    given = 0
    seen: set[RecordPosition] = set()
    chosen = {"group": "g", "transactional_id": "copier", "idle_ms": IDLE_MS, **settings}
    with client.process("in", **chosen) as work:
        for records in work:
            for record in records:
                work.send("out", record.value, key=record.key)
                seen.add(record.position)
            given += len(records)
            if len(seen) >= expected:
                work.stop()
    return given


def stopping_when_done(client: Client, *works: Processor) -> threading.Thread:
    """Stops the loops when the group has read and committed everything; to be joined after them."""

    def watch() -> None:
        never = threading.Event()
        while sum(each.lag == 0 for each in client.admin().group_lag("g").values()) < PARTITIONS:
            never.wait(LOOK_SECONDS)
        for work in works:
            work.stop()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    return watching


def in_order(values: list[bytes], partition: int) -> list[int]:
    return [int(value) for value in values if int(value) % 2 == partition]


def test_every_record_is_copied_once_and_in_order(client: Client) -> None:
    fill(client, 2_000)

    assert copy(client, 2_000, consumer={"records_max": 130}) == 2_000
    values = written(client)
    assert [in_order(values, each) for each in range(2)] == [list(range(each, 2_000, 2)) for each in range(2)]
    assert sum(each.lag or 0 for each in client.admin().group_lag("g").values()) == 0


def test_a_second_run_goes_on_where_the_first_ended(client: Client) -> None:
    fill(client, 20)
    first = copy(client, 20)
    fill(client, 20)

    assert (first, copy(client, 20)) == (20, 20)
    assert len(written(client)) == 40


def test_a_loop_that_is_left_by_break_gives_its_records_again(client: Client) -> None:
    fill(client, 20)
    with client.process("in", group="g", transactional_id="copier") as work:
        for records in work:
            for record in records:
                work.send("out", record.value)
            break

    before = written(client)
    assert copy(client, 20) == 20
    assert before == []
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(20)]


def test_a_second_loop_over_the_same_work_begins_with_what_the_first_left(client: Client) -> None:
    fill(client, 20)
    seen: list[int] = []
    with client.process("in", group="g", transactional_id="copier", idle_ms=IDLE_MS) as work:
        for records in work:
            work.send("out", b"0")
            seen.append(len(records))
            break
        for records in work:
            for record in records:
                work.send("out", record.value)
            seen.append(len(records))
            if sum(seen[1:]) == 20:
                work.stop()

    assert sum(seen[1:]) == 20
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(20)]


def test_an_error_in_the_loop_aborts_its_turn(client: Client) -> None:
    fill(client, 20)

    def fail() -> None:
        with client.process("in", group="g", transactional_id="copier") as work:
            for records in work:
                work.send("out", records[0].value)
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert written(client) == []
    assert copy(client, 20) == 20


def test_a_loop_that_is_stopped_keeps_its_last_turn(client: Client) -> None:
    fill(client, 20)
    with client.process("in", group="g", transactional_id="copier", consumer={"records_max": 5}) as work:
        for records in work:
            for record in records:
                work.send("out", record.value)
            work.stop()

    assert len(written(client)) == 5
    assert copy(client, 15) == 15


def test_records_may_be_read_without_sending_anything(client: Client) -> None:
    fill(client, 20)
    read = 0
    with client.process(pattern="in|never", group="g", idle_ms=IDLE_MS) as work:
        for records in work:
            read += len(records)
            if read == 20:
                work.stop()

    assert read == 20
    assert {key.partition: each.lag for key, each in client.admin().group_lag("g").items()} == {0: 0, 1: 0}


def test_two_loops_share_the_work_and_nothing_is_copied_twice(client: Client) -> None:
    fill(client, 600)
    both = threading.Barrier(2)
    failures: list[BaseException] = []
    works: list[Processor] = [
        client.process(
            "in", group="g", idle_ms=IDLE_MS, consumer={"records_max": 7}, transactional_id=f"copier-{number}"
        )
        for number in range(2)
    ]

    def run(number: int) -> None:
        try:
            with works[number] as work:
                for turn, records in enumerate(work):
                    for record in records:
                        work.send("out", record.value)
                    if turn == 0 and number == 0:
                        # The other one comes in the middle of a transaction.
                        both.wait(WAIT_SECONDS)
        except BaseException as e:
            failures.append(e)

    first = threading.Thread(target=run, args=(0,))
    first.start()
    both.wait(WAIT_SECONDS)
    watching = stopping_when_done(client, *works)
    run(1)
    first.join(WAIT_SECONDS)
    watching.join(WAIT_SECONDS)

    assert failures == []
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(600)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_was_away_too_long_does_its_records_again(client: Client, protocol: str) -> None:
    fill(client, 20)
    turns = 0
    settings = {"protocol": protocol, "poll_interval_max_ms": 800, "records_max": 20}
    with client.process("in", group="g", idle_ms=IDLE_MS, consumer=settings) as work:
        stopping_when_done(client, work)
        for records in work:
            for record in records:
                work.send("out", record.value)
            turns += 1
            while turns == 1 and (group := client.admin().describe_group("g")) is not None and group.members:
                # Until the group has noticed that nobody polls.
                continue

    assert turns > 1
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(20)]


def test_a_second_loop_of_the_same_id_fences_the_first(client: Client) -> None:
    fill(client, 20)
    with client.process("in", group="g", transactional_id="copier", consumer={"records_max": 5}) as zombie:
        next(iter(zombie))
        zombie.send("out", b"1000")
        client.producer(transactional_id="copier").begin()

        with pytest.raises(ProducerFenced):
            next(zombie)
    copy(client, 20)

    assert b"1000" not in written(client)


def test_a_record_that_cannot_be_sent_ends_the_loop(client: Client) -> None:
    client.admin().alter_configs(topic="out", set={"max.message.bytes": "1000"})
    fill(client, 20)

    def fail() -> None:
        with client.process("in", group="g", transactional_id="copier") as work:
            for _ in work:
                work.send("out", b"x" * 5_000)

    with pytest.raises(RecordTooLarge):
        fail()
    assert written(client) == []
    assert client.admin().group_offsets("g") == {}


def test_a_turn_that_the_broker_cannot_finish_is_done_again(client: Client, broker: LossyBroker) -> None:
    fill(client, 20)
    refusals = [ErrorCode.TRANSACTION_ABORTABLE]

    def refuse(api_key: ApiKey, message: Message, carry_out: Callable[[], Reply]) -> Reply:
        reply = carry_out()
        if api_key is not ApiKey.PRODUCE or not refusals or not isinstance(reply, ProduceResponse):
            return reply
        code = refusals.pop()
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code) for each in topic.partition_responses
                ],
            )
            for topic in reply.responses
        ]
        return ProduceResponse(responses=topics)

    broker.trouble = refuse

    assert copy(client, 20, producer={"batch_bytes": 64}) > 20
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_get_lost_neither_lose_nor_double_a_record(client: Client, broker: LossyBroker, seed: int) -> None:
    fill(client, 300)
    chance = Random(seed)
    struck: list[ApiKey] = []
    lock = threading.Lock()
    about = {
        ApiKey.PRODUCE,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
    }

    def lose(api_key: ApiKey, message: Message, carry_out: Callable[[], Reply]) -> Reply:
        with lock:
            fate = chance.random()
        if api_key not in about or fate > 0.3:
            return carry_out()
        struck.append(api_key)
        if fate > 0.15:
            carry_out()
        raise lost(api_key)

    broker.trouble = lose
    copy(client, 300, consumer={"records_max": 20})
    broker.trouble = lambda api_key, message, carry_out: carry_out()

    assert {ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT} <= set(struck)
    values = written(client)
    assert [in_order(values, each) for each in range(2)] == [list(range(each, 300, 2)) for each in range(2)]


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_that_stays_uncertain_is_settled_before_anything_else_is_read(
    client: Client, broker: LossyBroker, caplog: pytest.LogCaptureFixture, *, carried_out: bool
) -> None:
    fill(client, 10)
    copy(client, 10)
    fill(client, 30)
    left = [3, 2]

    def lose(api_key: ApiKey, message: Message, carry_out: Callable[[], Reply]) -> Reply:
        if api_key is not ApiKey.END_TXN or not left:
            return carry_out()
        left[0] -= 1
        if left[0]:
            return carry_out()
        left.pop(0)
        if carried_out:
            carry_out()
        raise lost(api_key)

    broker.trouble = lose
    # A client that never tries a second time.
    with in_process(broker, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as hasty:
        given = copy(hasty, 30, consumer={"records_max": 5}, producer={"delivery_timeout_ms": 50_000})

    assert given == 30
    assert "the outcome of the commit is not known" in caplog.text
    assert sorted(written(client), key=int) == sorted([b"%d" % number for number in [*range(10), *range(30)]], key=int)


def aborted(client: Client) -> None:
    """Waits until the coordinator has lost patience with the copier's transaction."""
    never = threading.Event()
    while (found := client.admin().describe_transaction("copier")) is None or found.state != "CompleteAbort":
        never.wait(0.02)


def test_a_turn_that_took_too_long_is_done_again(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    fill(client, 20)
    turns = 0
    chosen: Any = {"consumer": {"records_max": 20}, "producer": {"transaction_timeout_ms": 400}}
    with client.process("in", group="g", transactional_id="copier", idle_ms=IDLE_MS, **chosen) as work:
        stopping_when_done(client, work)
        for turns, records in enumerate(work, 1):
            for record in records:
                work.send("out", record.value)
            if turns == 1:
                work.producer.flush()
                aborted(client)
                work.send("out", b"1000")

    assert turns > 1
    assert "the last records are read again" in caplog.text
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(20)]
    assert sum(each.lag or 0 for each in client.admin().group_lag("g").values()) == 0


def test_a_commit_that_stays_uncertain_until_its_time_is_over_is_done_again(
    client: Client, broker: LossyBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client, 20)
    ends: list[ApiKey] = []

    def lose(api_key: ApiKey, message: Message, carry_out: Callable[[], Reply]) -> Reply:
        if api_key is ApiKey.END_TXN:
            ends.append(api_key)
            if len(ends) == 1:
                raise lost(api_key)
            if len(ends) == 2:
                aborted(client)
        return carry_out()

    broker.trouble = lose
    # A client that never tries a second time.
    with in_process(broker, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as hasty:
        settings = {"delivery_timeout_ms": 50_000, "transaction_timeout_ms": 400}
        given = copy(hasty, 20, consumer={"records_max": 20}, producer=settings)

    assert given == 40
    assert "the outcome of the commit is not known" in caplog.text
    assert "took longer than transaction_timeout_ms=400 and was aborted" in caplog.text
    assert sorted(written(client), key=int) == [b"%d" % number for number in range(20)]


def test_a_loop_over_a_topic_that_is_not_there_closes_what_it_has_opened(client: Client) -> None:
    work = client.process("nowhere", group="g")

    with pytest.raises(TopicNotFound), work:
        pass

    assert (work.consumer.is_closed, work.producer.is_closed) == (True, True)


@pytest.mark.parametrize("consumer", [{"isolation": "read_uncommitted"}, {"auto_commit": True}, {"group": "other"}])
def test_what_makes_it_exactly_once_cannot_be_chosen(client: Client, consumer: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="cannot be"):
        client.process("in", group="g", consumer=consumer)


def test_the_transactional_id_has_one_place(client: Client) -> None:
    with pytest.raises(InvalidSetting, match="a place of its own"):
        client.process("in", group="g", producer={"transactional_id": "x"})

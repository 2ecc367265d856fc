"""Transactions of a broker in this process: what is promised outlives it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.values import OffsetSpec, TopicPartition


def committed(client: Client, topic: str) -> list[bytes | None]:
    """What readers of committed records find."""
    end = client.admin().list_offsets({(topic, 0): OffsetSpec.LATEST}, isolation="read_committed")
    place = end[TopicPartition(topic, 0)]
    assert place is not None
    found: list[bytes | None] = []
    with client.consumer(isolation="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        while consumer.position(topic, 0) < place.offset:
            found += [record.value for record in consumer.poll(1_000)]
    return found


def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    with ottla.open(tmp_path) as client:
        client.admin().create_topic("t", partitions=1)
        with client.producer(transactional_id="id") as producer:
            with producer.transaction():
                producer.send("t", b"1")
                producer.send_offsets({("t", 0): 7}, group="g")
            producer.begin()
            producer.send("t", b"aborted")
            producer.abort()

    with ottla.open(tmp_path) as client:
        assert committed(client, "t") == [b"1"]
        assert client.admin().group_offsets("g")[TopicPartition("t", 0)].offset == 7


def test_what_was_left_open_can_be_committed_after_a_restart(tmp_path: Path) -> None:
    with ottla.open(tmp_path) as client:
        client.admin().create_topic("t", partitions=1)
        with client.producer(transactional_id="q/0") as producer:
            producer.begin()
            producer.send("t", b"1")
            left_open = producer.detach()
    assert left_open is not None

    with ottla.open(tmp_path) as client:
        before = committed(client, "t")
        client.admin().commit_together("q", 3, [left_open])
        after = committed(client, "t")
    with ottla.open(tmp_path) as client:
        is_committed = client.admin().is_committed("q", 3)

    assert (before, after, is_committed) == ([], [b"1"], True)


def test_a_client_that_closes_aborts_what_its_producers_have_open(tmp_path: Path) -> None:
    with ottla.open(tmp_path) as client:
        client.admin().create_topic("t", partitions=1)
        producer = client.producer(transactional_id="id")
        producer.begin()
        producer.send("t", b"1")

    with ottla.open(tmp_path) as client:
        found = client.admin().describe_transaction("id")
        read = committed(client, "t")

    assert found is not None
    assert found.state in ("PrepareAbort", "CompleteAbort")
    assert read == []


def test_a_producer_of_the_last_run_is_fenced_by_this_ones(tmp_path: Path) -> None:
    with ottla.open(tmp_path) as client:
        client.admin().create_topic("t", partitions=1)
        with client.producer(transactional_id="q/0") as producer:
            producer.begin()
            producer.send("t", b"zombie")
            left_open = producer.detach()
    assert left_open is not None

    with ottla.open(tmp_path) as client:
        with client.producer(transactional_id="q/0") as producer, producer.transaction():
            producer.send("t", b"1")
        with pytest.raises(ottla.ProducerFenced):
            client.admin().commit_together("q", 0, [left_open])
        assert committed(client, "t") == [b"1"]

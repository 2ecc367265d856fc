"""Which partition a record goes to: hashes that agree with other clients, and fair turns."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import Counter
from random import Random

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.routing import RoundRobinRouter, StickyRouter, fnv1a, fnv1a_partition, murmur2, murmur2_partition

with warnings.catch_warnings():
    # While it is imported, kafka-python reads its resources in a way that Python 3.11 warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

ALL = (0, 1, 2)


@given(st.binary(max_size=300))
def test_murmur2_agrees_with_two_other_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF == aiokafka_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize("length", [0, 1, 3, 4, 63, 64, 67, 68, 69, 1000])
def test_murmur2_takes_keys_of_every_length(length: int) -> None:
    key = bytes(range(256)) * 4

    assert murmur2(key[:length]) == aiokafka_murmur2(key[:length]) & 0xFFFFFFFF


def test_a_thousand_keys_go_to_the_same_partitions_in_another_process() -> None:
    script = (
        "from ottla.client.routing import murmur2_partition as p\nprint([p(b'key-%d' % n, 12) for n in range(1000)])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert run.stdout.strip() == str([murmur2_partition(b"key-%d" % number, 12) for number in range(1000)])


# The reference vectors of the hash's authors.
@pytest.mark.parametrize(("key", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv1a_gives_the_published_values(key: bytes, expected: int) -> None:
    assert fnv1a(key) == expected


@given(st.binary(max_size=50), st.integers(1, 100))
def test_every_hash_stays_within_the_partitions(key: bytes, count: int) -> None:
    assert 0 <= murmur2_partition(key, count) < count
    assert 0 <= fnv1a_partition(key, count) < count


def test_round_robin_spreads_nine_thousand_records_evenly() -> None:
    router = RoundRobinRouter()

    chosen = Counter(router.choose("t", partition_count=3, available=ALL, record_bytes=10) for _ in range(9000))

    assert chosen == {0: 3000, 1: 3000, 2: 3000}


def test_sticky_fills_one_batch_per_partition_in_turn() -> None:
    router = StickyRouter(batch_bytes=100, chance=Random(1))

    chosen = [router.choose("t", partition_count=3, available=ALL, record_bytes=50) for _ in range(12)]

    first = chosen[0]
    turns = [first, (first + 1) % 3, (first + 2) % 3]
    assert chosen == [turns[0], turns[0], turns[1], turns[1], turns[2], turns[2]] * 2


def test_sticky_does_not_choose_a_partition_without_a_leader() -> None:
    router = StickyRouter(batch_bytes=10, chance=Random(1))

    chosen = {router.choose("t", partition_count=3, available=(0, 2), record_bytes=50) for _ in range(12)}

    assert chosen == {0, 2}


def test_sticky_chooses_something_when_no_partition_has_a_leader() -> None:
    router = StickyRouter(batch_bytes=10, chance=Random(1))

    assert 0 <= router.choose("t", partition_count=3, available=(), record_bytes=50) < 3


def test_topics_take_their_turns_apart() -> None:
    router = RoundRobinRouter()
    router.choose("a", partition_count=3, available=ALL, record_bytes=1)

    assert router.choose("b", partition_count=3, available=ALL, record_bytes=1) == 0


def test_round_robin_goes_on_when_partitions_were_added() -> None:
    router = RoundRobinRouter()
    for _ in range(2):
        router.choose("t", partition_count=2, available=(0, 1), record_bytes=1)

    assert [router.choose("t", partition_count=4, available=(), record_bytes=1) for _ in range(3)] == [2, 3, 0]

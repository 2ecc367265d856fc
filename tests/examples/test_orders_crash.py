"""The generator and a broker that is killed under it: what was acknowledged is there, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla
from examples.orders.broker import Broker
from examples.orders.generator import TOPIC
from examples.orders.sending import GeneratorProcess
from examples.orders.totals import committed

pytestmark = pytest.mark.slow

WAIT_S = 60
POLL_MS = 100


def _wait_for_more(client: ottla.Client, *, than: int) -> None:
    """Until the topic has grown: the generator has found its broker."""
    with client.consumer(start_offset=than) as consumer:
        consumer.assign([(TOPIC, 0)])
        for _ in range(WAIT_S * 1_000 // POLL_MS):
            if consumer.poll(POLL_MS):
                return
    pytest.fail("no more orders came")


def test_a_broker_that_is_killed_loses_and_doubles_no_order(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    address = broker.address
    with ottla.connect(address) as client:
        client.admin().create_topic(TOPIC, partitions=2)
        generator = GeneratorProcess(address, rate=5_000, speed=60, log=tmp_path / "generator.log")
        try:
            _wait_for_more(client, than=0)
            for _ in range(2):
                broker.kill()
                broker.start()
                _wait_for_more(client, than=sum(1 for _ in committed(client, TOPIC)) // 2)
            generated = generator.stop()
            ids = sorted(int(record.key or b"") for record in committed(client, TOPIC))
        finally:
            generator.kill()
            broker.stop()

    assert broker.address == address
    assert ids == list(range(generated.orders))


def test_a_generator_ends_with_the_one_who_started_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        with ottla.connect(broker.address) as client:
            client.admin().create_topic(TOPIC, partitions=1)
            generator = GeneratorProcess(broker.address, rate=100, speed=60, log=tmp_path / "generator.log")
            _wait_for_more(client, than=0)
        # All that it does is to close the generator's input, as the end of a process would.
        generated = generator.stop()
    finally:
        broker.stop()

    assert generated.orders > 0

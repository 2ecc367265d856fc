"""The pytest fixture that starts a real broker, used as somebody else's tests would use it."""

from __future__ import annotations

import pytest

import ottla
from ottla.testing.server_thread import ServerThread


def test_the_broker_takes_and_gives_records(ottla_broker: ServerThread) -> None:
    with ottla.connect(ottla_broker.bootstrap) as client:
        with client.producer() as producer:
            position = producer.send("greetings", b"hello", key=b"you")
        assert position == ottla.RecordPosition("greetings", 0, 0)
        with client.consumer() as consumer:
            consumer.assign([("greetings", 0)])
            assert [record.value for record in consumer.poll(5_000)] == [b"hello"]


@pytest.mark.ottla(config={"num.partitions": 4})
def test_settings_come_from_the_mark(ottla_broker: ServerThread) -> None:
    with ottla.connect(ottla_broker.bootstrap) as client:
        made = client.admin().create_topic("wide")
    assert len(made.partitions) == 4


def test_two_brokers_stand_side_by_side(ottla_broker: ServerThread, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = ServerThread(str(tmp_path_factory.mktemp("other")))
    other.start()
    assert other.port != ottla_broker.port
    other.stop()
    other.stop()


def test_a_broker_that_cannot_start_says_why(
    ottla_broker: ServerThread, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = str(tmp_path_factory.mktemp("taken"))
    first = ServerThread(directory)
    first.start()
    second = ServerThread(directory)
    with pytest.raises(ottla.OttlaError, match="ottla"):
        second.start()
    first.stop()

"""Requests that are sent now and answered later, and answers of any length in any pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.blocking_transport import BlockingTransport
from ottla.client.errors import ClientClosed, NetworkException, RequestTimedOut, Unreachable
from ottla.client.settings import Address, ClientSettings
from ottla.client.transport import Call, run_now
from ottla.errors import ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.records.reader import read_batch
from tests.client.scripted_broker import ScriptedCluster
from tests.client.socket_broker import SocketBroker

TIMEOUT_MS = 30_000


@pytest.fixture
def broker(cluster: ScriptedCluster) -> Iterator[SocketBroker]:
    cluster.create("t")
    with SocketBroker(cluster) as running:
        yield running


@pytest.fixture
def transport() -> Iterator[BlockingTransport]:
    made = BlockingTransport(ClientSettings())
    yield made
    run_now(made.close())


def fetch(broker: SocketBroker, offset: int, *, timeout_ms: int = TIMEOUT_MS) -> Call:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topic = FetchTopic(topic="t", topic_id=broker.cluster.topics["t"].topic_id, partitions=[asked])
    return Call(broker.address, ApiKey.FETCH, 13, FetchRequest(max_bytes=1, topics=[topic]), timeout_ms)


def metadata(broker: SocketBroker) -> Call:
    return Call(broker.address, ApiKey.METADATA, 9, MetadataRequest(topics=None), TIMEOUT_MS)


def value_of(response: object) -> bytes | None:
    assert isinstance(response, FetchResponse)
    return read_batch(response.responses[0].partitions[0].records or b"")[0].value


@pytest.mark.parametrize("size", [0, 250, 17_000, 300_000, 5_000_000])
@pytest.mark.parametrize("piece_bytes", [1 << 30, 100_003])
def test_answers_of_every_length_arrive_whole(
    broker: SocketBroker, transport: BlockingTransport, size: int, piece_bytes: int
) -> None:
    broker.piece_bytes = piece_bytes
    values = [bytes([65 + number]) * size for number in range(4)]
    for value in values:
        broker.cluster.write("t", 0, value)

    tickets = [transport.begin(fetch(broker, offset)) for offset in range(4)]

    assert [value_of(transport.finish(ticket)) for ticket in tickets] == values


@pytest.mark.parametrize("piece_bytes", [1, 3, 5])
def test_an_answer_may_come_byte_by_byte(broker: SocketBroker, transport: BlockingTransport, piece_bytes: int) -> None:
    broker.piece_bytes = piece_bytes
    for number in range(3):
        broker.cluster.write("t", 0, b"%d" % number)

    tickets = [transport.begin(fetch(broker, offset)) for offset in range(3)]

    assert [value_of(transport.finish(ticket)) for ticket in tickets] == [b"0", b"1", b"2"]


def test_answers_may_be_taken_in_another_order_than_they_come_in(
    broker: SocketBroker, transport: BlockingTransport
) -> None:
    for number in range(3):
        broker.cluster.write("t", 0, b"%d" % number)
    tickets = [transport.begin(fetch(broker, offset)) for offset in range(3)]

    assert [value_of(transport.finish(ticket)) for ticket in reversed(tickets)] == [b"2", b"1", b"0"]


def test_another_request_may_pass_while_an_answer_waits(broker: SocketBroker, transport: BlockingTransport) -> None:
    broker.cluster.write("t", 0, b"waits")
    ticket = transport.begin(fetch(broker, 0))

    assert isinstance(run_now(transport.request(metadata(broker))), MetadataResponse)
    assert value_of(transport.finish(ticket)) == b"waits"


def test_an_abandoned_answer_is_not_taken_for_the_next(broker: SocketBroker, transport: BlockingTransport) -> None:
    for number in range(2):
        broker.cluster.write("t", 0, b"%d" % number)
    transport.abandon(transport.begin(fetch(broker, 0)))

    assert value_of(transport.finish(transport.begin(fetch(broker, 1)))) == b"1"
    assert len(broker.sessions) == 2


def test_the_answers_behind_an_abandoned_one_are_lost_with_it(
    broker: SocketBroker, transport: BlockingTransport
) -> None:
    broker.cluster.write("t", 0, b"x")
    first, second = transport.begin(fetch(broker, 0)), transport.begin(fetch(broker, 0))
    transport.abandon(first)

    with pytest.raises(NetworkException, match="broke before this answer came"):
        transport.finish(second)
    # The broker has taken in the first connection before it answers over another one, so none is left behind.
    assert value_of(transport.finish(transport.begin(fetch(broker, 0)))) == b"x"


def test_an_answer_that_does_not_come_costs_the_connection(broker: SocketBroker, transport: BlockingTransport) -> None:
    broker.cluster.write("t", 0, b"x")
    broker.mischief = lambda session, request: len(broker.requests) == 1

    with pytest.raises(RequestTimedOut):
        transport.finish(transport.begin(fetch(broker, 0, timeout_ms=50)))
    assert value_of(transport.finish(transport.begin(fetch(broker, 0)))) == b"x"


def test_a_size_that_no_answer_has_is_refused(broker: SocketBroker, transport: BlockingTransport) -> None:
    def nonsense(session: object, request: object) -> bool:
        broker.sessions[-1].transport.write(b"\x7f\xff\xff\xff and so on")  # type: ignore[union-attr]
        return True

    broker.mischief = nonsense

    with pytest.raises(ProtocolError, match="a frame of 2147483647 bytes"):
        transport.finish(transport.begin(fetch(broker, 0)))


def test_what_cannot_be_sent_gives_no_ticket(transport: BlockingTransport) -> None:
    nobody = Call(Address("127.0.0.1", 1), ApiKey.METADATA, 9, MetadataRequest(topics=None), TIMEOUT_MS)

    with pytest.raises(Unreachable):
        transport.begin(nobody)
    run_now(transport.close())
    with pytest.raises(ClientClosed):
        transport.begin(nobody)

"""`kill -9` of the broker in the middle of transactions: what was open goes on, what was decided is done.

Kills at random moments under load are in `test_random_kill`.
"""

from __future__ import annotations

import gc
from itertools import groupby

import pytest

from ottla.error_codes import ErrorCode
from tests.clients.server_process import Make, ServerProcess
from tests.clients.transactions import raw_log
from tests.clients.transactions.clients import MODULES, TransactionalProducer, connect
from tests.clients.transactions.conftest import SETTINGS
from tests.clients.transactions.raw_log import COMMITTED, LATEST
from tests.clients.transactions.raw_producer import GROUP, TRANSACTION, Place, RawProducer, find_coordinator, until
from tests.server.wire import Wire

PLACES = (Place("killed", 0), Place("killed", 1))
GROUP_ID = "group"

pytestmark = [
    pytest.mark.slow,
    # kafka-python reads its own message definitions in a way that newer Pythons advise against.
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # And it leaves sockets behind when it cannot connect.
    pytest.mark.leaves_sockets,
]


def _started(make_server: Make) -> ServerProcess:
    server = make_server(settings=SETTINGS).start()
    with Wire(server) as wire:
        raw_log.create_topic(wire, PLACES[0].topic, partitions=len(PLACES))
    return server


def _end(server: ServerProcess, place: Place) -> int:
    with Wire(server) as wire:
        return raw_log.list_offset(wire, place, LATEST, isolation=COMMITTED)[1]


def _raw(wire: Wire) -> RawProducer:
    producer = RawProducer(wire, "id")
    find_coordinator(wire, "id", TRANSACTION)
    find_coordinator(wire, GROUP_ID, GROUP)
    return producer


def _told(wire: Wire, place: Place) -> list[str]:
    """What is in a log: how its records are written, and how transactions end.

    A marker that was written before the kill may be written again after it, which means nothing new.
    """
    return [kind for kind, _ in groupby(entry.kind for entry in raw_log.fetch_all(wire, place))]


def _write(producer: TransactionalProducer, value: bytes) -> None:
    for place in PLACES:
        producer.send(place, value)
    producer.flush()


@pytest.mark.parametrize("name", MODULES)
def test_a_transaction_that_was_open_when_the_broker_was_killed_goes_on_and_is_committed(
    name: str, make_server: Make
) -> None:
    server = _started(make_server)
    client = connect(name, server.address)
    with client.producer("id") as producer:
        producer.begin()
        _write(producer, b"before")
        producer.send_offsets(GROUP_ID, {PLACES[0]: 7})
        server.kill()
        server.start()
        assert _end(server, PLACES[0]) == 0, "it is still open"
        _write(producer, b"after")
        producer.commit()
        until(lambda: all(_end(server, place) == 3 for place in PLACES))
        for place in PLACES:
            assert client.read(place, committed=True) == [(0, b"before"), (1, b"after")]
        assert client.stored(GROUP_ID, PLACES[0], stable=False) == 7
        producer.begin()
        _write(producer, b"next")
        producer.abort()
    assert client.read(PLACES[0], committed=True) == [(0, b"before"), (1, b"after")]
    # What the client has left behind is found here, where its warnings are expected.
    gc.collect()


def test_what_was_acknowledged_is_committed_everywhere_however_soon_the_broker_is_killed(make_server: Make) -> None:
    server = _started(make_server)
    with Wire(server) as wire:
        producer = _raw(wire)
        producer.init_patiently()
        for place in PLACES:
            assert producer.produce(producer.batch(place, [b"kept"]))[0] is ErrorCode.NONE
        assert producer.commit_offsets(GROUP_ID, {PLACES[0]: 7}, version=5) == {PLACES[0]: ErrorCode.NONE}
        assert producer.end(commit=True) is ErrorCode.NONE
        server.kill()
    # Once more while it makes good what the first kill has left undone.
    server.start()
    server.kill()
    server.start()
    with Wire(server) as wire:
        successor = _raw(wire)
        successor.init_patiently()
        assert successor.produce(successor.batch(PLACES[0], [b"dropped"]))[0] is ErrorCode.NONE
        assert successor.end(commit=False) is ErrorCode.NONE
        successor.settle()
        told = [_told(wire, place) for place in PLACES]
        stored = raw_log.fetch_offset(wire, GROUP_ID, PLACES[0], version=7, stable=True)
    assert told == [["transactional", "COMMIT", "transactional", "ABORT"], ["transactional", "COMMIT"]]
    assert stored == (ErrorCode.NONE, 7)


def test_a_producer_that_was_fenced_stays_fenced_when_the_broker_has_been_killed(make_server: Make) -> None:
    server = _started(make_server)
    with Wire(server) as wire:
        older = _raw(wire)
        older.init_patiently()
        assert older.produce(older.batch(PLACES[0], [b"of the older"]))[0] is ErrorCode.NONE
        newer = _raw(wire)
        newer.init_patiently()
    server.kill()
    server.start()
    with Wire(server) as wire:
        older.wire = newer.wire = wire
        find_coordinator(wire, "id", TRANSACTION)
        until(lambda: newer.state() == "Empty")
        assert older.produce(older.batch(PLACES[0], [b"late"]))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert older.end(commit=True) is ErrorCode.PRODUCER_FENCED
        assert newer.produce(newer.batch(PLACES[0], [b"of the newer"]))[0] is ErrorCode.NONE
        assert newer.end(commit=True) is ErrorCode.NONE
        newer.settle()
        assert _told(wire, PLACES[0]) == ["transactional", "ABORT", "transactional", "COMMIT"]


def test_a_transaction_that_nobody_goes_on_with_times_out_after_the_broker_has_been_killed(make_server: Make) -> None:
    server = _started(make_server)
    with Wire(server) as wire:
        producer = _raw(wire)
        producer.init_patiently(timeout_ms=2_000)
        assert producer.produce(producer.batch(PLACES[0], [b"left open"]))[0] is ErrorCode.NONE
        server.kill()
    server.start()
    with Wire(server) as wire:
        producer.wire = wire
        find_coordinator(wire, "id", TRANSACTION)
        assert producer.settle("CompleteAbort") == "CompleteAbort"
        assert producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
        assert _end(server, PLACES[0]) == 2

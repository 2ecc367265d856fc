"""Readers that wait: what wakes those of committed records, and what does not."""

from __future__ import annotations

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tests.clients.server_process import ServerProcess
from tests.clients.transactions.conftest import MakePlace
from tests.clients.transactions.raw_log import BYTES_MAX, COMMITTED, LATEST, UNCOMMITTED, list_offset
from tests.clients.transactions.raw_producer import TRANSACTION, Place, RawProducer, find_coordinator
from tests.server.wire import SECONDS_MAX, Wire

WAIT_MS = SECONDS_MAX * 1_000 * 10
"""Longer than anybody waits for the answer: it has to come because of something."""


def _wait(wire: Wire, place: Place, offset: int, *, isolation: int) -> None:
    asked = FetchPartition(place.partition, fetch_offset=offset, partition_max_bytes=BYTES_MAX)
    topics = [FetchTopic(topic=place.topic, partitions=[asked])]
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, isolation_level=isolation, session_epoch=-1, topics=topics)
    wire.send(ApiKey.FETCH, 12, request)


def _came(wire: Wire) -> PartitionData:
    response = wire.receive().message
    assert isinstance(response, FetchResponse)
    (data,) = response.responses[0].partitions
    assert data.error_code == ErrorCode.NONE
    return data


def _producer(wire: Wire, place: Place) -> RawProducer:
    producer = RawProducer(wire, f"{place.topic}-{place.partition}")
    find_coordinator(wire, producer.transactional_id, TRANSACTION)
    producer.init_patiently()
    return producer


def test_a_reader_of_committed_records_is_woken_by_the_commit_and_not_by_the_writing(
    broker: ServerProcess, wire: Wire, make_place: MakePlace
) -> None:
    place = make_place()
    producer = _producer(wire, place)
    with Wire(broker) as careful, Wire(broker) as eager:
        _wait(careful, place, 0, isolation=COMMITTED)
        _wait(eager, place, 0, isolation=UNCOMMITTED)
        assert producer.produce(producer.batch(place, [b"x"])) == (ErrorCode.NONE, 0)
        assert _came(eager).last_stable_offset == 0
        assert producer.end(commit=True) is ErrorCode.NONE
        data = _came(careful)
    assert data.records
    assert (data.last_stable_offset, data.high_watermark) == (2, 2), "it was not woken before"


def test_a_reader_of_committed_records_is_woken_by_an_abort_which_moves_what_is_stable(
    broker: ServerProcess, wire: Wire, make_place: MakePlace
) -> None:
    place = make_place()
    producer = _producer(wire, place)
    assert producer.produce(producer.batch(place, [b"x"])) == (ErrorCode.NONE, 0)
    with Wire(broker) as careful:
        _wait(careful, place, 0, isolation=COMMITTED)
        assert producer.end(commit=False) is ErrorCode.NONE
        data = _came(careful)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()] == [
        (producer.producer_id, 0)
    ]


def test_a_reader_of_committed_records_is_woken_when_a_transaction_times_out(
    broker: ServerProcess, wire: Wire, make_place: MakePlace
) -> None:
    place = make_place()
    producer = RawProducer(wire, f"{place.topic}-late")
    find_coordinator(wire, producer.transactional_id, TRANSACTION)
    producer.init_patiently(timeout_ms=200)
    assert producer.produce(producer.batch(place, [b"x"])) == (ErrorCode.NONE, 0)
    wire.produce(place.topic, [b"plain"])
    with Wire(broker) as careful:
        _wait(careful, place, 0, isolation=COMMITTED)
        data = _came(careful)
    assert data.last_stable_offset == 3
    assert list_offset(wire, place, LATEST, isolation=COMMITTED)[1] == 3

"""A partition as raw requests show it: batches and markers, watermarks, aborted transactions, offsets by time.

Also makes the topics. What ought to be seen is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ottla.records.batch import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT, peek
from ottla.records.control import parse_marker
from ottla.records.reader import read_batch
from tests.clients.transactions.raw_producer import Place, ask, until
from tests.server.wire import Wire

UNCOMMITTED, COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
BYTES_MAX = 1 << 20


class Entry(NamedTuple):
    """One batch of a log."""

    first: int
    last: int
    producer_id: int
    epoch: int
    sequence: int
    kind: str
    """`plain`, `transactional`, `COMMIT` or `ABORT`."""
    values: tuple[bytes | None, ...]


class View(NamedTuple):
    """What a fetch shows of a partition."""

    code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer ids and first offsets, in the order in which they came."""
    entries: tuple[Entry, ...]


def fetch(wire: Wire, place: Place, offset: int, *, isolation: int, bytes_max: int = BYTES_MAX) -> View:
    """What one request for one partition brings, at once."""
    asked = FetchPartition(place.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[FetchTopic(topic=place.topic, partitions=[asked])],
    )
    (data,) = ask(wire, ApiKey.FETCH, 12, request, FetchResponse).responses[0].partitions
    aborted = tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
    return View(
        ErrorCode(data.error_code),
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        aborted,
        tuple(_entries(memoryview(data.records or b""))),
    )


def fetch_all(wire: Wire, place: Place) -> list[Entry]:
    """The whole log, open transactions too."""
    found: list[Entry] = []
    offset = list_offset(wire, place, EARLIEST, isolation=UNCOMMITTED)[1]
    while (view := fetch(wire, place, offset, isolation=UNCOMMITTED)).entries:
        assert view.code is ErrorCode.NONE
        found += view.entries
        offset = found[-1].last + 1
    return found


def _entries(data: memoryview) -> Iterator[Entry]:
    # The last batch may be cut off by the limit of the fetch.
    while len(data) >= HEADER_SIZE and len(data) >= (size := peek(data).size):
        header, batch = peek(data), data[:size]
        if header.attributes & CONTROL_BIT:
            marker = parse_marker(batch)
            assert marker is not None
            kind, values = marker.marker_type.name, tuple[bytes | None, ...]()
        else:
            kind = "transactional" if header.attributes & TRANSACTIONAL_BIT else "plain"
            values = tuple(record.value for record in read_batch(batch))
        last = header.base_offset + header.last_offset_delta
        yield Entry(
            header.base_offset, last, header.producer_id, header.producer_epoch, header.base_sequence, kind, values
        )
        data = data[size:]


def list_offset(wire: Wire, place: Place, timestamp_ms: int, *, isolation: int) -> tuple[ErrorCode, int, int]:
    """The code, the offset and the timestamp that a time is answered with."""
    asked = ListOffsetsPartition(place.partition, timestamp=timestamp_ms)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(place.topic, [asked])]
    )
    (found,) = ask(wire, ApiKey.LIST_OFFSETS, 7, request, ListOffsetsResponse).topics[0].partitions
    return ErrorCode(found.error_code), found.offset, found.timestamp


def fetch_offset(wire: Wire, group: str, place: Place, *, version: int, stable: bool) -> tuple[ErrorCode, int]:
    """The code and the offset that a group has committed."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(place.topic, [place.partition])], require_stable=stable
    )
    answer = ask(wire, ApiKey.OFFSET_FETCH, version, request, OffsetFetchResponse)
    if answer.error_code != ErrorCode.NONE:
        return ErrorCode(answer.error_code), -1
    (found,) = answer.topics[0].partitions
    return ErrorCode(found.error_code), found.committed_offset


def commit_offset(wire: Wire, group: str, place: Place, offset: int) -> ErrorCode:
    """A plain commit by hand; the code."""
    asked = OffsetCommitRequestPartition(place.partition, offset)
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(place.topic, partitions=[asked])])
    (answer,) = ask(wire, ApiKey.OFFSET_COMMIT, 8, request, OffsetCommitResponse).topics[0].partitions
    return ErrorCode(answer.error_code)


def create_topic(wire: Wire, name: str, *, partitions: int) -> None:
    """Make a topic, and wait until it can be used: Kafka answers a little before that."""
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 1)], timeout_ms=10_000)
    (made,) = ask(wire, ApiKey.CREATE_TOPICS, 5, request, CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE, ErrorCode(made.error_code)
    until(lambda: all(_is_there(wire, Place(name, partition)) for partition in range(partitions)))


def delete_topic(wire: Wire, name: str) -> None:
    """Delete a topic, and wait until nobody can use it."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    (gone,) = ask(wire, ApiKey.DELETE_TOPICS, 4, request, DeleteTopicsResponse).responses
    assert gone.error_code == ErrorCode.NONE, ErrorCode(gone.error_code)
    until(lambda: not _is_there(wire, Place(name, 0)))


def _is_there(wire: Wire, place: Place) -> bool:
    return list_offset(wire, place, LATEST, isolation=UNCOMMITTED)[0] is ErrorCode.NONE


def delete_records(wire: Wire, place: Place, offset: int) -> tuple[ErrorCode, int]:
    """Move a log's start; the code and where it is then."""
    asked = DeleteRecordsPartition(place.partition, offset)
    request = DeleteRecordsRequest([DeleteRecordsTopic(place.topic, [asked])], timeout_ms=10_000)
    (answer,) = ask(wire, ApiKey.DELETE_RECORDS, 1, request, DeleteRecordsResponse).topics[0].partitions
    return ErrorCode(answer.error_code), answer.low_watermark

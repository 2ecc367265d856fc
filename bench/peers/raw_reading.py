"""Reads a partition of ours as bytes, from its first record on: the raw client's other half, for peers unlike Kafka.

Run as a client of `phases`. One fetch after the other; nothing is unpacked but where the next fetch begins. All
batches must have the same size, as those of the raw client have.
"""

from __future__ import annotations

import json
import socket
import sys
from time import perf_counter

from bench.peers.phases import Done, serve
from bench.peers.raw_client import ANSWER_S_MAX, Asked
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.wire import Buffer

FETCH_BYTES = 1 << 20
FETCH_VERSION = 11
ROUND_BYTES_MAX = 1 << 16
"""What may stand round the records of an answer."""
_LENGTH_AT, _LENGTH_FROM = 8, 12
"""Where a batch says how long it is, and where it begins to count."""


def read_all(asked: Asked) -> Done:
    """One record in a batch, so a batch is a record."""
    begun = perf_counter()
    records, room = 0, bytearray(FETCH_BYTES + ROUND_BYTES_MAX)
    with socket.create_connection((asked.host, asked.port), timeout=ANSWER_S_MAX) as connection:
        while True:
            batches = _fetch(connection, room, asked.topic, records)
            if len(batches) < _LENGTH_FROM:
                break
            size = int.from_bytes(batches[_LENGTH_AT:_LENGTH_FROM], "big") + _LENGTH_FROM
            # The last one may be cut off.
            records += len(batches) // size
    wall_s = perf_counter() - begun
    return Done(records=records, size_bytes=records * asked.size, wall_s=wall_s)


def _fetch(connection: socket.socket, room: bytearray, topic: str, offset: int) -> Buffer:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=topics)
    protocol = ClientConnection("bench")
    connection.sendall(b"".join(protocol.send(ApiKey.FETCH, FETCH_VERSION, request)[1]))
    (response,) = protocol.receive(_take_frame(connection, room))
    answer = response.message
    assert isinstance(answer, FetchResponse)
    if not answer.responses:
        return b""
    found = answer.responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE, f"a fetch was refused: {found.error_code}"
    return found.records or b""


def _take_frame(connection: socket.socket, room: bytearray) -> memoryview:
    view = memoryview(room)
    taken, size = 0, 4
    while taken < size:
        count = connection.recv_into(view[taken:])
        if not count:
            raise ConnectionError("the broker hung up")
        taken += count
        if taken >= 4:
            size = 4 + int.from_bytes(view[:4], "big")
    return view[:size]


def main(text: str) -> None:
    """Read each time an order comes."""
    told = json.loads(text)
    told.pop("is_reader", None)
    asked = Asked(**told)
    serve(lambda seconds: read_all(asked))


if __name__ == "__main__":
    main(sys.argv[1])

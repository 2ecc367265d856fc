"""A client that keeps a window of requests open and takes no answer on trust: for figures that must not lie.

A broker that refuses is fast, and so is one that answers anything at all. So every answer is held, byte by byte,
against what it must be, and what was acknowledged is read back. Plain sockets; the same cost for every broker.
Knows no broker, and only as much of the protocol as its three requests need.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from ottla.clock import SystemClock
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Message
from ottla.records.builder import build_batch

WINDOW = 5
ANSWER_S_MAX = 10.0
"""Whoever has not answered by then is not slow but broken."""
LATEST = -1
_FETCH_VERSION, _METADATA_VERSION, _LIST_VERSION, _PRODUCE_VERSION = 11, 9, 5, 9
_STAMPED_BYTES = 16
"""Base offset, length and leader epoch, which the broker sets; the rest of a batch is the producer's."""
_BATCH_BYTES_MIN = 72
_OFFSET_BYTES = 8
_ROUND_BYTES_MAX = 1024
"""What may stand round the records in an answer."""


class BrokenPath(Exception):
    """Something was refused, lost or answered wrongly, so that no speed counts."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: one batch of one record, again and again."""

    topic: str
    batch: bytes
    acks: int

    @classmethod
    def of(cls, topic: str, *, size: int, acks: int) -> Load:
        """A batch of about `size` bytes that nobody can guess."""
        value = os.urandom(max(size - _BATCH_BYTES_MIN + 1, 1))
        return cls(topic, bytes(build_batch([(None, value, SystemClock().now_ms(), ())])), acks)

    @property
    def frame(self) -> bytes:
        data = PartitionProduceData(index=0, records=self.batch)
        topics = [TopicProduceData(name=self.topic, partition_data=[data])]
        request = ProduceRequest(acks=self.acks, timeout_ms=30_000, topic_data=topics)
        return _framed(ApiKey.PRODUCE, _PRODUCE_VERSION, request)

    def answer(self, correlation_id: bytes) -> tuple[bytes, bytes]:
        """What must stand before and after the offset in an answer to the frame: no error, and nothing else."""
        name = self.topic.encode()
        index, no_error, no_time, log_start = b"\0\0\0\0", b"\0\0", b"\xff" * 8, b"\0" * 8
        head = correlation_id + b"\0\x02" + bytes([len(name) + 1]) + name + b"\x02" + index + no_error
        tail = no_time + log_start + b"\x01\0\0\0" + b"\0\0\0\0\0"
        size = len(head) + _OFFSET_BYTES + len(tail)
        return size.to_bytes(4, "big") + head, tail


@dataclass(slots=True)
class Line:
    """One connection, and how far it has come."""

    connection: socket.socket
    load: Load
    last_offset: int = -1
    acknowledged: int = 0
    _unsent: int = 0
    _open: int = 0
    _frame: bytes = field(init=False)
    _answer: tuple[bytes, bytes] = field(init=False)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self._frame = self.load.frame
        # The frame's size, its API and version stand before its number.
        self._answer = self.load.answer(self._frame[8:12])

    def begin(self, requests: int) -> None:
        """Fill the window."""
        self._open = min(requests, WINDOW)
        self._unsent = requests - self._open
        self.connection.sendall(self._frame * self._open)

    def go_on(self) -> bool:
        """Take the answers that have come, and send as many more; whether there are more to come."""
        data = self.connection.recv(1 << 16)
        if not data:
            raise BrokenPath("the connection was closed while answers were due")
        head, tail = self._answer
        size = len(head) + _OFFSET_BYTES + len(tail)
        data = self._rest + data
        whole = len(data) - len(data) % size
        for start in range(0, whole, size):
            offset_at = start + len(head)
            tail_at = offset_at + _OFFSET_BYTES
            if data[start:offset_at] != head or data[tail_at : start + size] != tail:
                raise BrokenPath(f"an answer is not what it must be: {data[start : start + size].hex(' ')}")
            offset = int.from_bytes(data[offset_at:tail_at], "big", signed=True)
            if offset <= self.last_offset:
                raise BrokenPath(f"offset {offset} was given after {self.last_offset}")
            self.last_offset = offset
        self._rest = data[whole:]
        answers = whole // size
        more = min(answers, self._unsent)
        self._open += more - answers
        self._unsent -= more
        self.acknowledged += answers
        if more:
            self.connection.sendall(self._frame * more)
        elif not self._open and self._rest:
            raise BrokenPath(f"{len(self._rest)} bytes came that nobody had asked for")
        return self._open > 0


def produce(lines: Sequence[Line], requests: int) -> None:
    """Send that many requests, shared out among the lines, and see each of them acknowledged."""
    with selectors.DefaultSelector() as selector:
        deadline_s = perf_counter() + ANSWER_S_MAX
        waiting = 0
        for line in lines:
            selector.register(line.connection, selectors.EVENT_READ, line)
            line.begin(requests // len(lines))
            waiting += 1
        while waiting:
            ready = selector.select(deadline_s - perf_counter())
            if not ready:
                raise BrokenPath(f"no answer within {ANSWER_S_MAX:g} s")
            for key, _ in ready:
                if not key.data.go_on():
                    selector.unregister(key.fileobj)
                    waiting -= 1


def fetch(connection: socket.socket, load: Load, *, offset: int, requests: int) -> None:
    """Read one batch again and again, with the window full; each answer must end with that very batch."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=len(load.batch))
    topics = [FetchTopic(topic=load.topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1, max_bytes=len(load.batch), topics=topics)
    frame = _framed(ApiKey.FETCH, _FETCH_VERSION, request)
    wanted = load.batch[_STAMPED_BYTES:]
    connection.sendall(frame * min(WINDOW, requests))
    for number in range(requests):
        answer = _take_frame(connection, bytes_max=len(load.batch) + _ROUND_BYTES_MAX)
        if not answer.endswith(wanted):
            raise BrokenPath(f"the batch at offset {offset} did not come back: an answer of {len(answer)} bytes")
        if number + WINDOW < requests:
            connection.sendall(frame)


def create_topic(connection: socket.socket, topic: str) -> None:
    """Make the topic, and wait until it is there."""
    deadline_s = perf_counter() + ANSWER_S_MAX
    while perf_counter() < deadline_s:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        answer = ask(connection, ApiKey.METADATA, _METADATA_VERSION, request)
        assert isinstance(answer, MetadataResponse)
        if answer.topics and answer.topics[0].error_code == ErrorCode.NONE:
            return
    raise BrokenPath(f"the topic {topic} could not be made")


def check_kept(connection: socket.socket, load: Load, acknowledged: int) -> None:
    """What was acknowledged must be there: as many records as were, and the bytes that were sent."""
    topic = ListOffsetsTopic(name=load.topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    answer = ask(connection, ApiKey.LIST_OFFSETS, _LIST_VERSION, ListOffsetsRequest(replica_id=-1, topics=[topic]))
    assert isinstance(answer, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    if found.error_code != ErrorCode.NONE or found.offset != acknowledged:
        raise BrokenPath(f"{load.topic}: {acknowledged} records were acknowledged and {found.offset} are there")
    for offset in sorted({0, acknowledged // 2, acknowledged - 1}):
        _check_batch(connection, load, offset)


def _check_batch(connection: socket.socket, load: Load, offset: int) -> None:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topics = [FetchTopic(topic=load.topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1, max_bytes=1, topics=topics)
    answer = ask(connection, ApiKey.FETCH, _FETCH_VERSION, request)
    assert isinstance(answer, FetchResponse)
    records = bytes(answer.responses[0].partitions[0].records or b"") if answer.responses else b""
    batch = records[: len(load.batch)]
    if batch[:8] != offset.to_bytes(8, "big") or batch[_STAMPED_BYTES:] != load.batch[_STAMPED_BYTES:]:
        raise BrokenPath(f"{load.topic}: what stands at offset {offset} is not what was sent")


def ask(connection: socket.socket, api_key: ApiKey, version: int, request: Message) -> Message:
    """One request and its answer."""
    protocol = ClientConnection("guard")
    connection.sendall(b"".join(protocol.send(api_key, version, request)[1]))
    while True:
        data = connection.recv(1 << 16)
        if not data:
            raise BrokenPath(f"the connection was closed instead of an answer to {api_key.name}")
        try:
            for response in protocol.receive(data):
                return response.message
        except OttlaError as error:
            raise BrokenPath(f"the answer to {api_key.name} cannot be read: {error}") from error


def connect(address: str) -> socket.socket:
    """A connection that does not wait for ever."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), ANSWER_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _framed(api_key: ApiKey, version: int, request: Message) -> bytes:
    return b"".join(ClientConnection("guard").send(api_key, version, request)[1])


def _take_frame(connection: socket.socket, *, bytes_max: int) -> bytearray:
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    if size > bytes_max:
        raise BrokenPath(f"an answer of {size} bytes is more than was asked for")
    answer = bytearray(size)
    taken = 0
    with memoryview(answer) as view:
        while taken < size:
            count = connection.recv_into(view[taken:])
            if not count:
                raise BrokenPath("the connection was closed in the middle of an answer")
            taken += count
    return answer

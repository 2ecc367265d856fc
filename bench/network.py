"""The broker over a socket against the bare one: what everything that a broker does costs beyond the least.

One connection with a window of five unanswered requests, plain bytes in and out, so that the client costs the
same for both. Each side is a process of its own on the same loop, its files on the same disk.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.turns import Comparison, Side
from ottla.clock import SystemClock
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.schema import Message
from ottla.records.builder import build_batch

WINDOW = 5
REQUESTS = 200
"""Requests in one timed call."""
TOPIC = "bench"
SIZES = ((100, 0.6), (1_000, 0.6), (64_000, 0.8))
"""Bytes of a batch, and which share of the bare broker's rate is expected with acks=1."""


@contextmanager
def comparisons(directory: Path) -> Iterator[list[Comparison]]:
    """Ours and the bare broker, running while the rows are measured."""
    with ExitStack() as stack:
        ours = start(
            stack,
            [sys.executable, "-m", "ottla", "serve", "--data-dir", str(directory / "d"), "--listen", "127.0.0.1:0"],
        )
        bare = start(stack, [sys.executable, "-m", "bench.bare_broker", str(directory / "bare")])
        syncing = start(stack, [sys.executable, "-m", "bench.bare_broker", str(directory / "syncing"), "--sync"])
        create_topic(ours)
        rows = []
        for size, expected in SIZES:
            for acks, peer, wanted in ((1, bare, expected), (-1, syncing, None)):
                frame = produce_frame(size=size, acks=acks)
                ends = "on disk" if acks < 0 else "in the page cache"
                rows.append(
                    Comparison(
                        f"{REQUESTS} produce requests",
                        f"batches of {size:,} B, acks={'all' if acks < 0 else acks}, {ends}, window {WINDOW}",
                        # What one side has left to be written to the disk would slow the other one down.
                        Side("ottla", partial(run, ours, frame), finish=os.sync),
                        ((Side("bare broker", partial(run, peer, frame), finish=os.sync), wanted),),
                    )
                )
        yield rows


def start(stack: ExitStack, command: list[str]) -> socket.socket:
    """A broker in a process of its own, and a connection to it."""
    return connect(stack, start_process(stack, command)[1])


def start_process(
    stack: ExitStack, command: list[str], *, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[str], str]:
    """A broker in a process of its own, and where it says that it listens."""
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    stack.callback(process.kill)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def connect(stack: ExitStack, bootstrap: str) -> socket.socket:
    """A plain connection."""
    host, _, port = bootstrap.rpartition(":")
    connection = stack.enter_context(socket.create_connection((host, int(port))))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def create_topic(connection: socket.socket) -> None:
    """Make the topic, and wait until it takes records."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    while True:
        answer = ask(connection, ApiKey.METADATA, 9, request)
        assert isinstance(answer, MetadataResponse)
        if answer.topics[0].error_code == ErrorCode.NONE:
            break
    answer = ask(connection, ApiKey.PRODUCE, 9, _produce_request(size=100, acks=-1))
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def ask(connection: socket.socket, api_key: ApiKey, version: int, request: Message) -> Message:
    """One request and its answer."""
    protocol = ClientConnection("bench")
    connection.sendall(b"".join(protocol.send(api_key, version, request)[1]))
    while True:
        for response in protocol.receive(connection.recv(1 << 16)):
            return response.message


def produce_frame(*, size: int, acks: int, topic: str = TOPIC) -> bytes:
    """A request with one batch of one record, as bytes."""
    request = _produce_request(size=size, acks=acks, topic=topic)
    return b"".join(ClientConnection("bench").send(ApiKey.PRODUCE, 9, request)[1])


def _produce_request(*, size: int, acks: int, topic: str = TOPIC) -> ProduceRequest:
    value = os.urandom(max(size - 71, 1))
    records = bytes(build_batch([(None, value, SystemClock().now_ms(), ())]))
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def run(connection: socket.socket, frame: bytes) -> None:
    """Keep the window full until all are answered."""
    connection.sendall(frame * WINDOW)
    sent, answered, rest = WINDOW, 0, b""
    while answered < REQUESTS:
        done, rest = take_answers(rest + connection.recv(1 << 16))
        answered += done
        more = min(done, REQUESTS - sent)
        if more:
            connection.sendall(frame * more)
            sent += more


def take_answers(came: bytes) -> tuple[int, bytes]:
    """How many whole answers these bytes begin with, and what stands behind them."""
    count = 0
    while len(came) >= 4 and len(came) >= (end := 4 + int.from_bytes(came[:4], "big")):
        came = came[end:]
        count += 1
    return count, came

"""Reading over a socket against the bare broker: the newest batches from memory, and old ones from the disk.

Plain requests in and bytes out, one connection, as in `network`. Each side holds the same batches. For the cold
row the system is told to forget the files before each turn, so every byte of it comes from the disk.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.network import REQUESTS, TOPIC, WINDOW, create_topic, produce_frame, run, start
from bench.turns import Comparison, Side
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

BATCH_BYTES = 64_000
BATCHES = 2_000
"""128 MB: more than any read-ahead, and little enough to be written in a moment."""
FETCH_BYTES = 1 << 20
TAIL_FETCHES = 50


@contextmanager
def comparisons(directory: Path) -> Iterator[list[Comparison]]:
    """Ours and the bare broker, filled with the same batches."""
    with ExitStack() as stack:
        data = directory / "read"
        serve = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
        ours = start(stack, serve)
        bare_file = directory / "read-bare"
        bare = start(stack, [sys.executable, "-m", "bench.bare_broker", str(bare_file)])
        create_topic(ours)
        frame = produce_frame(size=BATCH_BYTES, acks=-1)
        # The bare one finds batches by counting, so the first is of their size too.
        for connection in (ours, bare):
            for _ in range(BATCHES // REQUESTS):
                run(connection, frame)
        yield [
            Comparison(
                f"{TAIL_FETCHES} fetches at the tail",
                f"one batch of {BATCH_BYTES:,} B each, in memory, window {WINDOW}",
                Side("ottla", partial(_tail, ours)),
                ((Side("bare broker", partial(_tail, bare)), None),),
            ),
            Comparison(
                "fetch everything, cold",
                f"{BATCHES:,} batches of {BATCH_BYTES:,} B, {FETCH_BYTES:,} B a fetch, from the disk, window 1",
                Side("ottla", partial(_everything, ours), partial(_forget, sorted(data.glob(f"{TOPIC}-0/*.log")))),
                ((Side("bare broker", partial(_everything, bare), partial(_forget, [bare_file])), None),),
                is_once=True,
            ),
        ]


def _fetch_frame(*, offset: int, bytes_max: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    topic = FetchTopic(topic=TOPIC, partitions=[partition])
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1, max_bytes=bytes_max, topics=[topic])
    return b"".join(ClientConnection("bench").send(ApiKey.FETCH, 11, request)[1])


def _tail(connection: socket.socket) -> None:
    """The last batches, again and again, with the window full."""
    buffer = bytearray(1 << 20)
    frames = [_fetch_frame(offset=BATCHES - 1 - back, bytes_max=BATCH_BYTES) for back in range(WINDOW)]
    connection.sendall(b"".join(frames))
    for number in range(TAIL_FETCHES):
        _take_answer(connection, buffer)
        if number + WINDOW < TAIL_FETCHES:
            connection.sendall(frames[number % WINDOW])


def _everything(connection: socket.socket) -> None:
    """From the first batch to the last, one fetch after the other."""
    buffer = bytearray(FETCH_BYTES + (1 << 16))
    per_fetch = FETCH_BYTES // BATCH_BYTES
    for offset in range(0, BATCHES, per_fetch):
        connection.sendall(_fetch_frame(offset=offset, bytes_max=FETCH_BYTES))
        _take_answer(connection, buffer)


def _take_answer(connection: socket.socket, buffer: bytearray) -> None:
    """Read one answer, whose records must be there."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    assert size > BATCH_BYTES, f"an answer of {size} bytes holds no batch"
    taken = 0
    with memoryview(buffer) as view:
        while taken < size:
            taken += connection.recv_into(view[: size - taken])


def _forget(files: list[Path]) -> None:
    """Have the system drop its copies of these files."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

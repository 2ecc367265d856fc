"""The floor beneath a broker in Python: parses Produce 9 of one partition, checks the sum, writes, answers.

Nothing else: no topics, no offsets but a count, no index, no recovery, no limits. With `--sync` the answer
waits for an fdatasync that one thread does for all requests of a pass. It also answers Fetch 11 of one partition
with what the file holds from a batch on, if all batches have one size and one record. A measure for what
everything else costs; never a product.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from queue import SimpleQueue
from struct import Struct

import uvloop
from fastcrc.crc32 import iscsi as crc32c

_SIZE = Struct(">i")
_HEADER = Struct(">hhih")
_OFFSET_EPOCH = Struct(">qii")
_CRC = Struct(">I")
_ANSWER_HEAD = Struct(">iiBBB")
_ANSWER_BODY = Struct(">Bihqqq")
_FETCH_NAME_AT = 4 * 4 + 1 + 4 * 2 + 4
"""Replica, wait, least, most; isolation; session and its epoch; number of topics."""
_FETCH_PARTITION = Struct(">iiiqqi")
_FETCHED_HEAD = Struct(">iiihiih")
_FETCHED_BODY = Struct(">iihqqqiii")
_PREFIX_BYTES = 16
_PRODUCE = 0


class Bare(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, file: int, syncs: Syncs | None) -> None:
        self._buffer = memoryview(bytearray(4 << 20))
        self._filled = 0
        self._file = file
        self._syncs = syncs
        self._offset = 0
        self._batch_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        buffer, end, position = self._buffer, self._filled + nbytes, 0
        out: list[bytes] = []
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if end - position - 4 < size:
                break
            if buffer[position + 5] == _PRODUCE:
                out.append(self._produce(position + 4, position + 4 + size))
            else:
                out += self._fetch(position + 4)
            position += 4 + size
        buffer[: end - position] = bytes(buffer[position:end])
        self._filled = end - position
        if not out:
            return
        if self._syncs is None:
            self._transport.writelines(out)  # type: ignore[attr-defined]
        else:
            self._syncs.submit(self._transport, out)

    def _produce(self, start: int, end: int) -> bytes:
        buffer = self._buffer
        _, _, correlation, client_length = _HEADER.unpack_from(buffer, start)
        position = start + _HEADER.size + max(client_length, 0) + 1
        # transactional id (null), acks, timeout, one topic: its name, one partition: its index, its records
        position += 1 + 2 + 4 + 1
        name_length = buffer[position] - 1
        name = bytes(buffer[position + 1 : position + 1 + name_length])
        position += 1 + name_length + 1 + 4
        size = shift = 0
        while True:
            byte = buffer[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        batch = buffer[position : position + size - 1]
        assert crc32c(batch[21:]) == _CRC.unpack_from(batch, 17)[0]
        count = _SIZE.unpack_from(batch, 57)[0]
        length = _SIZE.unpack_from(batch, 8)[0]
        os.writev(self._file, [_OFFSET_EPOCH.pack(self._offset, length, 0), batch[_PREFIX_BYTES:]])
        offset, self._offset = self._offset, self._offset + count
        self._batch_bytes = length + 12
        body = _ANSWER_BODY.pack(2, 0, 0, offset, -1, 0) + b"\x01\x00\x00\x00" + b"\0\0\0\0\0"
        head = _ANSWER_HEAD.pack(4 + 1 + 1 + 1 + len(name) + len(body), correlation, 0, 2, len(name) + 1)
        return head + name + body

    def _fetch(self, start: int) -> tuple[bytes, bytes]:
        buffer = self._buffer
        _, _, correlation, client_length = _HEADER.unpack_from(buffer, start)
        position = start + _HEADER.size + max(client_length, 0) + _FETCH_NAME_AT
        name_length = int.from_bytes(buffer[position : position + 2], "big")
        name = bytes(buffer[position + 2 : position + 2 + name_length])
        _, index, _, offset, _, most = _FETCH_PARTITION.unpack_from(buffer, position + 2 + name_length)
        records = os.pread(self._file, most, offset * self._batch_bytes)
        end = self._offset
        body = _FETCHED_BODY.pack(1, index, 0, end, end, 0, 0, -1, len(records))
        size = _FETCHED_HEAD.size - 4 + len(name) + len(body) + len(records)
        return _FETCHED_HEAD.pack(size, correlation, 0, 0, 0, 1, len(name)) + name + body, records


class Syncs:
    """One thread that syncs once for everything that has come meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: int) -> None:
        self._loop = loop
        self._file = file
        self._queue: SimpleQueue[list[tuple[asyncio.BaseTransport, list[bytes]]]] = SimpleQueue()
        self._next: list[tuple[asyncio.BaseTransport, list[bytes]]] = []
        self._busy = False
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, transport: asyncio.BaseTransport, out: list[bytes]) -> None:
        self._next.append((transport, out))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        waiting, self._next = self._next, []
        self._queue.put(waiting)

    def _work(self) -> None:
        while True:
            waiting = self._queue.get()
            os.fdatasync(self._file)
            self._loop.call_soon_threadsafe(self._done, waiting)

    def _done(self, waiting: list[tuple[asyncio.BaseTransport, list[bytes]]]) -> None:
        for transport, out in waiting:
            transport.writelines(out)  # type: ignore[attr-defined]
        if self._next:
            self._begin()
        else:
            self._busy = False


async def main() -> None:
    """Listen on a free port, say which, and serve until killed."""
    parser = argparse.ArgumentParser(description="The floor beneath a broker in Python.")
    parser.add_argument("file")
    parser.add_argument("--sync", action="store_true")
    options = parser.parse_args()
    file = os.open(options.file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    loop = asyncio.get_running_loop()
    syncs = Syncs(loop, file) if options.sync else None
    server = await loop.create_server(lambda: Bare(file, syncs), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"ready {host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())

"""What a connection has still to send: bytes, and ranges of files that are read as the client takes them.

A slow consumer costs no memory: while the transport is full nothing is read. A range that is not in the page
cache is read by a thread, so that a cold disk never stops the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from ottla.broker.file_range import FileRange
from ottla.errors import StorageFault
from ottla.partitions.sync_pool import SyncRunner
from ottla.protocol.wire import Buffer

CHUNK_BYTES = 256 << 10
"""How much of a file is handed to the transport at once."""
_CACHED_ONLY = getattr(os, "RWF_NOWAIT", 0)

Part = Buffer | FileRange


class _ColdRead:
    """Reads a piece of a file on another thread."""

    __slots__ = ("_part", "_position", "_size", "data")

    def __init__(self, part: FileRange, *, position: int, size: int) -> None:
        self._part = part
        self._position = position
        self._size = size
        self.data = b""

    def run(self) -> None:
        self.data = self._part.file.read(position=self._position, size=self._size)


class Outbox:
    """The queue of one connection."""

    __slots__ = ("_fail", "_has_room", "_is_full", "_parts", "_position", "_reading", "_runner", "_transport")

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        runner: SyncRunner,
        fail: Callable[[str], None],
        has_room: Callable[[], None],
    ) -> None:
        """`fail` is told when a file cannot be read, `has_room` when a thread's read may have emptied the queue."""
        self._transport = transport
        self._runner = runner
        self._fail = fail
        self._has_room = has_room
        self._parts: deque[Part] = deque()
        self._position = 0
        self._is_full = False
        self._reading = False

    @property
    def is_idle(self) -> bool:
        """Whether everything was handed to the transport, and that takes more."""
        return not self._parts and not self._is_full

    def send(self, parts: Sequence[Part]) -> None:
        """Send all parts, in order, after what is queued already."""
        if not self._parts:
            for part in parts:
                if type(part) is FileRange:
                    break
            else:
                self._transport.writelines(cast(Sequence[Buffer], parts))
                return
        self._parts.extend(parts)
        self.go_on()

    def pause(self) -> None:
        """The transport is full."""
        self._is_full = True

    def resume(self) -> None:
        """The transport takes more."""
        self._is_full = False
        self.go_on()

    def drop(self) -> None:
        """The connection is gone."""
        self._parts.clear()
        self._is_full = True

    def go_on(self) -> None:
        parts = self._parts
        while parts and not self._is_full and not self._reading:
            part = parts[0]
            if type(part) is not FileRange:
                parts.popleft()
                self._transport.write(part)  # type: ignore[arg-type]
                continue
            size = min(CHUNK_BYTES, part.size - self._position)
            data = read_cached(part, position=part.position + self._position, size=size)
            if not data:
                self._read_cold(part, size)
                return
            self._sent(part, data)

    def _sent(self, part: FileRange, data: Buffer) -> None:
        self._position += len(data)
        if self._position >= part.size:
            self._parts.popleft()
            self._position = 0
        self._transport.write(data)

    def _read_cold(self, part: FileRange, size: int) -> None:
        self._reading = True
        job = _ColdRead(part, position=part.position + self._position, size=size)

        def done(fault: StorageFault | None) -> None:
            self._reading = False
            if not self._parts:
                return
            if fault is not None or not job.data:
                # The response's size has been announced: there is no other way to take it back.
                self._fail(str(fault) if fault else f"{part.file.path} ends before byte {part.position + part.size}")
                return
            self._sent(part, job.data)
            self.go_on()
            if self.is_idle:
                self._has_room()

        self._runner.submit(job, done)


def read_cached(part: FileRange, *, position: int, size: int) -> memoryview | bytes:
    """What of the range is in memory; empty when the disk would have to be asked."""
    if not _CACHED_ONLY:
        return b""
    buffer = bytearray(size)
    try:
        count = os.preadv(part.file.fileno(), [buffer], position, _CACHED_ONLY)
    except OSError:
        # Not in memory, or a file system that cannot tell: a thread reads it.
        return b""
    return memoryview(buffer)[:count]

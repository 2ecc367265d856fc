"""What a connection has still to send: bytes, and ranges of files that are read as the client takes them.

A slow consumer costs no memory: while the transport is full nothing is read. A large range that is in the page
cache is sent by the system, without passing through this program; that needs the socket itself, and is done only
while the transport holds nothing back. What is not in the page cache a thread has brought there, with all that the
answer still holds and what will be asked for next, so that a cold disk never stops the loop and is never idle.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence

from ottla.broker.file_range import FileRange
from ottla.errors import StorageFault
from ottla.partitions.sync_pool import SyncRunner
from ottla.protocol.wire import Buffer
from ottla.server.read_ahead import ReadAhead, Wanted, ask

CHUNK_BYTES = 256 << 10
"""How much of a file is handed over at once."""
SENDFILE_BYTES_MIN = 64 << 10
"""From here on the system sends a range by itself; below, a copy costs less than the extra calls."""
PROBE_BYTES = 128 << 10
"""How far apart a range is probed for being in memory: about what the system reads ahead."""
_CACHED_ONLY = getattr(os, "RWF_NOWAIT", 0)
_PROBE = bytearray(1)
_NO_SOCKET = -1

Part = Buffer | FileRange


class _WarmUp:
    """Waits on another thread until a piece of a file is in memory."""

    __slots__ = ("_piece",)

    def __init__(self, piece: Wanted) -> None:
        self._piece = piece

    def run(self) -> None:
        ask(self._piece)
        for probe in _probes(self._piece):
            self._piece.file.read(position=probe, size=1)


class _AskAhead:
    """Asks the disk for what comes next, on another thread: a disk that is busy takes its time to be asked."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: list[Wanted]) -> None:
        self._wanted = wanted

    def run(self) -> None:
        for each in self._wanted:
            ask(each)


class _ColdRead:
    """Reads a piece of a file on another thread."""

    __slots__ = ("_piece", "data")

    def __init__(self, piece: Wanted) -> None:
        self._piece = piece
        self.data = b""

    def run(self) -> None:
        file, start, end = self._piece
        self.data = file.read(position=start, size=end - start)


class Outbox:
    """The queue of one connection."""

    __slots__ = (
        "_ahead",
        "_fail",
        "_has_room",
        "_is_full",
        "_parts",
        "_position",
        "_reading",
        "_runner",
        "_socket",
        "_transport",
        "_warmed",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
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
        self._ahead = ReadAhead()
        self._warmed: Wanted | None = None
        """What has been brought into memory; what is not there afterwards has to be read."""
        socket = transport.get_extra_info("socket")
        is_plain = socket is not None and transport.get_extra_info("sslcontext") is None
        self._socket: int = socket.fileno() if is_plain and _CACHED_ONLY else _NO_SOCKET

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
                self._transport.writelines(parts)  # type: ignore[arg-type]
                return
        self._parts.extend(parts)
        self._ask([each for each in self._ahead.coming(parts) if not is_cached(each)])
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
        """Send what is queued, as far as the client takes it and the disk need not be asked."""
        parts = self._parts
        ready: list[Buffer] = []
        size_ready = 0
        while parts and not self._is_full and not self._reading:
            part = parts[0]
            if type(part) is not FileRange:
                parts.popleft()
                ready.append(part)  # type: ignore[arg-type]
                continue
            position, size = part.position + self._position, min(CHUNK_BYTES, part.size - self._position)
            piece = Wanted(part.file, position, position + size)
            if size >= SENDFILE_BYTES_MIN and self._socket != _NO_SOCKET:
                if ready:
                    self._write_at_once(ready)
                    ready, size_ready = [], 0
                if self._holds_nothing and is_cached(piece):
                    sent = self._send_file(part, position=position, size=size)
                    if sent:
                        self._note_sent(part, sent)
                        continue
                    if not parts:
                        return
                    # The socket is full: the transport takes the next piece, and tells when there is room again.
            data = read_cached(piece)
            if not data:
                if data is None or piece == self._warmed:
                    self._read_cold(part, piece)
                else:
                    self._warm_up(piece)
                break
            ready.append(data)
            self._note_sent(part, len(data))
            size_ready += len(data)
            if size_ready >= CHUNK_BYTES:
                self._transport.writelines(ready)
                ready, size_ready = [], 0
        if ready:
            self._transport.writelines(ready)

    @property
    def _holds_nothing(self) -> bool:
        """Whether all that the transport was given has left it, so that the socket may be written to directly."""
        return not self._transport.get_write_buffer_size()

    def _write_at_once(self, buffers: list[Buffer]) -> None:
        """Past the transport if that holds nothing: only then can the system send the range that follows."""
        data = b"".join(buffers)
        if self._holds_nothing:
            try:
                written = os.write(self._socket, data)
            except BlockingIOError:
                written = 0
            except OSError:
                self._lose()
                return
            if written == len(data):
                return
            data = data[written:]
        self._transport.write(data)

    def _send_file(self, part: FileRange, *, position: int, size: int) -> int:
        """How much the system took of a range; 0 when the socket has no room."""
        try:
            sent = os.sendfile(self._socket, part.file.fileno(), position, size)
        except BlockingIOError:
            return 0
        except OSError:
            self._lose()
            return 0
        if not sent:
            self._fail(f"{part.file.path} ends before byte {part.position + part.size}")
            self.drop()
        return sent

    def _lose(self) -> None:
        """The client is gone; the transport finds that out too, and ends the connection."""
        self.drop()
        self._transport.abort()

    def _note_sent(self, part: FileRange, size: int) -> None:
        self._position += size
        if self._position >= part.size:
            self._parts.popleft()
            self._position = 0

    def _warm_up(self, piece: Wanted) -> None:
        self._reading = True
        self._warmed = piece

        def done(fault: StorageFault | None) -> None:
            self._reading = False
            if fault is not None and self._parts:
                self._fail(str(fault))
                return
            self._go_on_and_tell()

        self._runner.submit(_WarmUp(piece), done)
        self._ask(self._ahead.missed(self._parts))

    def _ask(self, wanted: list[Wanted]) -> None:
        if wanted:
            self._runner.submit(_AskAhead(wanted), lambda fault: None)

    def _read_cold(self, part: FileRange, piece: Wanted) -> None:
        self._reading = True
        job = _ColdRead(piece)

        def done(fault: StorageFault | None) -> None:
            self._reading = False
            if not self._parts:
                return
            if fault is not None or not job.data:
                # The response's size has been announced: there is no other way to take it back.
                self._fail(str(fault) if fault else f"{part.file.path} ends before byte {part.position + part.size}")
                return
            self._note_sent(part, len(job.data))
            self._transport.write(job.data)
            self._go_on_and_tell()

        self._runner.submit(job, done)

    def _go_on_and_tell(self) -> None:
        self.go_on()
        if self.is_idle:
            self._has_room()


def _probes(piece: Wanted) -> tuple[int, ...]:
    return (*range(piece.start, piece.end, PROBE_BYTES), piece.end - 1)


def is_cached(piece: Wanted) -> bool:
    """Whether a piece seems to be in memory: its ends are, and every so many bytes between them."""
    descriptor = piece.file.fileno()
    try:
        for probe in _probes(piece):
            os.preadv(descriptor, [_PROBE], probe, _CACHED_ONLY)
    except OSError:
        # Not in memory, or a file system that cannot tell: a thread reads it.
        return False
    return True


def read_cached(piece: Wanted) -> memoryview | bytes | None:
    """What of the piece is in memory; empty when the disk would have to be asked, None where the system cannot tell."""
    if not _CACHED_ONLY:
        return None
    buffer = bytearray(piece.end - piece.start)
    try:
        count = os.preadv(piece.file.fileno(), [buffer], piece.start, _CACHED_ONLY)
    except BlockingIOError:
        return b""
    except OSError:
        return None
    return memoryview(buffer)[:count]

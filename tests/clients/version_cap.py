"""A relay that makes a broker look older than it is, to bring a client to use old versions of its requests.

It lowers the versions in ApiVersions responses and passes everything else on as it is; and it remembers which
versions the client then used. The broker must advertise the relay's address, or clients go round it.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from tests.clients.server_process import Make, ServerProcess

ALL_VERSIONS = 1_000
_START = struct.Struct(">hhi")


class VersionCap:
    """Announces of each API its oldest version and the next `level` ones."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.level = ALL_VERSIONS
        self.at_least: dict[int, int] = {}
        """APIs that are announced up to this version whatever the level, because others cannot do without it."""
        self.used: set[tuple[ApiKey, int]] = set()
        self._target = 0
        self._open: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, target_port: int) -> None:
        self._target = target_port
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in (self._listener, *self._open):
            # A plain close does not wake a thread that waits in accept or recv.
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                end.close()

    def versions(self, key: ApiKey) -> set[int]:
        """The versions of one API that came by."""
        return {version for used, version in self.used if used is key}

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, broker]
            asked: dict[int, int] = {}
            threading.Thread(target=self._requests, args=(client, broker, asked), daemon=True).start()
            threading.Thread(target=self._responses, args=(broker, client, asked), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(client):
            key, version, correlation_id = _START.unpack_from(frame)
            self.used.add((ApiKey(key), version))
            if key == ApiKey.API_VERSIONS:
                asked[correlation_id] = version
            if not _send(broker, frame):
                return
        _end(broker)

    def _responses(self, broker: socket.socket, client: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(broker):
            version = asked.pop(struct.unpack_from(">i", frame)[0], None)
            if version is not None and not any(frame[4:6]):
                frame = frame[:4] + self._lowered(frame, version)
            if not _send(client, frame):
                return
        _end(client)

    def _lowered(self, frame: bytes, version: int) -> bytes:
        response = decode(ApiVersionsResponse, version, frame, start=4)
        rows = []
        for row in response.api_keys:
            highest = max(_oldest(row.api_key, row.min_version) + self.level, self.at_least.get(row.api_key, 0))
            rows.append(msgspec.structs.replace(row, max_version=min(row.max_version, highest)))
        return b"".join(encode(msgspec.structs.replace(response, api_keys=rows), version))


def _oldest(key: int, announced: int) -> int:
    """The first version that works: of Produce three more are announced than there are."""
    return 3 if key == ApiKey.PRODUCE else announced


def _frames(source: socket.socket) -> Iterator[bytes]:
    """The insides of the frames that come, until the connection ends."""
    stream = source.makefile("rb")
    try:
        while len(size := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", size)[0])
    except OSError:
        return


def _send(target: socket.socket, frame: bytes) -> bool:
    try:
        target.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return False
    return True


def _end(target: socket.socket) -> None:
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def capped_server(make_server: Make) -> Iterator[tuple[ServerProcess, VersionCap]]:
    """A server, and a relay in front of it that its clients are told to use."""
    cap = VersionCap()
    try:
        server = make_server(settings={"advertised.listeners": cap.address}).start()
        cap.start(server.port)
        yield server, cap
    finally:
        cap.close()

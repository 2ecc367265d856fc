"""Stands between clients and a server, passes everything on, and notes which requests come in which versions.

What a client really sends is not for it to say, nor for the server. The server has to tell clients this address, so
that they come by here: `advertised.listeners`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from ottla.protocol.api_keys import ApiKey
from tests.clients.server_process import free_port

BUFFER_BYTES = 1 << 16
_HEAD = struct.Struct(">ihh")
"""A frame's length without itself, the key and the version."""
_LENGTH_BYTES = 4


class RecordingProxy:
    """Listens from the start; a server is named later."""

    def __init__(self) -> None:
        self.port = free_port()
        self.requests: Counter[tuple[ApiKey, int]] = Counter()
        self._target_port: int | None = None
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, name="recording proxy", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pass_on_to(self, port: int) -> None:
        self._target_port = port

    def versions(self, key: ApiKey) -> set[int]:
        """The versions of this request that came."""
        return {version for each, version in self.requests if each is key}

    def __enter__(self) -> RecordingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                # It was closed: the test is over.
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        assert self._target_port is not None
        with client, socket.create_connection(("127.0.0.1", self._target_port)) as server:
            answers = threading.Thread(target=_pass, args=(server, client), daemon=True)
            answers.start()
            self._pass_requests(client, server)
            answers.join()

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        pending = bytearray()

        def note(data: bytes) -> None:
            pending.extend(data)
            while len(pending) >= _HEAD.size:
                length, key, version = _HEAD.unpack_from(pending)
                if len(pending) < _LENGTH_BYTES + length:
                    return
                self.requests[ApiKey(key), version] += 1
                del pending[: _LENGTH_BYTES + length]

        _pass(client, server, note)


def _pass(source: socket.socket, target: socket.socket, note: Callable[[bytes], None] | None = None) -> None:
    """Everything from one to the other, until either ends."""
    with suppress(OSError):
        while data := source.recv(BUFFER_BYTES):
            if note is not None:
                note(data)
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

"""TLS in front of a broker that has none: what is decrypted goes on to it, and its answers come back."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.client.certificates import Identity

PIECE_BYTES = 64 * 1024


class TlsRelay:
    """Listens on a free port; runs in threads until the block ends."""

    def __init__(self, broker: tuple[str, int], identity: Identity, *, clients: Path | None = None) -> None:
        self._broker = broker
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(identity.certificate, identity.key)
        self._open: list[socket.socket] = []
        self._context.sslsocket_class = _noted_in(self._open)
        if clients is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(clients)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.accepted = 0
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _start(self, work: threading.Thread) -> None:
        self._threads.append(work)
        work.start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(plain)
            self._start(threading.Thread(target=self._serve, args=(plain,), daemon=True))

    def _serve(self, plain: socket.socket) -> None:
        try:
            with (
                self._context.wrap_socket(plain, server_side=True) as safe,
                socket.create_connection(self._broker) as behind,
            ):
                self._open.append(behind)
                back = threading.Thread(target=_pump, args=(behind, safe), daemon=True)
                self._start(back)
                _pump(safe, behind)
                back.join()
        except OSError:
            # The client did not like us, or we did not like it.
            plain.close()

    def hang_up(self) -> None:
        """End all connections, as a broker does with those that idle."""
        for each in self._open:
            try:
                socket.socket.shutdown(each, socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> Self:
        self._start(threading.Thread(target=self._accept, daemon=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Closing alone does not wake whoever accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        # Whoever was let in last must be known before all are sent away.
        self._threads[0].join(30)
        self.hang_up()
        for thread in self._threads:
            thread.join(30)
        for each in self._open:
            each.close()


def _noted_in(opened: list[socket.socket]) -> type[ssl.SSLSocket]:
    """Sockets that are known from their first moment on.

    Wrapping shakes hands, and gives nothing to close if the client has reset the connection before that.
    """

    class Noted(ssl.SSLSocket):
        def __new__(cls, *_: object, **__: object) -> Self:
            made = super().__new__(cls)
            opened.append(made)
            return made

    return Noted


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Everything from one to the other; the end of one is the end of both."""
    try:
        while data := source.recv(PIECE_BYTES):
            target.sendall(data)
    except OSError:
        pass
    for each in (source, target):
        try:
            socket.socket.shutdown(each, socket.SHUT_RDWR)
        except OSError:
            continue

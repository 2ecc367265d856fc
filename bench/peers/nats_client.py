"""NATS JetStream over a plain socket: the raw client with other frames, and a reader. Run as a client of `phases`.

A publish names where its acknowledgement goes; all of a connection's go to one subject. An acknowledgement is a line
and a flat JSON object, so answers are counted by closing braces; an error has two of them, and whoever gives the
orders sees from the stream's state that something is missing.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from bench.peers.phases import Done
from bench.peers.raw_client import ANSWER_S_MAX, Asked, Line, RawClient, serve_either

SUBJECT_OF_ANSWERS = "_INBOX.bench"
MARK = b"\xff"
"""Ends each value and stands nowhere else, so that a reader can count records."""
_RECEIVE_BYTES = 1 << 20
_HELLO = b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"0","protocol":1}\r\n'


def greet(connection: socket.socket, *subjects: str) -> None:
    """Say who we are, listen on these subjects, and wait until the server has heard it."""
    listen = "".join(f"SUB {subject} {number}\r\n" for number, subject in enumerate(subjects, 1))
    connection.sendall(_HELLO + listen.encode() + b"PING\r\n")
    heard = b""
    while not heard.endswith(b"PONG\r\n"):
        data = connection.recv(1 << 16)
        if not data or b"-ERR" in data:
            raise ConnectionError(f"NATS refused the connection: {heard + data!r}")
        heard += data


def publish(subject: str, value: bytes, answer_to: str = SUBJECT_OF_ANSWERS) -> bytes:
    """One message that wants an answer."""
    return f"PUB {subject} {answer_to} {len(value)}\r\n".encode() + value + b"\r\n"


def ask(host: str, port: int, subject: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request to JetStream's API, and its answer."""
    with _connected(host, port, SUBJECT_OF_ANSWERS) as connection:
        connection.sendall(publish(subject, json.dumps(question).encode() if question else b""))
        heard = b""
        while True:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError("NATS hung up")
            heard += data
            head, separator, rest = heard.partition(b"\r\n")
            if separator and len(rest) >= int(head.split()[-1]) + 2:
                break
    answer: dict[str, Any] = json.loads(rest[: int(head.split()[-1])])
    if "error" in answer:
        raise ConnectionError(f"JetStream refused {subject}: {answer['error']}")
    return answer


@contextmanager
def _connected(host: str, port: int, *subjects: str) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=ANSWER_S_MAX) as connection:
        greet(connection, *subjects)
        yield connection


class NatsLine(Line):
    """One connection, whose answers go to a subject of its own."""

    def __init__(self, asked: Asked, number: int) -> None:
        subject = f"{SUBJECT_OF_ANSWERS}.{number}"
        super().__init__(asked, [publish(asked.topic, bytes(asked.size - 1) + MARK, subject)])
        greet(self.socket, subject)

    def receive(self) -> int:
        size = self.socket.recv_into(self._buffer)
        if not size:
            raise ConnectionError("NATS hung up")
        if self._buffer.find(b"PING", 0, size) >= 0:
            self.socket.sendall(b"PONG\r\n")
        count = self._buffer.count(b"}", 0, size)
        self.open -= count
        return count


class NatsClient(RawClient):
    """The connections that append."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._lines = [NatsLine(asked, number) for number in range(asked.connections)]


def read_all(asked: Asked) -> Done:
    """Every message from the first on, pushed by a consumer that wants no acknowledgements; nothing is unpacked."""
    state = ask(asked.host, asked.port, f"$JS.API.STREAM.INFO.{asked.topic}")["state"]
    expected = int(state["messages"])
    begun = perf_counter()
    deliver_to = f"{SUBJECT_OF_ANSWERS}.read"
    config = {
        "deliver_subject": deliver_to,
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
    }
    question = {"stream_name": asked.topic, "config": config}
    records = 0
    buffer = bytearray(_RECEIVE_BYTES)
    with _connected(asked.host, asked.port, deliver_to) as connection:
        ask(asked.host, asked.port, f"$JS.API.CONSUMER.CREATE.{asked.topic}", question)
        while records < expected:
            size = connection.recv_into(buffer)
            if not size:
                raise ConnectionError(f"NATS hung up after {records} of {expected} messages")
            records += buffer.count(MARK, 0, size)
    wall_s = perf_counter() - begun
    return Done(records=records, size_bytes=records * asked.size, wall_s=wall_s)


def main(text: str) -> None:
    """Append or read, as the arguments say."""
    serve_either(text, NatsClient, read_all)


if __name__ == "__main__":
    main(sys.argv[1])

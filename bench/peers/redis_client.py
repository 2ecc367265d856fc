"""Redis Streams over a plain socket: the raw client with other frames, and a reader. Run as a client of `phases`.

One XADD is one record with one field. An answer is the id that the entry got: two lines, so answers are counted by
lines; an error is one line, and whoever gives the orders sees from the stream's length that something is missing.
"""

from __future__ import annotations

import re
import socket
import sys
from time import perf_counter

from bench.peers.phases import Done
from bench.peers.raw_client import ANSWER_S_MAX, Asked, Line, RawClient, serve_either

READ_COUNT = 1_000
_RECEIVE_BYTES = 1 << 20
_ID = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")
MARK = b"\xff"
"""Ends each value and stands nowhere else, so that a reader can count entries."""
ENTRY_BYTES_MAX = 200
"""What stands round a value, its id included."""


def command(*words: str | bytes) -> bytes:
    """A command as Redis takes it: how many words, and each with its length."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def ask(host: str, port: int, *words: str | bytes) -> bytes:
    """One command, and the first line of its answer."""
    with socket.create_connection((host, port), timeout=ANSWER_S_MAX) as connection:
        connection.sendall(command(*words))
        answer = b""
        while b"\r\n" not in answer:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError("Redis hung up")
            answer += data
    return answer.split(b"\r\n")[0]


class RedisLine(Line):
    """One connection."""

    def receive(self) -> int:
        size = self.socket.recv_into(self._buffer)
        if not size:
            raise ConnectionError("Redis hung up")
        count, self._odd_bytes = divmod(self._odd_bytes + self._buffer.count(b"\n", 0, size), 2)
        self.open -= count
        return count


class RedisClient(RawClient):
    """The connections that append."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        xadd = command("XADD", asked.topic, "*", "v", bytes(asked.size - 1) + MARK)
        self._lines = [RedisLine(asked, [xadd]) for _ in range(asked.connections)]


def read_all(asked: Asked) -> Done:
    """Every entry from the first on, by XRANGE; nothing is unpacked but the last id of an answer."""
    begun = perf_counter()
    records, after = 0, b"-"
    with socket.create_connection((asked.host, asked.port), timeout=ANSWER_S_MAX) as connection:
        while True:
            connection.sendall(command("XRANGE", asked.topic, after, "+", "COUNT", str(READ_COUNT)))
            entries, answer = _array(connection)
            if not entries:
                break
            records += entries
            # The last id stands shortly before the last value.
            after = b"(" + _ID.findall(answer, max(len(answer) - asked.size - ENTRY_BYTES_MAX, 0))[-1]
    wall_s = perf_counter() - begun
    return Done(records=records, size_bytes=records * asked.size, wall_s=wall_s)


def _array(connection: socket.socket) -> tuple[int, bytearray]:
    """One answer, and how many entries its first line says: there is one mark in each, and it ends with a line."""
    answer, marks, entries = bytearray(), 0, -1
    while True:
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("Redis hung up")
        answer += data
        marks += data.count(MARK)
        if entries < 0 and b"\r\n" in answer:
            entries = int(answer[1 : answer.index(b"\r\n")])
        if marks == entries and answer.endswith(b"\r\n"):
            return entries, answer


def main(text: str) -> None:
    """Append or read, as the arguments say."""
    serve_either(text, RedisClient, read_all)


if __name__ == "__main__":
    main(sys.argv[1])

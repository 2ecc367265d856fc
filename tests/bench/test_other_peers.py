"""The clients of Redis and NATS against answers made up for them, and the rows of all peers that are no Kafka."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from bench.peers import kafko_rows, nats, processes, redis
from bench.peers.contract import NOT_PRODUCED, OURS, QUICK, Load, Result, Row, Session, Turn
from bench.peers.nats_client import NatsLine, publish
from bench.peers.raw_client import Asked
from bench.peers.redis_client import RedisLine, command, read_all

WAIT_S_MAX = 10
SESSIONS = [*redis.sessions(QUICK), *nats.sessions(QUICK), *kafko_rows.sessions(QUICK), *processes.sessions(QUICK)]
ROWS = [row for session in SESSIONS for task in session.tasks for row in task.rows]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(WAIT_S_MAX)
        yield server


def asked_of(listener: socket.socket, *, size: int = 4) -> Asked:
    host, port = listener.getsockname()
    return Asked(host=host, port=port, topic="s", partitions=1, connections=1, window=5, acks=0, size=size)


def heard(connection: socket.socket, ending: bytes) -> bytes:
    data = b""
    while not data.endswith(ending):
        more = connection.recv(1 << 16)
        assert more, f"only {data!r} came"
        data += more
    return data


# --- clients ------------------------------------------------------------------------------------------


def test_a_command_for_redis_names_the_length_of_each_word() -> None:
    assert command("XADD", "s", b"\x00\xff") == b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$2\r\n\x00\xff\r\n"


def test_answers_of_redis_are_counted_when_they_are_whole(listener: socket.socket) -> None:
    line = RedisLine(asked_of(listener), [b""])
    server, _ = listener.accept()
    with server, line.socket:
        line.send(3)
        server.sendall(b"$3\r\n1-0\r\n$3\r\n1-1\r")
        first = line.receive()
        server.sendall(b"\n$4\r\n1-10\r\n")

        assert (first, line.receive(), line.open) == (1, 2, 0)


def test_a_reader_of_redis_goes_on_behind_the_last_entry_until_there_is_none(listener: socket.socket) -> None:
    value = b"$4\r\n\0\0\0\xff\r\n"
    entries = b"".join(b"*2\r\n$3\r\n1-%d\r\n*2\r\n$1\r\nv\r\n%b" % (number, value) for number in range(2))

    def serve() -> bytes:
        connection, _ = listener.accept()
        with connection:
            heard(connection, b"1000\r\n")
            connection.sendall(b"*2\r\n" + entries[:-1])
            connection.sendall(entries[-1:])
            second = heard(connection, b"1000\r\n")
            connection.sendall(b"*0\r\n")
            return second

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        done = read_all(asked_of(listener))

    assert done.records == 2
    assert b"(1-1\r\n" in served.result()


def test_a_message_for_nats_names_where_its_answer_goes() -> None:
    assert publish("s", b"abc", "in.1") == b"PUB s in.1 3\r\nabc\r\n"


def test_acknowledgements_of_nats_are_counted_and_its_own_question_is_answered(listener: socket.socket) -> None:
    def greet() -> socket.socket:
        connection, _ = listener.accept()
        connection.sendall(b"INFO {}\r\n")
        heard(connection, b"PING\r\n")
        connection.sendall(b"PONG\r\n")
        return connection

    with ThreadPoolExecutor(1) as pool:
        greeted = pool.submit(greet)
        line = NatsLine(asked_of(listener), 0)
    with greeted.result() as server, line.socket:
        line.send(2)
        server.sendall(b'MSG in 1 9\r\n{"seq":1}\r\nPING\r\nMSG in 1 9\r\n{"seq":2}\r\n')

        assert line.receive() == 2
        assert line.open == 0
        heard(server, b"PONG\r\n")


# --- rows ---------------------------------------------------------------------------------------------


def test_no_two_rows_have_the_same_id() -> None:
    assert [name for name, count in Counter(row.id for row in ROWS).items() if count > 1] == []


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.name)
def test_ours_takes_the_first_turn_and_each_row_is_taken_by_its_peer(session: Session) -> None:
    assert next(iter(session.sides)) == OURS
    assert {(row.peer, *task.take) for task in session.tasks for row in task.rows} == {
        (peer, OURS, peer) for peer in session.sides if peer != OURS
    }


@pytest.mark.parametrize("row", [row for row in ROWS if row.unit in ("records/s", "requests/s", "CPU s/GB")])
def test_each_row_that_appends_says_what_an_acknowledgement_means(row: Row) -> None:
    if "read" in row.id:
        assert row.fsync == NOT_PRODUCED
    else:
        assert "page cache on both" in row.fsync or "fsync before the answer on both" in row.fsync


def test_a_batch_of_1024_is_expected_to_be_at_least_level_with_kafko() -> None:
    assert [row.id for row in ROWS if row.expected == 1.0] == ["kafko-send-1024"]


@pytest.mark.parametrize(
    ("text", "version"),
    [("cargo 1.95.0 (f2d3ce0bd 2026-03-21)", (1, 95)), ("cargo 1.63.0", (1, 63)), ("no such thing", (0, 0))],
)
def test_the_version_of_rust_is_read_from_what_cargo_says(text: str, version: tuple[int, int]) -> None:
    assert kafko_rows.rust_version(text) == version


# --- more processes -----------------------------------------------------------------------------------


def test_partitions_take_the_processes_in_turns() -> None:
    assert processes.places([7, 9], partitions=4) == [(0, 7), (1, 9), (2, 7), (3, 9)]


def test_one_process_has_all_partitions() -> None:
    assert processes.places([7], partitions=3) == [(0, 7), (1, 7), (2, 7)]


def test_new_figures_take_the_place_of_the_older_ones() -> None:
    page = f"before\n{processes.BEGIN}\nold\n{processes.END}\nafter\n"

    once = processes.with_figures(page, ["| new |"])

    assert once == f"before\n{processes.BEGIN}\n\n| new |\n\n{processes.END}\nafter\n"
    assert processes.with_figures(once, ["| new |"]) == once


def test_a_page_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        processes.with_figures("a page", [])


def test_the_page_has_a_place_for_figures() -> None:
    assert processes.BEGIN in processes.with_figures(processes.PAGE.read_text(encoding="utf-8"), [])


def test_the_table_says_how_many_times_and_who_had_the_cores() -> None:
    row = next(row for row in ROWS if row.id == "processes-2-acks1-100b")
    load = Load(wall_s=2.0, broker_cpu_s=1.0, client_cpu_s=0.5, gigabytes=1.0, rss_mb=1.0, hwm_mb=1.0)
    turns = {OURS: [Turn(value=300.0, load=load)] * 3, processes.ONE: [Turn(value=200.0, load=load)] * 3}

    line = processes.figures([Result(row, turns, {})], cores=2)[-1]

    assert "| 200 ±0% | 300 ±0% | 1.50  | 0.50, 0.25 | 0.50, 0.25 |" in line


def test_a_row_that_could_not_be_measured_says_why() -> None:
    row = next(row for row in ROWS if row.id == "processes-2-acks1-100b")

    line = processes.figures([Result(row, {}, {OURS: "no room"})], cores=2)[-1]

    assert line.endswith("| no room |")

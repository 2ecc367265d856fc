"""Redis Streams beside Ottla: a stream in memory with an append-only file, as Debian's redis-server has it.

It writes its file before it answers. How often it syncs is a setting of the server: once a second, which is its
default and stands beside our acks=1, or before every answer, which stands beside our acks=all. Knows how it is
started and asked; what is measured is in `streams`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.peers import streams
from bench.peers.contract import Broker, Pace, Session
from bench.peers.debian import installed, program, version
from bench.peers.launch import HOST, free_ports, launched
from bench.peers.redis_client import ask

REDIS = "redis"
ACKNOWLEDGED = "page cache on both: ours acks=1, synced behind the answer; Redis: file written, synced every second"
DURABLE = "fsync before the answer on both: ours acks=all; Redis: appendfsync always"


def sessions(pace: Pace) -> list[Session]:
    """Everything that is compared with Redis."""
    peer = streams.Peer(
        side=REDIS,
        group="Redis Streams",
        starter=partial(redis, "everysec"),
        durable_starter=partial(redis, "always"),
        stream=_stream,
        acknowledged=ACKNOWLEDGED,
        durable=DURABLE,
    )
    return streams.sessions(peer, pace)


def command(server: Path, directory: Path, port: int, sync: str) -> list[str]:
    """How it is started: with the append-only file, and without the snapshots, which would write everything twice."""
    place = ["--bind", HOST, "--port", str(port), "--dir", str(directory)]
    file = ["--appendonly", "yes", "--appendfsync", sync, "--no-appendfsync-on-rewrite", "no"]
    return [str(server), *place, *file, "--auto-aof-rewrite-percentage", "0", "--save", "", "--daemonize", "no"]


def described() -> str:
    """Its version, for the page; raises PeerMissing without it."""
    return version(installed("redis-server"), "--version")


@contextmanager
def redis(sync: str, directory: Path) -> Iterator[Broker]:
    """A server on what `directory` holds."""
    server = program("redis-server", "redis-server")
    (port,) = free_ports(1)
    with launched(
        REDIS, command(server, directory, port, sync), port=port, directory=directory, answers=_answers
    ) as broker:
        yield broker


def _answers(host: str, port: int) -> bool:
    return ask(host, port, "PING") == b"+PONG"


def _stream(broker: Broker, name: str) -> streams.Stream:
    """It comes to be with the first entry."""
    return streams.Stream(
        name=name,
        client="redis_client",
        reader="redis_client",
        acks=0,
        count=lambda: int(ask(broker.host, broker.port, "XLEN", name)[1:]),
        drop=lambda: ask(broker.host, broker.port, "DEL", name),
    )

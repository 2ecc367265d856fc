"""NATS JetStream beside Ottla: one server, one stream in files, as Debian's nats-server has it.

It writes its file before it answers and syncs every two minutes. From 2.10 on it can be told to sync before every
answer; an older one cannot, and then there is no durable row. Knows how it is started and asked; what is measured is
in `streams`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.peers import streams
from bench.peers.contract import Broker, Pace, Session
from bench.peers.debian import installed, program, version
from bench.peers.launch import HOST, free_ports, launched
from bench.peers.nats_client import ask
from tests.peers.maven import PeerMissing

NATS = "nats"
ACKNOWLEDGED = "page cache on both: ours acks=1, synced behind the answer; NATS: file written, synced every 2 minutes"
DURABLE = "fsync before the answer on both: ours acks=all; NATS: sync_interval always"
CONFIG = """\
host: "{host}"
port: {port}
jetstream {{
  store_dir: "{directory}"
{sync}}}
"""
SYNC_ALWAYS = "  sync_interval: always\n"
CHECK_S_MAX = 30


def sessions(pace: Pace) -> list[Session]:
    """Everything that is compared with NATS."""
    peer = streams.Peer(
        side=NATS,
        group="NATS JetStream",
        starter=partial(nats, ""),
        durable_starter=partial(nats, SYNC_ALWAYS),
        stream=_stream,
        acknowledged=ACKNOWLEDGED,
        durable=DURABLE,
    )
    return streams.sessions(peer, pace)


def described() -> str:
    """Its version, for the page; raises PeerMissing without it."""
    return version(installed("nats-server"), "--version")


@contextmanager
def nats(sync: str, directory: Path) -> Iterator[Broker]:
    """A server on what `directory` holds."""
    server = program("nats-server", "nats-server")
    (port,) = free_ports(1)
    config = directory / "nats.conf"
    text = CONFIG.format(host=HOST, port=port, directory=directory / "data", sync=sync)
    config.write_text(text, encoding="utf-8")
    if sync:
        _check_knows(server, config)
    command = [str(server), "--config", str(config)]
    with launched(NATS, command, port=port, directory=directory, answers=_answers) as broker:
        yield broker


def _check_knows(server: Path, config: Path) -> None:
    """A server that does not know how to sync before it answers says so when it reads its settings."""
    command = [str(server), "-t", "--config", str(config)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
    if run.returncode != 0:
        raise PeerMissing(f"{described()} cannot sync before it answers; 2.10 and newer can")


def _answers(host: str, port: int) -> bool:
    return "memory" in ask(host, port, "$JS.API.INFO")


def _stream(broker: Broker, name: str) -> streams.Stream:
    """One subject, kept in files without limits."""
    api = partial(ask, broker.host, broker.port)
    config = {
        "name": name,
        "subjects": [name],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "num_replicas": 1,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
    }
    api(f"$JS.API.STREAM.CREATE.{name}", config)
    return streams.Stream(
        name=name,
        client="nats_client",
        reader="nats_client",
        acks=0,
        count=lambda: int(api(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"]),
        drop=lambda: api(f"$JS.API.STREAM.DELETE.{name}"),
    )

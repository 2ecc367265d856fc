"""Rows that hold for any log with its own protocol: append, durable or not, read back, start, memory, CPU.

A peer tells how it is started, which client speaks its protocol, and how a stream of it is made and counted. Ours does
the same work through the raw client. Knows no peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bench.peers import topics
from bench.peers.contract import NOT_PRODUCED, OURS, Broker, Pace, Row, Session, Starter, Task, Turn, Turns, Unmeasured
from bench.peers.phases import client, metered
from bench.peers.policies import ACKS_1, ON_DISK, Policy
from bench.peers.servers import ottla

WINDOW, DEEP_WINDOW = 5, 100
DURABLE_CONNECTIONS = 16
SIZES = (100, 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A place to append to on one side."""

    name: str
    client: str
    """The module that appends, and the one that reads."""
    reader: str
    acks: int
    count: Callable[[], int]
    """How many records it holds."""
    drop: Callable[[], object]
    """Makes room: some keep everything in memory."""


Make = Callable[[Broker, str], Stream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One side that is no Kafka."""

    side: str
    group: str
    starter: Starter
    durable_starter: Starter
    stream: Make
    """Makes a new one of this name."""
    acknowledged: str
    """What an acknowledgement means, ours and the peer's, without syncs; the same with syncs."""
    durable: str
    durable_note: str = ""


def sessions(peer: Peer, pace: Pace) -> list[Session]:
    """What is compared with one peer."""
    plain_sides: Mapping[str, Starter] = {OURS: ottla, peer.side: peer.starter}
    durable_sides: Mapping[str, Starter] = {OURS: ottla, peer.side: peer.durable_starter}
    tasks = [
        _append_task(peer, pace, size=size, connections=1, window=window)
        for window in (WINDOW, DEEP_WINDOW)
        for size in SIZES
    ]
    durable = [
        _append_task(peer, pace, size=size, connections=DURABLE_CONNECTIONS, window=WINDOW, is_durable=True)
        for size in SIZES
    ]
    warm_up = {OURS: partial(_warm_up, _ours(ACKS_1), pace), peer.side: partial(_warm_up, peer.stream, pace)}
    return [
        Session(name=f"{peer.side}, cold", sides=plain_sides, tasks=[_start_task(peer)]),
        Session(name=peer.side, sides=plain_sides, tasks=[*tasks, _read_task(peer, pace)], warm_up=warm_up),
        Session(name=f"{peer.side}, durable", sides=durable_sides, tasks=durable, warm_up=warm_up),
    ]


def _warm_up(make: Make, pace: Pace, broker: Broker) -> None:
    stream = make(broker, "warm-up")
    asked = _asked(broker, stream, size=SIZES[-1], connections=1, window=WINDOW)
    with client(stream.client, asked, broker.directory) as appending:
        appending.run(pace.warm_up_s)
    stream.drop()


def _start_task(peer: Peer) -> Task:
    started = Row(
        id=f"{peer.side}-start",
        group=peer.group,
        what="start",
        settings="an empty directory, until a request is answered",
        fsync=NOT_PRODUCED,
        unit="s",
        better="less",
        peer=peer.side,
    )
    idle = Row(
        id=f"{peer.side}-idle",
        group=peer.group,
        what="memory, idle",
        settings="resident, after the start",
        fsync=NOT_PRODUCED,
        unit="MB",
        better="less",
        peer=peer.side,
    )

    def take(broker: Broker) -> Turns:
        return {started.id: Turn(value=broker.started_s), idle.id: Turn(value=broker.memory().rss_mb)}

    return Task(rows=(started, idle), take={OURS: take, peer.side: take})


def _append_task(peer: Peer, pace: Pace, *, size: int, connections: int, window: int, is_durable: bool = False) -> Task:
    kind = "durable" if is_durable else f"w{window}"
    lines = "one connection" if connections == 1 else f"{connections} connections"
    row = Row(
        id=f"{peer.side}-append-{kind}-{size}b",
        group=peer.group,
        what=f"append {size:,} B, {lines}{', durable' if is_durable else ''}",
        settings=f"plain sockets, one record a request, window {window} each, one stream",
        fsync=peer.durable if is_durable else peer.acknowledged,
        unit="records/s",
        peer=peer.side,
        note=peer.durable_note if is_durable else "",
    )
    cost = Row(
        id=f"{peer.side}-cpu-{kind}-{size}b",
        group=peer.group,
        what=f"CPU of the broker for {size:,} B, {lines}{', durable' if is_durable else ''}",
        settings=row.settings,
        fsync=row.fsync,
        unit="CPU s/GB",
        better="less",
        peer=peer.side,
    )

    def take(make: Make, broker: Broker) -> Turns:
        stream = make(broker, row.id)
        asked = _asked(broker, stream, size=size, connections=connections, window=window)
        with client(stream.client, asked, broker.directory) as appending:
            before = appending.run(pace.again_s)
            done, load = metered(broker, [appending.pid], partial(appending.run, pace.timed_s))
        _check(stream, before.records + done.records)
        stream.drop()
        per_gb = load.broker_cpu_s / load.gigabytes if load.gigabytes else 0.0
        return {row.id: Turn(value=done.rate, load=load), cost.id: Turn(value=per_gb)}

    return Task(
        rows=(row, cost),
        take={
            OURS: partial(take, _ours(ON_DISK if is_durable else ACKS_1)),
            peer.side: partial(take, peer.stream),
        },
    )


def _read_task(peer: Peer, pace: Pace) -> Task:
    size = SIZES[-1]
    row = Row(
        id=f"{peer.side}-read-{size}b",
        group=peer.group,
        what=f"read back everything, records of {size:,} B",
        settings="plain sockets, one connection, what was just written, nothing unpacked",
        fsync=NOT_PRODUCED,
        unit="records/s",
        peer=peer.side,
    )

    def take(make: Make, broker: Broker) -> Turns:
        stream = make(broker, row.id)
        asked = _asked(broker, stream, size=size, connections=1, window=DEEP_WINDOW)
        with client(stream.client, asked, broker.directory) as appending:
            written = appending.run(pace.timed_s)
        with client(stream.reader, {**asked, "is_reader": True}, broker.directory) as reading:
            reading.run(0)
            done, load = metered(broker, [reading.pid], partial(reading.run, 0))
        if done.records != written.records:
            raise Unmeasured(f"{done.records:,} records were read, and {written.records:,} were written")
        stream.drop()
        return {row.id: Turn(value=done.rate, load=load)}

    return Task(rows=(row,), take={OURS: partial(take, _ours(ACKS_1)), peer.side: partial(take, peer.stream)})


def _asked(broker: Broker, stream: Stream, *, size: int, connections: int, window: int) -> dict[str, object]:
    return {
        "host": broker.host,
        "port": broker.port,
        "topic": stream.name,
        "partitions": 1,
        "connections": connections,
        "window": window,
        "acks": stream.acks,
        "size": size,
    }


def _ours(policy: Policy) -> Make:
    return partial(_our_stream, policy)


def _our_stream(policy: Policy, broker: Broker, name: str) -> Stream:
    topic = topics.create(broker, name, partitions=1, policy=policy)
    acks = -1 if policy.acks == "all" else int(policy.acks)
    return Stream(name=name, client="raw_client", reader="raw_reading", acks=acks, count=topic.end, drop=lambda: None)


def _check(stream: Stream, records: int) -> None:
    """Nobody is quick by losing records, or by saying that there are more."""
    found = stream.count()
    if found != records:
        raise Unmeasured(f"{stream.name} holds {found:,} records, the client was told of {records:,}")

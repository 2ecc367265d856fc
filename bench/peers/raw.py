"""Request rate: the raw pipelined client, one record in a request, so that what a request costs is all that counts."""

from __future__ import annotations

from functools import partial

from bench.peers import topics
from bench.peers.contract import KAFKA, OURS, Broker, Pace, Row, Session, Task, Turn, Turns, counted
from bench.peers.phases import client, metered, warmed
from bench.peers.policies import ACKS_1, ON_DISK, OS_CACHE, UNEVEN, Policy
from bench.peers.servers import BOTH

GROUP = "Request rate"
WINDOW = 5
DURABLE_CONNECTIONS = 16
SIMPLE = ((100, 1, 3.0), (1_000, 1, None), (100, 8, 1.3), (1_000, 8, 1.3))
"""Bytes of a record, connections, and how many times Kafka's rate is expected of us."""
CONNECTIONS = (10, 100, 1_000)


def sessions(pace: Pace) -> list[Session]:
    """One record in a request, acks=1 and durable."""
    tasks = [_task(size, lines, ACKS_1, expected, pace) for size, lines, expected in SIMPLE]
    durable = partial(_task, 1_000, DURABLE_CONNECTIONS, pace=pace)
    tasks += [
        durable(ON_DISK, 3.0),
        durable(ON_DISK, None, partitions=DURABLE_CONNECTIONS),
        durable(OS_CACHE, None),
        durable(UNEVEN, None),
    ]
    return [Session(name="raw", sides=BOTH, tasks=tasks)]


def growth_sessions(pace: Pace) -> list[Session]:
    """The same with more and more connections."""
    tasks = [_growth(lines, pace) for lines in CONNECTIONS]
    return [Session(name="connections", sides=BOTH, tasks=tasks)]


def _task(
    size: int, connections: int, policy: Policy, expected: float | None, pace: Pace, *, partitions: int = 1
) -> Task:
    spread_out = f"-{partitions}p" if partitions > 1 else ""
    row = Row(
        id=f"raw-{policy.key}-{size}b-{connections}c{spread_out}",
        group=GROUP,
        what=f"produce {size:,} B, {counted(connections, 'connection')}",
        settings=f"raw client, one record a request, window {WINDOW} each, {counted(partitions, 'partition')}",
        fsync=policy.fsync,
        unit="requests/s",
        expected=expected,
    )
    return _on_both(row, size=size, connections=connections, partitions=partitions, policy=policy, pace=pace)


def _growth(connections: int, pace: Pace) -> Task:
    row = Row(
        id=f"growth-connections-{connections}",
        group="Growth",
        what=f"produce 100 B, {connections:,} connections",
        settings=f"raw client, one record a request, window {WINDOW} each, 1 partition",
        fsync=ACKS_1.fsync,
        unit="requests/s",
    )
    return _on_both(row, size=100, connections=connections, partitions=1, policy=ACKS_1, pace=pace)


def _on_both(row: Row, *, size: int, connections: int, partitions: int, policy: Policy, pace: Pace) -> Task:
    take = partial(produced, row, size=size, connections=connections, partitions=partitions, policy=policy, pace=pace)
    return Task(rows=(row,), take={OURS: take, KAFKA: take})


def produced(
    row: Row, broker: Broker, *, size: int, connections: int, partitions: int, policy: Policy, pace: Pace
) -> Turns:
    """One side's turn: warm up, work, and see that everything is there."""
    topic = topics.create(broker, row.id, partitions=partitions, policy=policy)
    asked = {
        "host": broker.host,
        "port": broker.port,
        "topic": topic.name,
        "partitions": partitions,
        "connections": connections,
        "window": WINDOW,
        "acks": -1 if policy.acks == "all" else int(policy.acks),
        "size": size,
    }
    with client("raw_client", asked, broker.directory) as raw:
        before = warmed(raw.run, first_s=pace.warm_up_s, more_s=pace.again_s)
        done, load = metered(broker, [raw.pid], partial(raw.run, pace.timed_s))
    topic.check(records=before.records + done.records)
    return {row.id: Turn(value=done.rate, load=load)}

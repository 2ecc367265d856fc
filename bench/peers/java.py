"""What a user of Kafka's own client gets, by Kafka's own perf tools: one producer, one consumer, a JVM for each run.

Each of fifty producers would be a JVM of its own, which two cores cannot run: those rows are librdkafka's alone. What
starting the JVM costs is not in the rates, which the tools time themselves, but in the CPU seconds of the client.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from itertools import product
from time import perf_counter

from bench.peers import perf_tools, topics
from bench.peers.contract import (
    CPU_UNIT,
    KAFKA,
    NOT_PRODUCED,
    OURS,
    Broker,
    Load,
    Pace,
    Row,
    Session,
    Task,
    Turn,
    Turns,
    Unmeasured,
    counted,
)
from bench.peers.free_memory import drop_cached
from bench.peers.librdkafka import COLD_BYTES, CPU_GROUP, CPU_PARTITIONS, PARTITIONS, SIZES, cold_bytes, fill, warm_up
from bench.peers.policies import ACKS_1, EVEN, ON_DISK, Policy
from bench.peers.servers import BOTH, java_command

FETCH_PARTITIONS = 6
RATE_MAX, BYTES_PER_S = 400_000, 120_000_000
"""What a broker is likely to take, to tell how many records last for so many seconds."""
SYNC_SHARE = 0.5
WARM_UPS, TIMES = 4, 2
"""How many times as long as other clients the producer's tool warms up and is timed.

For twelve seconds, and more than twenty beside a broker that is a JVM too, its compiler takes half of a core; which
of two brokers then comes out ahead is decided by that.
"""
TOOL_S_MAX = 300


def produce_sessions(pace: Pace) -> list[Session]:
    """A session for each policy."""
    return [
        Session(
            name=f"produce with Java, {policy.key}",
            sides=BOTH,
            tasks=[_produce(policy, size, partitions, pace) for size, partitions in product(SIZES, PARTITIONS)],
            warm_up=warm_up(pace),
        )
        for policy in EVEN
    ]


def fetch_sessions(pace: Pace) -> list[Session]:
    """Cold, with one consumer."""
    tasks = []
    for size in COLD_BYTES:
        row = Row(
            id=f"fetch-cold-java-{size}b-1x",
            group="Fetch",
            what=f"read {size:,} B cold, 1 consumer",
            settings=f"kafka-consumer-perf-test, {FETCH_PARTITIONS} partitions, not in the page cache",
            fsync=NOT_PRODUCED,
            unit="records/s",
            expected=1.0,
        )
        take = partial(_read, row, size=size, pace=pace)
        tasks.append(Task(rows=(row,), take={OURS: take, KAFKA: take}))
    return [Session(name="fetch with Java", sides=BOTH, tasks=tasks, warm_up=warm_up(pace))]


def likely_rate(size: int, policy: Policy) -> float:
    """Records a second, about."""
    rate = min(RATE_MAX, BYTES_PER_S / size)
    return rate * SYNC_SHARE if policy is ON_DISK else rate


def tool_records(size: int, policy: Policy, pace: Pace) -> tuple[int, int]:
    """How many records the producer's tool sends, and how many of them to warm up."""
    rate = likely_rate(size, policy)
    warm_up = round(rate * pace.warm_up_s * WARM_UPS)
    return warm_up + round(rate * pace.timed_s * TIMES), warm_up


def _produce(policy: Policy, size: int, partitions: int, pace: Pace) -> Task:
    row = Row(
        id=f"produce-java-{policy.key}-{size}b-{partitions}p",
        group=f"Produce with Kafka's client, {policy.title}",
        what=f"produce {size:,} B, {counted(partitions, 'partition')}, 1 producer",
        settings="kafka-producer-perf-test",
        fsync=policy.fsync,
        unit="records/s",
        expected=1.0 if policy is ACKS_1 else None,
    )
    rows = [row]
    if policy is ACKS_1 and partitions == CPU_PARTITIONS:
        rows.append(
            Row(
                id=f"cpu-java-{size}b",
                group=CPU_GROUP,
                what=f"broker's CPU seconds for a GB produced, records of {size:,} B",
                settings=f"kafka-producer-perf-test, {partitions} partitions",
                fsync=policy.fsync,
                unit=CPU_UNIT,
                better="less",
                expected=3.0,
            )
        )
    take = partial(_produced, tuple(rows), policy=policy, size=size, partitions=partitions, pace=pace)
    return Task(rows=tuple(rows), take={OURS: take, KAFKA: take})


def _produced(
    rows: tuple[Row, ...], broker: Broker, *, policy: Policy, size: int, partitions: int, pace: Pace
) -> Turns:
    topic = topics.create(broker, rows[0].id, partitions=partitions, policy=policy)
    records, warm_up_records = tool_records(size, policy, pace)
    arguments = perf_tools.producer_arguments(
        bootstrap=broker.address,
        topic=topic.name,
        acks=policy.acks,
        size=size,
        records=records,
        warm_up_records=warm_up_records,
    )
    output, load = _run(broker, perf_tools.PRODUCER, arguments, size_bytes=records * size)
    topic.check(records=records)
    turns = {rows[0].id: Turn(value=perf_tools.parse_sent(output).rate, load=load)}
    return turns | {row.id: Turn(value=load.broker_cpu_s / load.gigabytes, load=load) for row in rows[1:]}


def _read(row: Row, broker: Broker, *, size: int, pace: Pace) -> Turns:
    topic = topics.create(broker, row.id, partitions=FETCH_PARTITIONS, policy=ACKS_1)
    records = fill(broker, topic, size=size, size_bytes=cold_bytes(size, pace))
    arguments = perf_tools.consumer_arguments(bootstrap=broker.address, topic=topic.name, records=records)
    drop_cached(broker.directory, is_quick=pace.is_quick)
    output, load = _run(broker, perf_tools.CONSUMER, arguments, size_bytes=records * size)
    read = perf_tools.parse_read(output)
    if read.records != records:
        raise Unmeasured(f"{read.records:,} records were read of {records:,}")
    return {row.id: Turn(value=read.rate, load=load)}


def _run(broker: Broker, main: str, arguments: list[str], *, size_bytes: int) -> tuple[str, Load]:
    command = java_command(main, *arguments)
    meter, before, begun = broker.meter(), os.times(), perf_counter()
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S_MAX, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unmeasured(f"{main} did not end within {TOOL_S_MAX} s") from late
    wall_s, after, memory, spent = perf_counter() - begun, os.times(), broker.memory(), meter.spent()
    if run.returncode != 0:
        raise Unmeasured(f"{main} failed: {(run.stdout + run.stderr)[-300:]}")
    client_cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return run.stdout, Load(
        wall_s=wall_s,
        broker_cpu_s=spent.seconds,
        client_cpu_s=client_cpu_s,
        gigabytes=size_bytes / 1e9,
        rss_mb=memory.rss_mb,
        hwm_mb=memory.hwm_mb,
        broker_kernel_s=spent.kernel_seconds,
    )

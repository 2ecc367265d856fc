"""What a user of librdkafka gets: produced in every size, spread and number of producers; read cold and at the tail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

from bench.peers import topics
from bench.peers.contract import (
    CPU_UNIT,
    KAFKA,
    NOT_PRODUCED,
    OURS,
    Broker,
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
from bench.peers.phases import Client, Done, client, metered, warmed
from bench.peers.policies import ACKS_1, EVEN, Policy
from bench.peers.rdkafka_reading import READING
from bench.peers.servers import BOTH

SIZES = (100, 1_000, 10_000)
PARTITIONS = (1, 6, 100)
PRODUCERS = (1, 50)
CPU_GROUP = "Start, memory and CPU"
CPU_PARTITIONS = 6
FETCH_PARTITIONS = 20
CONSUMERS = (1, 20)
COLD_BYTES = {100: 300_000_000, 1_000: 1_000_000_000}
"""What is read cold, by the size of a record."""
COLD_BYTES_QUICK = 2_000_000
TAIL_SIZE = 1_000
GROWTH = (10, 100, 1_000)
FILL_BATCH_BYTES = 60_000
FILL_S_MAX = 60.0


def produce_sessions(pace: Pace) -> list[Session]:
    """A session for each policy, so that not too much lies on the disk at once."""
    return [
        Session(
            name=f"produce with librdkafka, {policy.key}",
            sides=BOTH,
            tasks=[_produce(policy, *shape, pace) for shape in product(SIZES, PARTITIONS, PRODUCERS)],
            warm_up=warm_up(pace),
        )
        for policy in EVEN
    ]


def growth_sessions(pace: Pace) -> list[Session]:
    """The same with more and more partitions."""
    tasks = []
    for partitions in GROWTH:
        row = Row(
            id=f"growth-partitions-{partitions}",
            group="Growth",
            what=f"produce 100 B, {partitions:,} partitions",
            settings="librdkafka, 1 producer",
            fsync=ACKS_1.fsync,
            unit="records/s",
        )
        take = partial(produced, (row,), policy=ACKS_1, size=100, partitions=partitions, producers=1, pace=pace)
        tasks.append(Task(rows=(row,), take={OURS: take, KAFKA: take}))
    return [Session(name="partitions", sides=BOTH, tasks=tasks, warm_up=warm_up(pace))]


def fetch_sessions(pace: Pace) -> list[Session]:
    """Cold: written, and no longer in the page cache. Tail: read while it is being written."""
    cold = [_cold(size, consumers, pace) for size, consumers in product(COLD_BYTES, CONSUMERS)]
    tail = [_tail(consumers, pace) for consumers in CONSUMERS]
    return [Session(name="fetch with librdkafka", sides=BOTH, tasks=[*cold, *tail], warm_up=warm_up(pace))]


def warm_up(pace: Pace) -> dict[str, partial[None]]:
    """The broker takes and gives records for a while, so that its JIT is warm before the first row."""
    warm = partial(_warm, pace=pace)
    return {OURS: warm, KAFKA: warm}


def _warm(broker: Broker, *, pace: Pace) -> None:
    topic = topics.create(broker, "warm-up", partitions=CPU_PARTITIONS, policy=ACKS_1)
    reading = {"partitions": CPU_PARTITIONS, "consumers": 1, "records": 0, "is_tail": True}
    with (
        client("rdkafka_consume", {**_to(broker, topic), **reading}, broker.directory) as consumer,
        client("rdkafka_produce", {**_to(broker, topic), **_producing(ACKS_1, 1, 1_000)}, broker.directory) as producer,
    ):
        warmed(partial(together, consumer, producer), first_s=pace.warm_up_s, more_s=pace.again_s)


def _produce(policy: Policy, size: int, partitions: int, producers: int, pace: Pace) -> Task:
    shape = f"{size}b-{partitions}p-{producers}x"
    is_level_expected = policy is ACKS_1
    row = Row(
        id=f"produce-librdkafka-{policy.key}-{shape}",
        group=f"Produce with librdkafka, {policy.title}",
        what=f"produce {size:,} B, {counted(partitions, 'partition')}, {counted(producers, 'producer')}",
        settings="librdkafka, no linger, at most 50 queued each" if producers > 1 else "librdkafka",
        fsync=policy.fsync,
        unit="records/s",
        expected=1.0 if is_level_expected else None,
    )
    rows = [row]
    if is_level_expected and (partitions, producers) == (CPU_PARTITIONS, 1):
        rows.append(
            Row(
                id=f"cpu-librdkafka-{size}b",
                group=CPU_GROUP,
                what=f"broker's CPU seconds for a GB produced, records of {size:,} B",
                settings=f"librdkafka, {partitions} partitions, 1 producer",
                fsync=policy.fsync,
                unit=CPU_UNIT,
                better="less",
                expected=3.0,
            )
        )
    take = partial(
        produced, tuple(rows), policy=policy, size=size, partitions=partitions, producers=producers, pace=pace
    )
    return Task(rows=tuple(rows), take={OURS: take, KAFKA: take})


def produced(
    rows: tuple[Row, ...],
    broker: Broker,
    *,
    policy: Policy,
    size: int,
    partitions: int,
    producers: int,
    pace: Pace,
) -> Turns:
    """One side's turn. The first row is the rate; a second one is what a GB cost the broker."""
    topic = topics.create(broker, rows[0].id, partitions=partitions, policy=policy)
    asked = {**_to(broker, topic), **_producing(policy, producers, size)}
    with client("rdkafka_produce", asked, broker.directory) as producer:
        before = warmed(producer.run, first_s=pace.again_s, more_s=pace.again_s)
        done, load = metered(broker, [producer.pid], partial(producer.run, pace.timed_s))
    topic.check(records=before.records + done.records)
    turns = {rows[0].id: Turn(value=done.rate, load=load)}
    return turns | {row.id: Turn(value=load.broker_cpu_s / load.gigabytes, load=load) for row in rows[1:]}


def _cold(size: int, consumers: int, pace: Pace) -> Task:
    row = Row(
        id=f"fetch-cold-librdkafka-{size}b-{consumers}x",
        group="Fetch",
        what=f"read {size:,} B cold, {counted(consumers, 'consumer')}",
        settings=f"{READING}, {FETCH_PARTITIONS} partitions shared out, not in the page cache",
        fsync=NOT_PRODUCED,
        unit="records/s",
        expected=1.0,
    )
    take = partial(_read_cold, row, size=size, consumers=consumers, pace=pace)
    return Task(rows=(row,), take={OURS: take, KAFKA: take})


def _read_cold(row: Row, broker: Broker, *, size: int, consumers: int, pace: Pace) -> Turns:
    topic = topics.create(broker, row.id, partitions=FETCH_PARTITIONS, policy=ACKS_1)
    records = fill(broker, topic, size=size, size_bytes=cold_bytes(size, pace))
    reading = {"partitions": FETCH_PARTITIONS, "consumers": consumers, "records": records}
    with client("rdkafka_consume", {**_to(broker, topic), **reading}, broker.directory) as consumer:
        consumer.run(pace.again_s)
        drop_cached(broker.directory, is_quick=pace.is_quick)
        done, load = metered(broker, [consumer.pid], partial(consumer.run, 0.0))
    if done.records != records:
        raise Unmeasured(f"{done.records:,} records were read of {records:,}")
    return {row.id: Turn(value=done.rate, load=load)}


def cold_bytes(size: int, pace: Pace) -> int:
    """How much is read cold."""
    return COLD_BYTES_QUICK if pace.is_quick else COLD_BYTES[size]


def fill(broker: Broker, topic: topics.Topic, *, size: int, size_bytes: int) -> int:
    """Write so many bytes quickly, and tell how many records they are. Batches are as large as a busy producer's."""
    per_batch = max(1, FILL_BATCH_BYTES // size)
    asked = {
        "host": broker.host,
        "port": broker.port,
        "topic": topic.name,
        "partitions": topic.partitions,
        "connections": 2,
        "window": 5,
        "acks": 1,
        "size": size,
        "records": per_batch,
        "requests_max": size_bytes // (size * per_batch),
    }
    with client("raw_client", asked, broker.directory) as raw:
        written = raw.run(FILL_S_MAX).records
    topic.check(records=written)
    return written


def _tail(consumers: int, pace: Pace) -> Task:
    row = Row(
        id=f"fetch-tail-librdkafka-{TAIL_SIZE}b-{consumers}x",
        group="Fetch",
        what=f"read {TAIL_SIZE:,} B at the tail, {counted(consumers, 'consumer')}",
        settings=f"{READING}, {FETCH_PARTITIONS} partitions shared out, while 1 producer writes at its full speed",
        fsync=ACKS_1.fsync,
        unit="records/s",
        expected=1.0,
    )
    take = partial(_read_tail, row, consumers=consumers, pace=pace)
    return Task(rows=(row,), take={OURS: take, KAFKA: take})


def _read_tail(row: Row, broker: Broker, *, consumers: int, pace: Pace) -> Turns:
    """How many records a second reach readers while a producer writes as quickly as it can."""
    topic = topics.create(broker, row.id, partitions=FETCH_PARTITIONS, policy=ACKS_1)
    reading = {"partitions": FETCH_PARTITIONS, "consumers": consumers, "records": 0, "is_tail": True}
    writing = _producing(ACKS_1, 1, TAIL_SIZE)
    with (
        client("rdkafka_consume", {**_to(broker, topic), **reading}, broker.directory) as consumer,
        client("rdkafka_produce", {**_to(broker, topic), **writing}, broker.directory) as producer,
    ):
        together(consumer, producer, pace.again_s)
        work = partial(together, consumer, producer, pace.timed_s)
        done, load = metered(broker, [consumer.pid, producer.pid], work)
    if not done.records:
        raise Unmeasured("no record reached the readers")
    return {row.id: Turn(value=done.rate, load=load)}


def together(consumer: Client, producer: Client, seconds: float) -> Done:
    """Both for so long; what the consumer has to tell."""
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(consumer.run, seconds)
        producer.run(seconds)
        return reading.result()


def _to(broker: Broker, topic: topics.Topic) -> dict[str, object]:
    return {"bootstrap": broker.address, "topic": topic.name}


def _producing(policy: Policy, producers: int, size: int) -> dict[str, object]:
    return {"acks": policy.acks, "producers": producers, "size": size}

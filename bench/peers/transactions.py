"""Transactions a second, with librdkafka: small ones, where the commit is the cost, and large ones."""

from __future__ import annotations

from functools import partial

from bench.peers import topics
from bench.peers.contract import KAFKA, NO_SYNC, OURS, SYNC_BOTH, Broker, Pace, Row, Session, Task, Turn, Turns
from bench.peers.librdkafka import warm_up
from bench.peers.phases import client, metered, warmed
from bench.peers.policies import OS_CACHE, Policy
from bench.peers.servers import both

GROUP = "Transactions"
SIZE = 256
PARTITIONS = 6
RECORDS = (100, 10_000)
# The coordinator's own topic has to keep the same promise, which only the broker's settings can say.
CACHED = Policy("os", "all", f"{NO_SYNC} (ours: broker's ottla.acks.all=os)", {OURS: {}, KAFKA: {}})
SYNCED = Policy("fsync", "all", f"{SYNC_BOTH} (Kafka: broker's log.flush.interval.messages=1)", CACHED.configs)
SETTINGS = {
    CACHED.key: both(OS_CACHE.configs[OURS], {}),
    SYNCED.key: both({}, {"log.flush.interval.messages": "1"}),
}


def sessions(pace: Pace) -> list[Session]:
    """A session for each policy, since it is the broker's."""
    return [
        Session(
            name=f"transactions, {policy.key}",
            sides=SETTINGS[policy.key],
            tasks=[_task(policy, records, pace) for records in RECORDS],
            warm_up=warm_up(pace),
        )
        for policy in (CACHED, SYNCED)
    ]


def _task(policy: Policy, records: int, pace: Pace) -> Task:
    row = Row(
        id=f"transactions-{policy.key}-{records}",
        group=GROUP,
        what=f"transactions of {records:,} records of {SIZE} B",
        settings=f"librdkafka, {PARTITIONS} partitions, one after the other",
        fsync=policy.fsync,
        unit="transactions/s",
    )
    take = partial(_committed, row, policy=policy, records=records, pace=pace)
    return Task(rows=(row,), take={OURS: take, KAFKA: take})


def _committed(row: Row, broker: Broker, *, policy: Policy, records: int, pace: Pace) -> Turns:
    topic = topics.create(broker, row.id, partitions=PARTITIONS, policy=policy)
    asked = {"partitions": PARTITIONS, "records": records, "size": SIZE}
    with client("transact", {"bootstrap": broker.address, "topic": topic.name, **asked}, broker.directory) as producer:
        before = warmed(producer.run, first_s=pace.warm_up_s, more_s=pace.again_s)
        done, load = metered(broker, [producer.pid], partial(producer.run, pace.timed_s))
    committed = before.figures["transactions"] + done.figures["transactions"]
    # Each transaction leaves a marker in every partition.
    topic.check(records=before.records + done.records + round(committed) * PARTITIONS)
    return {row.id: Turn(value=done.figures["transactions"] / done.wall_s, load=load)}

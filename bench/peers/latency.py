"""How long a record takes from when it is due at its producer until its reader has it, at shares of what can be borne.

First the maximum of each side, a producer and a reader at the same time as quickly as they go; then both sides at the
same rate, a share of the smallest round of either: a median would be more than is borne whenever the machine is slower.
"""

from __future__ import annotations

from functools import partial

from bench.peers import topics
from bench.peers.contract import KAFKA, OURS, Broker, Load, Pace, Row, Session, Task, Turn, Turns, Unmeasured
from bench.peers.intended import PERCENTILES
from bench.peers.librdkafka import together, warm_up
from bench.peers.phases import Done, client, metered
from bench.peers.policies import ACKS_1, EVEN, Policy
from bench.peers.rdkafka_reading import READING
from bench.peers.servers import BOTH
from bench.peers.store import Store

GROUP = "Latency"
SIZE = 1_000
PARTITIONS = 6
SHARES = (50, 80)
"""Of the smallest round of the maxima, in percent."""
MOST_TIMES, WAIT_TIMES = 10.0, 12.0
"""How many times as long as that of a throughput a phase takes, for the most, which is what can be gone on with, and
for the waits at shares of it."""
PIECES = 6
"""A percentile is the median over so many pieces of a phase: what the machine's host does within seconds is in all of
the slowest records of a phase, but not in most of its pieces."""
PIECES_RULE = (
    "Since 20 November 2026 a latency is the median over pieces of its phase, where its row says so; those that do not",
    "were taken before, over a whole phase of 18 s.",
)
"""The same in words, for pages."""
STOLEN_MAX = 0.002
"""Whoever had no processor for a hundredth of the time may have a hundredth of all records late by that alone."""
STOLEN_RULE = (
    f"Since 18 November 2026 that is {STOLEN_MAX:.1%} for latencies, which are timed for longer since: what others",
    "took makes as large a share of the records late.",
)
"""The same in words, for pages."""
CLIENT = f"{READING}, its own linger of 5 ms, {PARTITIONS} partitions, 1 producer, 1 consumer"


def sessions(pace: Pace, store: Store) -> list[Session]:
    """The maximum of each policy, and then the waits at shares of it.

    A session of its own for each, so that the sides follow one another within a minute and not after all other waits: a
    machine that shares its cores with others is not the same machine a few minutes later.
    """
    return [session for policy in EVEN for session in _of_policy(policy, pace, store)]


def _of_policy(policy: Policy, pace: Pace, store: Store) -> list[Session]:
    named = {f"the most that each side bears, {policy.key}": _maximum(policy, pace)}
    named |= {f"latency, {policy.key} at {share} %": _waits(policy, share, pace, store) for share in SHARES}
    return [Session(name=name, sides=BOTH, tasks=[task], warm_up=warm_up(pace)) for name, task in named.items()]


def _visible(policy: Policy) -> str:
    # With acks=1 a reader of ours gets only what is on disk, a reader of Kafka's what is in the page cache.
    return f"{policy.fsync}; ours shows readers what is on disk" if policy is ACKS_1 else policy.fsync


def _maximum(policy: Policy, pace: Pace) -> Task:
    row = Row(
        id=maximum_id(policy),
        group=GROUP,
        what=f"the most that goes from a producer to a reader, {SIZE:,} B",
        settings=CLIENT,
        fsync=_visible(policy),
        unit="records/s",
    )
    take = partial(_most, row, policy=policy, pace=pace)
    return Task(rows=(row,), take={OURS: take, KAFKA: take}, sets_load=True)


def maximum_id(policy: Policy) -> str:
    """Of the row that tells how much there can be."""
    return f"latency-most-{policy.key}"


def _waits(policy: Policy, share: int, pace: Pace, store: Store) -> Task:
    rows = {
        name: Row(
            id=f"latency-{policy.key}-{share}-{name}",
            group=GROUP,
            what=f"{name} from due to read, {SIZE:,} B at {share} % of what both bore in each round,"
            f" median of {PIECES} pieces",
            settings=CLIENT,
            fsync=_visible(policy),
            unit="ms",
            better="less",
            expected=1.0,
        )
        for name in PERCENTILES
    }
    take = partial(_waited, rows, policy=policy, share=share, pace=pace, store=store)
    return Task(rows=tuple(rows.values()), take={OURS: take, KAFKA: take}, stolen_max=STOLEN_MAX)


def rate_of(store: Store, policy: Policy, share: int) -> float:
    """Records a second at which both sides are looked at."""
    most = store.result(maximum_id(policy))
    borne = [] if most is None else [value for side in most.turns for value in most.values(side)]
    if not borne:
        raise Unmeasured(f"how much each side bears is not known: measure {maximum_id(policy)} first")
    return min(borne) * share / 100


def _most(row: Row, broker: Broker, *, policy: Policy, pace: Pace) -> Turns:
    done, load = _phases(broker, row.id, policy=policy, rate=0.0, pace=pace, timed_s=pace.timed_s * MOST_TIMES)
    if not done.records:
        raise Unmeasured("no record reached the reader")
    return {row.id: Turn(value=done.rate, load=load)}


def _waited(rows: dict[str, Row], broker: Broker, *, policy: Policy, share: int, pace: Pace, store: Store) -> Turns:
    rate, timed_s = rate_of(store, policy, share), pace.timed_s * WAIT_TIMES
    name = f"latency-{policy.key}-{share}"
    done, load = _phases(broker, name, policy=policy, rate=rate, pace=pace, timed_s=timed_s)
    wanted = round(rate * timed_s)
    if done.records != wanted:
        raise Unmeasured(f"{done.records:,} records were read of {wanted:,}")
    return {row.id: Turn(value=done.figures[percentile], load=load) for percentile, row in rows.items()}


def _phases(broker: Broker, name: str, *, policy: Policy, rate: float, pace: Pace, timed_s: float) -> tuple[Done, Load]:
    """Warm up and look, with the same clients for the most and for a share of it."""
    topic = topics.create(broker, name, partitions=PARTITIONS, policy=policy)
    to = {"bootstrap": broker.address, "topic": topic.name}
    paced = {**to, "acks": policy.acks, "rate": rate, "size": SIZE}
    with (
        client("latency_consume", {**to, "partitions": PARTITIONS, "pieces": PIECES}, broker.directory) as consumer,
        client("latency_produce", paced, broker.directory) as producer,
    ):
        together(consumer, producer, pace.again_s)
        work = partial(together, consumer, producer, timed_s)
        return metered(broker, [consumer.pid, producer.pid], work)

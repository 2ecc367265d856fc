"""Cold figures: how long a broker takes until it answers, and what it holds when nobody asks anything of it."""

from __future__ import annotations

from functools import partial
from time import sleep

from bench.peers import topics
from bench.peers.contract import KAFKA, NOT_PRODUCED, OURS, Broker, Pace, Row, Session, Task, Turn, Turns
from bench.peers.librdkafka import CPU_GROUP, fill
from bench.peers.policies import ACKS_1
from bench.peers.servers import BOTH, restarted

IDLE_S = 10.0
IDLE_S_QUICK = 0.5
PARTITIONS = (100, 1_000)
"""Of the topic that a broker that starts again finds, each with records."""
KEPT_BYTES_PER_PARTITION = 1_000_000
NEW = Row(
    id="startup-new",
    group=CPU_GROUP,
    what="start on an empty directory",
    settings="until the first Metadata answer; Kafka's directory is formatted before",
    fsync=NOT_PRODUCED,
    unit="s",
    better="less",
    expected=5.0,
)
IDLE = Row(
    id="memory-idle",
    group=CPU_GROUP,
    what="resident memory, idle",
    settings=f"{IDLE_S:g} s after the start on an empty directory",
    fsync=NOT_PRODUCED,
    unit="MB",
    better="less",
    expected=5.0,
)


def sessions(pace: Pace) -> list[Session]:
    """On an empty directory, and again after a stop in order."""
    idle = partial(_idle, pace=pace)
    new = Task(rows=(NEW, IDLE), take={OURS: idle, KAFKA: idle})
    return [
        Session(name="start", sides=BOTH, tasks=[new]),
        *(_again(partitions, pace) for partitions in PARTITIONS),
    ]


def _again(partitions: int, pace: Pace) -> Session:
    row = Row(
        id=f"startup-again-{partitions}p",
        group=CPU_GROUP,
        what=f"start after a clean stop, {partitions:,} partitions",
        settings="until the first Metadata answer; 1 MB of records in each partition",
        fsync=NOT_PRODUCED,
        unit="s",
        better="less",
        expected=5.0,
    )
    prepare = partial(_prepare, partitions=partitions, pace=pace)
    return Session(
        name=f"start again, {partitions:,} partitions",
        sides={side: restarted(start, prepare) for side, start in BOTH.items()},
        tasks=[Task(rows=(row,), take={side: partial(_started, row) for side in BOTH})],
    )


def _prepare(broker: Broker, *, partitions: int, pace: Pace) -> None:
    topic = topics.create(broker, "kept", partitions=partitions, policy=ACKS_1)
    size_bytes = 1_000_000 if pace.is_quick else partitions * KEPT_BYTES_PER_PARTITION
    fill(broker, topic, size=1_000, size_bytes=size_bytes)


def _started(row: Row, broker: Broker) -> Turns:
    return {row.id: Turn(value=broker.started_s)}


def _idle(broker: Broker, *, pace: Pace) -> Turns:
    sleep(IDLE_S_QUICK if pace.is_quick else IDLE_S)
    return {NEW.id: Turn(value=broker.started_s), IDLE.id: Turn(value=broker.memory().rss_mb)}

"""What the side-by-side is made of: a broker that runs, a row of the table, one turn of one side, a session, a verdict.

A session starts each side in turns on a wiped directory and lets it do the session's tasks; `rounds` does that, `store`
keeps what comes out, `page` shows it. Whoever adds a peer gives a starter for it (`launch` does most of that), tasks
that name its side, and a line in the table of parts. Knows nothing of any peer.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Literal

from bench.neighbours import STOLEN_MAX
from bench.peers.memory import Memory, memory_of
from bench.spark_cpu import Meter
from bench.spark_rows import spread
from bench.turns import SPREAD_MAX, TURNS_MIN

OURS = "ottla"
KAFKA = "kafka"
NO_SYNC, SYNC_BOTH, NOT_PRODUCED = "page cache on both", "fsync before the answer on both", "-"
"""The usual fsync policies of a row; a row with another one says which in its own words."""
UNKNOWN = "not known yet"
BUSY = 0.9
"""Who computes for this share of the time has none left to speak of: a part of it always goes to waking up."""
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9.]+)*")


class Unmeasured(Exception):
    """One side could not do a task, for a reason that the table tells; the rest goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take."""

    rounds: int = 3
    warm_up_s: float = 5.0
    """Of the workload, before a session's first timed part: a JIT has to be warm."""
    again_s: float = 1.5
    """Of the workload, before each further timed part of a broker that is warm."""
    timed_s: float = 3.0
    is_quick: bool = False
    """Counts that cannot be told in seconds are tiny then."""


QUICK = Pace(rounds=1, warm_up_s=0.2, again_s=0.2, timed_s=0.3, is_quick=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One that runs and answers."""

    side: str
    host: str
    port: int
    process: Popen[bytes]
    """The root of its process tree."""
    directory: Path
    started_s: float
    """From the start of the process until it answered a request."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def meter(self) -> Meter:
        """Counts the CPU seconds of the whole tree from now on."""
        return Meter(self.process.pid)

    def memory(self) -> Memory:
        """What the whole tree holds now, and held at most."""
        return memory_of(self.process.pid)


Starter = Callable[[Path], AbstractContextManager[Broker]]
"""Starts a side on an empty directory, waits until it answers, and ends it in order. Raises PeerMissing without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table, without its figures."""

    id: str
    """Small words with hyphens, the group's first: what `--only` picks by, and the name of the stored file."""
    group: str
    """The heading under which it stands, and the plot in which."""
    what: str
    settings: str
    fsync: str
    """What an acknowledgement means; `NOT_PRODUCED` where nothing is acknowledged."""
    unit: str
    better: Literal["more", "less"] = "more"
    expected: float | None = None
    """How many times as good as the peer we should be."""
    peer: str = KAFKA
    note: str = ""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is no id of a row: small words with hyphens")
        if not self.fsync:
            raise ValueError(f"{self.id} does not say what an acknowledgement means")


CPU_UNIT = "s/GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a timed part cost; stands beside every throughput."""

    wall_s: float
    broker_cpu_s: float
    client_cpu_s: float
    gigabytes: float
    """Of records, in units of 10^9 bytes."""
    rss_mb: float
    hwm_mb: float
    client_thread_s: float = 0.0
    """CPU seconds of the client's busiest thread; 0 where nobody looked."""
    broker_kernel_s: float = 0.0
    """What the kernel took of `broker_cpu_s`: it carries bytes from the network and to the file for both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One side's figure of one round, in the row's unit."""

    value: float
    load: Load | None = None


Turns = Mapping[str, Turn]
"""By the id of the row: one piece of work may give several figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work that all sides do."""

    rows: tuple[Row, ...]
    take: Mapping[str, Callable[[Broker], Turns]]
    """By side; a side that is not named does not do it. May raise Unmeasured."""
    stolen_max: float = STOLEN_MAX
    """The share of all processors' time that may go to others meanwhile."""
    sets_load: bool = False
    """Whether other tasks work at a share of what this one gives."""

    @property
    def decides(self) -> bool:
        """Whether what is expected of a row hangs on it."""
        return self.sets_load or any(row.expected is not None for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is done between one start of a broker and its stop."""

    name: str
    sides: Mapping[str, Starter]
    """Ours first. A round is each of them once, in this order."""
    tasks: Sequence[Task]
    warm_up: Mapping[str, Callable[[Broker], None]] | None = None
    """By side, before the first task."""


@dataclass(frozen=True, slots=True)
class Result:
    """A row with its figures."""

    row: Row
    turns: Mapping[str, Sequence[Turn]]
    """By side, round by round."""
    missing: Mapping[str, str]
    """Why a side has none."""

    def values(self, side: str) -> list[float]:
        return [turn.value for turn in self.turns.get(side, ())]

    def median(self, side: str) -> float | None:
        values = self.values(side)
        return statistics.median(values) if values else None

    def spread(self, side: str) -> float:
        """Largest less smallest, as a share of the median; without end where there are too few rounds to tell."""
        return spread(self.values(side))

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer we are."""
        ours, peer = self.median(OURS), self.median(self.row.peer)
        if ours is None or peer is None:
            return None
        return _times(ours, peer) if self.row.better == "more" else _times(peer, ours)

    @property
    def ratio_range(self) -> tuple[float, float] | None:
        """Our worst round against the peer's best, and our best against its worst."""
        ours, peer = self.values(OURS), self.values(self.row.peer)
        if not ours or not peer:
            return None
        if self.row.better == "more":
            return _times(min(ours), max(peer)), _times(max(ours), min(peer))
        return _times(min(peer), max(ours)), _times(max(peer), min(ours))

    @property
    def verdict(self) -> str:
        """Whether the expectation is met, as far as these rounds can tell."""
        ratio = self.ratio
        if ratio is None:
            return "not measured"
        if max(self.spread(OURS), self.spread(self.row.peer)) > SPREAD_MAX:
            return UNKNOWN
        if self.row.expected is None:
            return ""
        return "met" if ratio >= self.row.expected else "NOT MET"

    @property
    def rounds(self) -> int:
        return min((len(turns) for turns in self.turns.values()), default=0)

    @property
    def is_complete(self) -> bool:
        return self.rounds >= TURNS_MIN

    def load(self, side: str) -> Load | None:
        """What the timed parts cost, each figure in its own median."""
        loads = [turn.load for turn in self.turns.get(side, ()) if turn.load is not None]
        if not loads:
            return None

        def middle(figure: Callable[[Load], float]) -> float:
            return statistics.median(figure(load) for load in loads)

        return Load(
            wall_s=middle(lambda load: load.wall_s),
            broker_cpu_s=middle(lambda load: load.broker_cpu_s),
            client_cpu_s=middle(lambda load: load.client_cpu_s),
            gigabytes=middle(lambda load: load.gigabytes),
            rss_mb=middle(lambda load: load.rss_mb),
            hwm_mb=middle(lambda load: load.hwm_mb),
            client_thread_s=middle(lambda load: load.client_thread_s),
            broker_kernel_s=middle(lambda load: load.broker_kernel_s),
        )


def counted(number: int, what: str) -> str:
    """`1 partition`, `100 partitions`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _times(more: float, less: float) -> float:
    return more / less if less else float("inf")


def limit(load: Load, *, cores: int) -> str:
    """What a throughput was held back by, as far as CPU tells: the client, the machine, the broker, or none of them.

    A client is the limit when one of its threads computes nearly all the time. A broker is named only when it has a
    whole core to itself and the client has time left: Kafka could use more than one, ours cannot.
    """
    client, broker = load.client_cpu_s / load.wall_s, load.broker_cpu_s / load.wall_s
    if load.client_thread_s >= BUSY * load.wall_s:
        return "client"
    if client + broker >= BUSY * cores:
        return "machine"
    return "broker" if broker >= BUSY else ""

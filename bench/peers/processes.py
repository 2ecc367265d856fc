"""More cores, an experiment: several broker processes on one machine, the partitions shared out among them.

    python -m bench.peers.processes            one process against two and four, in turns
    python -m bench.peers.processes --write    also puts the figures into docs/benchmarks/more-cores.md
    python -m bench.peers.processes --quick    tries it out

Each process has its own data directory and port, and the client knows which of them has a partition: what a cluster's
metadata would tell it. So this is what the processes can do at best, before anything joins them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.append import describe_disk
from bench.peers import topics
from bench.peers.contract import OURS, QUICK, Broker, Load, Pace, Result, Row, Session, Task, Turn, Turns
from bench.peers.launch import free_ports, launched
from bench.peers.phases import Client, Done, client, metered
from bench.peers.policies import ACKS_1, ON_DISK, Policy
from bench.peers.rounds import take
from bench.peers.servers import answers
from bench.peers.store import STORE, Store
from scripts import machine

ONE = "one"
COUNTS = (2, 4)
PARTITIONS = 8
"""Shared out among the processes; each has a connection of its own, so that their number is the same in every row."""
CLIENTS = 2
"""Processes, so that one that is busy is not what is measured."""
WINDOW = 100
"""Deep, so that a request costs the client little: on a small machine it needs the same cores."""
SIZES = (100, 1_000)
MEANINGS = ((ACKS_1, "acks=1: page cache on both"), (ON_DISK, "acks=all: fsync before the answer on both"))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "more-cores.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Broker):
    """Several brokers that run; the first one's address stands for all where one will do."""

    ports: tuple[int, ...]

    def member(self, port: int) -> Broker:
        """One of them; what it costs is counted for all together."""
        return Broker(
            side=self.side,
            host=self.host,
            port=port,
            process=self.process,
            directory=self.directory,
            started_s=self.started_s,
        )


def sessions(pace: Pace) -> list[Session]:
    """One process against more."""
    return [
        Session(
            name=f"processes-{count}",
            sides={OURS: partial(processes, count, OURS), ONE: partial(processes, 1, ONE)},
            tasks=[_task(count, size, policy, means, pace) for policy, means in MEANINGS for size in SIZES],
            warm_up={side: partial(_warm_up, pace) for side in (OURS, ONE)},
        )
        for count in COUNTS
    ]


def _task(count: int, size: int, policy: Policy, means: str, pace: Pace) -> Task:
    row = Row(
        id=f"processes-{count}-{policy.key}-{size}b",
        group="More processes",
        what=f"produce {size:,} B, {count} processes against one",
        settings=f"raw client, {CLIENTS} processes, one record a request, {PARTITIONS} partitions and connections, "
        f"window {WINDOW} each",
        fsync=means,
        unit="requests/s",
        peer=ONE,
    )
    produced = partial(_produced, row, size, policy, pace)
    return Task(rows=(row,), take={OURS: produced, ONE: produced})


def places(ports: Sequence[int], *, partitions: int) -> list[tuple[int, int]]:
    """Where each partition is: they take the processes in turns."""
    return [(partition, ports[partition % len(ports)]) for partition in range(partitions)]


def _produced(row: Row, size: int, policy: Policy, pace: Pace, broker: Broker) -> Turns:
    with _clients(broker, row.id, size=size, policy=policy) as (made, clients):
        before = _together(clients, pace.again_s)
        done, load = metered(broker, [each.pid for each in clients], partial(_together, clients, pace.timed_s))
    _check(made, before.records + done.records)
    return {row.id: Turn(value=done.rate, load=load)}


def _warm_up(pace: Pace, broker: Broker) -> None:
    with _clients(broker, "warm-up", size=SIZES[0], policy=ACKS_1) as (_, clients):
        _together(clients, pace.warm_up_s)


@contextmanager
def _clients(
    broker: Broker, topic: str, *, size: int, policy: Policy
) -> Iterator[tuple[list[topics.Topic], list[Client]]]:
    """A new topic in each process, and the clients that share its partitions out."""
    assert isinstance(broker, Group)
    ours = replace(policy, configs={broker.side: policy.configs[OURS]})
    made = [topics.create(broker.member(port), topic, partitions=PARTITIONS, policy=ours) for port in broker.ports]
    asked = {
        "host": broker.host,
        "port": broker.port,
        "topic": topic,
        "partitions": PARTITIONS,
        "connections": PARTITIONS // CLIENTS,
        "window": WINDOW,
        "acks": -1 if policy.acks == "all" else int(policy.acks),
        "size": size,
    }
    where = places(broker.ports, partitions=PARTITIONS)
    with ExitStack() as stack:
        yield (
            made,
            [
                stack.enter_context(
                    client("processes_client", {**asked, "places": where[number::CLIENTS]}, broker.directory)
                )
                for number in range(CLIENTS)
            ],
        )


def _together(clients: Sequence[Client], seconds: float) -> Done:
    """All clients at once, as one."""
    with ThreadPoolExecutor(len(clients)) as pool:
        parts = list(pool.map(lambda each: each.run(seconds), clients))
    return Done(
        records=sum(part.records for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
        wall_s=max(part.wall_s for part in parts),
    )


def _check(made: Sequence[topics.Topic], records: int) -> None:
    """Everything is somewhere."""
    others = sum(topic.end() for topic in made[1:])
    made[0].check(records=records - others)


@contextmanager
def processes(count: int, side: str, directory: Path) -> Iterator[Broker]:
    """So many brokers."""
    ports = free_ports(count)
    command = [sys.executable, "-m", "bench.peers.processes_group", str(directory), *map(str, ports)]

    def all_answer(host: str, _: int) -> bool:
        return all(answers(host, port) for port in ports)

    with launched(side, command, port=ports[0], directory=directory, answers=all_answer) as broker:
        yield Group(
            side=side,
            host=broker.host,
            port=broker.port,
            process=broker.process,
            directory=directory,
            started_s=broker.started_s,
            ports=tuple(ports),
        )


def figures(results: Sequence[Result], *, cores: int) -> list[str]:
    """The table for the page. On a small machine the cores are what holds it back, so it says who had how much."""
    lines = [
        "| what | acknowledgement | one process, requests/s | several | times "
        f"| of {cores} cores: one process, clients | several, clients |",
        "|---|---|---|---|---|---|---|",
    ]
    return lines + [_line(result) for result in results]


def _line(result: Result) -> str:
    one, several = result.median(ONE), result.median(OURS)
    if one is None or several is None or result.ratio is None:
        why = "; ".join(result.missing.values()) or "not measured"
        return f"| {result.row.what} | {result.row.fsync} | - | - | - | - | {why} |"
    return (
        f"| {result.row.what} | {result.row.fsync} | {one:,.0f} ±{result.spread(ONE):.0%} "
        f"| {several:,.0f} ±{result.spread(OURS):.0%} | {result.ratio:.2f} {result.verdict} "
        f"| {_cores(result.load(ONE))} | {_cores(result.load(OURS))} |"
    )


def _cores(load: Load | None) -> str:
    if load is None:
        return "-"
    return f"{load.broker_cpu_s / load.wall_s:.2f}, {load.client_cpu_s / load.wall_s:.2f}"


def with_figures(page: str, lines: Sequence[str]) -> str:
    """The page with these figures in the place of its older ones."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return "\n".join([head + BEGIN, "", *lines, "", END + tail])


def main() -> int:
    """Measure, print the table, and store it if told to."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.processes", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=Pace().rounds, help="turns of each side, at least 3")
    parser.add_argument("--directory", type=Path, default=STORE / "data", help="where brokers keep data: a real disk")
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    parser.add_argument("--quick", action="store_true", help="tiny counts, one round, kept apart and never written")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("fewer than 3 rounds say nothing")
    pace = QUICK if options.quick else Pace(rounds=options.rounds)
    store, planned = Store(STORE / "quick" if options.quick else STORE), sessions(pace)
    for session in planned:
        take(session, store, options.directory, pace=pace)
    rows = [row for session in planned for task in session.tasks for row in task.rows]
    results = [result for row in rows if (result := store.result(row.id)) is not None]
    taken = f"Taken on {datetime.now(UTC):%d %B %Y} by `python -m bench.peers.processes --write`, {pace.rounds} rounds."
    lines = [taken, "", f"- {machine.describe()}", f"- {describe_disk(options.directory)}", ""]
    lines += figures(results, cores=len(os.sched_getaffinity(0)))
    print("\n".join(lines))
    if options.write and not options.quick:
        PAGE.write_text(with_figures(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
        print(f"Written: docs/benchmarks/{PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Ottla and other brokers side by side, in turns: `make bench-peers`.

python -m bench.peers                              everything, several hours; prints the page
python -m bench.peers --only raw startup           only the rows whose ids begin so; `--list` names all
python -m bench.peers --only produce-java --write  measures these rows again, and writes the page with all that is kept
python -m bench.peers --unknown --write            measures those rows again that were too spread out to be known
python -m bench.peers --resume                     goes on where a run was cut off
python -m bench.peers --page --write               measures nothing: the page from what is kept
python -m bench.peers --quick                      tiny counts that say nothing; tries everything out in minutes

Figures are kept in .cache/bench-peers, and with --write beside the page.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.peers import conditions, java, kafko_rows, latency, librdkafka, nats, page, raw, redis, startup, transactions
from bench.peers.contract import QUICK, Pace, Result, Session
from bench.peers.rounds import chosen, end_in_order, say, take
from bench.peers.store import STORE, Store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "peers.md"
FIGURES = PAGE.with_suffix(".json")
"""What the page was made of."""
Part = Callable[[Pace, Store], list[Session]]
PARTS: dict[str, Part] = {
    "raw": lambda pace, store: raw.sessions(pace),
    "startup": lambda pace, store: startup.sessions(pace),
    "librdkafka": lambda pace, store: librdkafka.produce_sessions(pace),
    "fetch": lambda pace, store: librdkafka.fetch_sessions(pace),
    "java": lambda pace, store: [*java.produce_sessions(pace), *java.fetch_sessions(pace)],
    "latency": latency.sessions,
    "transactions": lambda pace, store: transactions.sessions(pace),
    "partitions": lambda pace, store: librdkafka.growth_sessions(pace),
    "connections": lambda pace, store: raw.growth_sessions(pace),
    "redis": lambda pace, store: redis.sessions(pace),
    "nats": lambda pace, store: nats.sessions(pace),
    "kafko": lambda pace, store: kafko_rows.sessions(pace),
}
"""In the order in which they are taken. A part may look up what earlier ones have found."""


def main() -> int:
    """Measure what was asked for, print the page, and store it if told to."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="rows whose ids begin so")
    parser.add_argument("--rounds", type=int, default=Pace().rounds, help="turns of each side, at least 3")
    parser.add_argument("--warm-up", type=float, default=Pace().warm_up_s, help="seconds before a timed part")
    parser.add_argument("--timed", type=float, default=Pace().timed_s, help="seconds of a timed part")
    parser.add_argument("--directory", type=Path, default=STORE / "data", help="a real disk for the brokers' data")
    parser.add_argument("--resume", action="store_true", help="keep the rounds of a run that was cut off")
    parser.add_argument("--quick", action="store_true", help="tiny counts, one round, kept apart and never written")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--unknown", action="store_true", help="only rows that are not known yet, or never measured")
    parser.add_argument("--page", action="store_true", help="measure nothing: only the page, from what is kept")
    parser.add_argument("--write", action="store_true", help="store the page and its pictures in docs/benchmarks")
    options = parser.parse_args()
    # A place of its own below what was named: it is wiped.
    options.directory /= "bench-peers"
    pace, store = _pace(options), Store(STORE / "quick" if options.quick else STORE)
    if FIGURES.exists() and not options.quick:
        store.unbundle(FIGURES.read_text(encoding="utf-8"))
    every = [session for part in PARTS.values() for session in part(pace, store)]
    sessions = chosen(every, options.only)
    if options.unknown:
        sessions = [] if not (left := unknown(sessions, store)) else chosen(sessions, left)
    if options.quick and not options.only:
        sessions = thinned(sessions)
    if options.list:
        print("\n".join(_ids(sessions)))
        return 0
    if not sessions and not options.unknown:
        parser.error(f"no row's id begins with any of {options.only}; --list names them")
    if sessions and not options.page:
        end_in_order()
        _measure(sessions, store, pace, options)
    _show(store, every, options)
    return 0


def _measure(sessions: list[Session], store: Store, pace: Pace, options: argparse.Namespace) -> None:
    with open(STORE / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not options.quick:
                raise SystemExit("another run is under way: both would measure each other") from None
        else:
            # What a run that was killed has left behind.
            shutil.rmtree(options.directory, ignore_errors=True)
        try:
            for number, session in enumerate(sessions):
                say(f"[{number + 1}/{len(sessions)}] {session.name}: {len(session.tasks)} tasks")
                take(session, store, options.directory, pace=pace, is_resumed=options.resume)
        finally:
            # Only now are all peers there that this run has brought.
            kept, _ = store.facts()
            store.keep_facts(conditions.facts(options.directory, pace, kept), taken=datetime.now(UTC))


def unknown(sessions: Sequence[Session], store: Store) -> list[str]:
    """The ids of the rows that have no verdict yet, among them those without an expectation."""
    kept = {result.row.id: result for result in store.results()}
    return [row_id for row_id in _ids(sessions) if row_id not in kept or kept[row_id].verdict.startswith("not ")]


def thinned(sessions: list[Session]) -> list[Session]:
    """To try things out: the first of the sessions that differ behind the last comma only; its first and last task."""
    kept: dict[str, Session] = {}
    for session in sessions:
        tasks = list(session.tasks)[:: max(len(session.tasks) - 1, 1)]
        kept.setdefault(session.name.rpartition(", ")[0] or session.name, replace(session, tasks=tasks))
    return list(kept.values())


def _show(store: Store, sessions: list[Session], options: argparse.Namespace) -> None:
    ids = _ids(sessions)
    results = page.in_order(store.results(), ids)
    facts, taken = store.facts()
    text = page.render(
        results,
        taken=taken or datetime.now(UTC),
        rounds=_rounds(results),
        facts=facts,
        commands=conditions.commands(),
        cores=len(os.sched_getaffinity(0)),
        unmeasured=len(ids) - len(results),
    )
    print(text)
    if options.write and not options.quick:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
        FIGURES.write_text(store.bundle(), encoding="utf-8")
        for name, picture in page.pictures(results).items():
            (PAGE.parent / name).write_text(picture, encoding="utf-8")
        say(f"Written: docs/benchmarks/{PAGE.name} and its pictures")


def _rounds(results: Sequence[Result]) -> str:
    counts = sorted({result.rounds for result in results if result.rounds})
    return f"{' to '.join(str(count) for count in dict.fromkeys(counts[:1] + counts[-1:]))} rounds" if counts else ""


def _pace(options: argparse.Namespace) -> Pace:
    if options.quick:
        return QUICK
    if options.rounds < 3:
        raise SystemExit("fewer than 3 rounds say nothing")
    return replace(Pace(), rounds=options.rounds, warm_up_s=options.warm_up, timed_s=options.timed)


def _ids(sessions: Sequence[Session]) -> list[str]:
    return [row.id for session in sessions for task in session.tasks for row in task.rows]


if __name__ == "__main__":
    sys.exit(main())

"""Prints, in one run, how many times as fast as others the foundation, the broker and the Spark side are.

python -m bench                 everything: two minutes, and a quarter of an hour for Spark
python -m bench codec append    only these parts
python -m bench spark           only Spark, which has a page of its own; `--quick` tries it out
python -m bench --write         also writes docs/benchmarks/foundation.md and docs/benchmarks/spark.md
python -m bench guard           a minute: whether the main paths still work, and are not far slower than they were
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bench import append, building, codec, columns, fetching, in_process, network, page, transactions
from bench.turns import Comparison, Row, compare
from ottla.records import kernel
from scripts import machine

RUNNING = {
    "network": network.comparisons,
    "fetching": fetching.comparisons,
    "in-process": in_process.comparisons,
    "transactions": transactions.comparisons,
}
"""Parts that need something to run while they are measured."""
PARTS = {"codec": codec.comparisons, "columns": columns.comparisons, "building": building.comparisons}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "foundation.md"
SPARK = "spark"
PEERS = ("kio", "kafka-python", "aiokafka", "pyarrow", "msgspec", "fastcrc", "confluent-kafka")


def main() -> int:
    """Measure what was asked for, print the page, and store it if told to."""
    if sys.argv[1:2] == ["guard"]:
        # Here, so that what it starts is not loaded for the others.
        from bench import guard

        return guard.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ours against others, in turns.")
    parts = [*PARTS, "append", *RUNNING, SPARK]
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which parts; all when left out")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side, at least 3")
    parser.add_argument("--turn-ms", type=int, default=100, help="how long one turn takes, about")
    parser.add_argument("--directory", type=Path, default=PAGE.parents[2] / ".cache" / "bench", help="a real disk")
    parser.add_argument("--write", action="store_true", help="store the pages in docs/benchmarks")
    parser.add_argument(
        "--quick", action="store_true", help="Spark: small counts, which say nothing and are not stored"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=("sources", "sinks", "batches", "latency"),
        help="Spark: measure these again; the page has the others as they were",
    )
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("fewer than 3 rounds say nothing")
    chosen = options.parts or parts
    if chosen != [SPARK]:
        measure_foundation([part for part in chosen if part != SPARK], options)
    if SPARK in chosen and not measure_spark(options):
        # Who asked for everything gets what can be had.
        return 1 if SPARK in options.parts else 0
    return 0


def measure_spark(options: argparse.Namespace) -> bool:
    """The Spark side, if it can be measured here."""
    # Here, so that the rest needs no Spark.
    from bench import spark

    rounds = 1 if options.quick else options.rounds
    return spark.run(options.directory, options.only, rounds=rounds, is_quick=options.quick, write=options.write)


def measure_foundation(chosen: list[str], options: argparse.Namespace) -> None:
    """Everything else."""
    rows: list[Row] = []
    with append.workplace(options.directory) as directory, ExitStack() as running:
        comparisons: list[Comparison] = []
        for part in chosen:
            if part in RUNNING:
                comparisons += running.enter_context(RUNNING[part](directory))
            else:
                comparisons += append.comparisons(directory) if part == "append" else PARTS[part]()
        for comparison in comparisons:
            print(f"measuring {comparison.what}, {comparison.settings} ...", file=sys.stderr, flush=True)
            rows += compare(comparison, rounds=options.rounds, turn_ms=options.turn_ms)
        notes = [append.describe_disk(directory), f"compiled kernel: {'yes' if kernel.AVAILABLE else 'no'}"]

    text = page.render(
        rows,
        machine=machine.describe(),
        versions=machine.versions(*PEERS),
        taken=datetime.now(UTC),
        rounds=options.rounds,
        notes=notes,
    )
    print(text)
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
        print(f"Written: docs/benchmarks/{PAGE.name}")


if __name__ == "__main__":
    sys.exit(main())

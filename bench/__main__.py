"""Prints, in one run, how many times as fast as others the foundation and the broker are.

python -m bench                 every row, a minute or two
python -m bench codec append    only these parts
python -m bench --write         also writes docs/benchmarks/foundation.md
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
PEERS = ("kio", "kafka-python", "aiokafka", "pyarrow", "msgspec", "fastcrc", "confluent-kafka")


def main() -> int:
    """Measure what was asked for, print the page, and store it if told to."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ours against others, in turns.")
    parts = [*PARTS, "append", *RUNNING]
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which parts; all when left out")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side, at least 3")
    parser.add_argument("--turn-ms", type=int, default=100, help="how long one turn takes, about")
    parser.add_argument("--directory", type=Path, default=PAGE.parents[2] / ".cache" / "bench", help="a real disk")
    parser.add_argument("--write", action="store_true", help=f"store the page in {PAGE.name}")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("fewer than 3 rounds say nothing")

    rows: list[Row] = []
    chosen = options.parts or parts
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
    return 0


if __name__ == "__main__":
    sys.exit(main())

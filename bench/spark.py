"""The Spark side against Spark's own connector: which measurements there are, in what order, with what counts.

python -m bench spark                        about a quarter of an hour, on a machine that does nothing else
python -m bench spark --quick                every path once, with counts that say nothing, in about two minutes
python -m bench spark --write                also writes docs/benchmarks/spark.md and the picture beside it
python -m bench spark --only latency --write measures one part again; the page has the others as they were kept
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench import append, spark_batches, spark_latency, spark_throughput
from bench.spark_bars import svg
from bench.spark_kept import Part, keep, kept
from bench.spark_page import PICTURE, Findings
from bench.spark_rows import Judgement, Row
from bench.spark_stage import BATCH_RECORDS, KEY_BYTES, KEYS, VALUE_BYTES, Stage, stage
from ottla.records import kernel
from ottla.spark.sessions import SparkMissing
from scripts import machine
from tests.peers import kafka, spark_connector

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "spark.md"


class Counts(NamedTuple):
    """How much of everything."""

    read: int
    written: int
    batches: int
    arrivals: int


FULL = Counts(read=2_000_000, written=1_000_000, batches=80, arrivals=100)
QUICK = Counts(read=60_000, written=30_000, batches=8, arrivals=30)
KEPT = Path(__file__).resolve().parent.parent / ".cache" / "bench-spark"
Measure = Callable[[Stage, Counts, int], list[Row]]
PARTS: dict[str, Measure] = {
    "sources": lambda place, counts, rounds: spark_throughput.sources(place, records=counts.read, rounds=rounds),
    "sinks": lambda place, counts, rounds: spark_throughput.sinks(place, records=counts.written, rounds=rounds),
    "batches": lambda place, counts, rounds: spark_batches.measure(place, batches=counts.batches, rounds=rounds),
    "latency": lambda place, counts, rounds: spark_latency.measure(place, records=counts.arrivals, rounds=rounds),
}
"""In the order of the page."""
JUDGES: dict[str, Callable[[list[Row]], list[Judgement]]] = {
    "sources": spark_throughput.judgements_of_sources,
    "sinks": spark_throughput.judgements_of_sinks,
    "batches": spark_batches.judgements,
    "latency": spark_latency.judgements,
}


def measure(directory: Path, only: Sequence[str], *, rounds: int, is_quick: bool) -> dict[str, Part]:
    """These parts, on one stage; each is kept as soon as it is there, unless the counts are for trying out."""
    found = {}
    with stage(directory) as place:
        for name in PARTS:
            if name in only:
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                rows = PARTS[name](place, QUICK if is_quick else FULL, rounds)
                found[name] = Part(datetime.now(UTC), rows)
                if not is_quick:
                    keep(KEPT, name, found[name])
    return found


def run(parent: Path, only: Sequence[str], *, rounds: int, is_quick: bool, write: bool) -> bool:
    """Measure, print the page, and store it if told to; False where Java or the connector is missing."""
    try:
        with append.workplace(parent) as directory:
            notes = [machine.describe(), _versions(), append.describe_disk(directory)]
            found = measure(directory, only or list(PARTS), rounds=rounds, is_quick=is_quick)
    except (SparkMissing, kafka.PeerMissing) as reason:
        print(f"The Spark side is not measured: {reason}", file=sys.stderr)
        return False
    if not is_quick:
        found = kept(KEPT, tuple(PARTS))
    notes.append(f"compiled kernel: {'yes' if kernel.AVAILABLE else 'no'}")
    judged = [judgement for name, part in found.items() for judgement in JUDGES[name](part.rows)]
    findings = Findings({name: part.rows for name, part in found.items()}, judged)
    text = findings.page(
        taken={name: part.taken for name, part in found.items()},
        counts=_describe(QUICK if is_quick else FULL),
        notes=notes,
    )
    print(text)
    if is_quick:
        print("These counts are for trying the benchmark out: the figures mean nothing.")
    elif write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
        PAGE.with_name(PICTURE).write_text(svg(findings.panels()), encoding="utf-8")
        print(f"Written: docs/benchmarks/{PAGE.name} and {PICTURE}")
    return True


def _describe(counts: Counts) -> list[str]:
    partitions = spark_throughput.PARTITIONS
    tuned = ", ".join(f"{name}={value}" for name, value in spark_throughput.TUNED.options.items())
    sink = ", ".join(f"{name}={value}" for name, value in spark_throughput.TUNED_SINK.options.items())
    return [
        f"read: {counts.read:,} records in {partitions} partitions, keys of {KEY_BYTES} B ({KEYS:,} different ones), "
        f"values of {VALUE_BYTES} B, {BATCH_RECORDS} in a record batch, not compressed",
        f"written: {counts.written:,} rows of that kind from a table in memory to {partitions} partitions, acks=all",
        f"micro-batches: {counts.batches} of each query; latency: {counts.arrivals} records of each query",
        f"the connector tuned: {tuned}; as a sink: {sink}",
    ]


def _versions() -> str:
    java = subprocess.run([str(kafka.java()), "-version"], capture_output=True, text=True, check=True)
    name = java.stderr.splitlines()[0].replace('"', "")
    return f"{machine.versions('pyspark', 'pyarrow')}, its connector {spark_connector.CONNECTOR_VERSION}, {name}"

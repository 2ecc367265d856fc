"""Runs every test at full counts and writes what came of it to docs/test-long.md.

Arguments are passed on to pytest. The file is written only when the whole suite ran, so that a part of
it never passes for the whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import machine  # noqa: E402  (the path has to be set first)

COUNTS = {
    "BROKER_KILL_ROUNDS": "10",
    "CHURN_ROUNDS": "20",
    "COPY_COPIER_KILLS": "10",
    "COPY_RECORDS": "100000",
    "COPY_SERVER_KILLS": "10",
    "COPY_ZOMBIES": "10",
    "CRASH_SEEDS": "3000",
    "FUZZ_CASES": "1000000",
    "GROUP_SEEDS": "3000",
    "HYPOTHESIS_PROFILE": "long",
    "INTERLEAVINGS": "40",
    "KILL_ROUNDS": "50",
    "LATE_ROUNDS": "1000",
    "PIPELINE_DRIVER_KILLS": "10",
    "POWER_SEEDS": "1500",
    "RACE_ROUNDS": "20",
    "RACE_TRANSACTIONS": "100",
    "RANDOM_KILL_ROUNDS": "50",
    "RANDOM_REQUESTS": "200",
    "REPEAT_SEEDS": "300",
    "SERVER_FUZZ_CONNECTIONS": "20000",
    "SPARK_BROKER_KILLS": "5",
    "SPARK_DRIVER_KILLS": "10",
    "SPARK_FROZEN_RECORDS": "200000",
    "SPARK_KILL_BATCHES": "10",
    "SPARK_KILL_RECORDS": "200000",
    "TRANSACTION_SEEDS": "3000",
}
RAN_TO_THE_END = (0, 1)
"""What pytest ends with when every test ran, and passed or failed."""
PEERS = ("kio", "confluent-kafka", "kafka-python", "aiokafka", "pyarrow", "hypothesis", "pytest")


def main(arguments: list[str]) -> int:
    """Run, show, write; the exit code is pytest's."""
    counts = {name: os.environ.get(name, default) for name, default in COUNTS.items()}
    with tempfile.TemporaryDirectory() as scratch:
        results, report = Path(scratch, "results.xml"), Path(scratch, "report.txt")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", f"--report-to={report}", *arguments]
        started = datetime.now(UTC)
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, **counts}, check=False).returncode
        if any(argument.startswith("tests") or argument in {"-k", "-m"} for argument in arguments):
            print("Only a part of the suite ran, so docs/test-long.md is left as it was.")
        elif code not in RAN_TO_THE_END:
            print("The run was cut off, so docs/test-long.md is left as it was.")
        elif results.exists():
            said = report.read_text(encoding="utf-8") if report.exists() else ""
            text = summary(started, counts=counts, results=ElementTree.parse(results), report=said)
            (ROOT / "docs" / "test-long.md").write_text(text, encoding="utf-8")
            print("Written: docs/test-long.md")
    return code


def summary(
    started: datetime, *, counts: dict[str, str], results: ElementTree.ElementTree[ElementTree.Element], report: str
) -> str:
    """The page, in Markdown."""
    cases = list(results.iter("testcase"))
    minutes = (datetime.now(UTC) - started).total_seconds() / 60
    lines = [
        "# The last long run",
        "",
        f"Made by `make test-long` on {started:%d %B %Y}, in {minutes:.0f} minutes.",
        "",
        f"- {machine.describe()}",
        f"- {machine.versions(*PEERS)}",
        f"- {', '.join(f'{name}={value}' for name, value in counts.items())}",
        "",
        "| part | passed | failed | skipped | seconds |",
        "|---|---:|---:|---:|---:|",
    ]
    tables: dict[str, Counter[str]] = {}
    for case in cases:
        part = "/".join(case.get("classname", "").split(".")[1:2]) or "other"
        tables.setdefault(part, Counter())[outcome(case)] += 1
        tables[part]["milliseconds"] += int(float(case.get("time", "0")) * 1000)
    for part, table in sorted(tables.items()):
        seconds = table["milliseconds"] / 1000
        lines.append(f"| {part} | {table['passed']:,} | {table['failed']} | {table['skipped']} | {seconds:,.0f} |")
    if report:
        lines += ["", "```", report.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def outcome(case: ElementTree.Element) -> str:
    """How one test ended."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Does the broker still do its work, and about as fast as before? `python -m bench.guard` says so in under a minute.

    python -m bench.guard             fails when a path is broken, or slower than half of what is stored
    python -m bench.guard append      only these paths
    python -m bench.guard --write     measures all paths and stores what it finds

What is compared are ratios: our work against the bare work, in turns, in the same run on the same machine. They are
stored in `guard.json`. Times are not compared: a slow machine is slow for both. A path that refuses, loses or answers
wrongly fails whatever its speed, and so does one that has no stored ratio or was not measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.append import file_system, workplace
from bench.guard_client import BrokenPath
from bench.guard_paths import PATHS, SETTINGS, Effort, Serve, measure, serve
from scripts import machine

STORED = Path(__file__).resolve().with_name("guard.json")
SHARE_MIN = 0.5
"""Of the stored ratio: below it, it is no noise any more."""
ATTEMPTS_MAX = 5
"""A busy neighbour is not there every time; a slow path is."""
WORKPLACE = STORED.parents[1] / ".cache" / "bench"


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one path."""

    path: str
    complaint: str
    """Empty when all is well."""
    ratio: float | None = None
    stored: float | None = None


def judge(path: str, ratio: float, stored: float | None) -> Finding:
    """Whether a path that does its work does it fast enough."""
    if stored is None:
        return Finding(path, "has no stored ratio; measure and store it with --write", ratio)
    if not _is_ratio(stored):
        return Finding(path, f"has {stored} as its stored ratio, which is none", ratio, stored)
    if not _is_ratio(ratio):
        return Finding(path, f"has {ratio} as its ratio, which is none", ratio, stored)
    if ratio < stored * SHARE_MIN:
        return Finding(path, f"is below {SHARE_MIN:.0%} of what is stored", ratio, stored)
    return Finding(path, "", ratio, stored)


def _is_ratio(value: float) -> bool:
    return math.isfinite(value) and value > 0


def watch(
    paths: Sequence[str],
    stored: Mapping[str, float],
    directory: Path,
    *,
    effort: Effort,
    serve: Serve = serve,
    attempts_max: int = ATTEMPTS_MAX,
) -> list[Finding]:
    """Measure the paths; those that seem slow again, and the best time counts. A broken path is broken at once."""
    if not paths:
        raise ValueError("a guard that watches nothing finds nothing")
    findings = []
    for path in paths:
        finding = _look(path, stored.get(path), directory / f"{path}-1", effort, serve)
        for attempt in range(2, attempts_max + 1):
            if not finding.complaint or finding.ratio is None or finding.stored is None:
                break
            again = _look(path, stored.get(path), directory / f"{path}-{attempt}", effort, serve)
            if again.ratio is None or again.ratio > finding.ratio:
                finding = again
        findings.append(finding)
        print(line(finding), file=sys.stderr, flush=True)
    return findings


def _look(path: str, stored: float | None, directory: Path, effort: Effort, serve: Serve) -> Finding:
    try:
        ratio = measure(path, directory, serve=serve, effort=effort)
    except BrokenPath as broken:
        return Finding(path, f"is BROKEN: {broken}", None, stored)
    return judge(path, ratio, stored)


def line(finding: Finding) -> str:
    """One path, for people."""
    ratio = "-" if finding.ratio is None else f"{finding.ratio:.3f}"
    stored = "-" if finding.stored is None else f"{finding.stored:.3f}"
    return f"{finding.path:16} {ratio:>7} of the bare side, stored {stored:>7}  {finding.complaint or 'fine'}"


def read(text: str) -> dict[str, float]:
    """The ratios of a stored file."""
    ratios = json.loads(text)["ratios"]
    return {str(path): float(kept["ratio"]) for path, kept in ratios.items()}


def render(ratios: Mapping[str, float], *, taken: datetime, where: str) -> str:
    """The file to store."""
    kept = {path: {"ratio": round(ratio, 4), "what": SETTINGS[path]} for path, ratio in ratios.items()}
    return json.dumps({"taken": f"{taken:%Y-%m-%d}", "machine": where, "ratios": kept}, indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, and say it by the exit code too."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description="Ratios against stored ones.")
    parser.add_argument("paths", nargs="*", choices=[*PATHS, []], help="which paths; all when left out")
    parser.add_argument("--write", action="store_true", help="store the ratios instead of comparing them")
    parser.add_argument("--rounds", type=int, default=Effort().rounds, help="turns of each side")
    parser.add_argument("--directory", type=Path, default=WORKPLACE, help="a real disk")
    options = parser.parse_args(arguments)
    paths, effort = options.paths or list(PATHS), Effort(rounds=options.rounds)
    with workplace(options.directory) as directory:
        if file_system(directory) == "tmpfs":
            if options.write:
                parser.error(f"{directory} lies in memory (tmpfs); name a directory on a real disk with --directory")
            print(f"guard: {directory} lies in memory, where a write costs less than the ratios were taken with")
        if options.write:
            return _store(paths, directory, effort)
        stored = read(STORED.read_text(encoding="utf-8"))
        findings = watch(paths, stored, directory, effort=effort)
    bad = [finding for finding in findings if finding.complaint]
    for finding in bad:
        print(f"guard: {finding.path} {finding.complaint}", file=sys.stderr)
    print(f"guard: {len(findings) - len(bad)} of {len(findings)} paths are fine")
    return 1 if bad else 0


def _store(paths: Sequence[str], directory: Path, effort: Effort) -> int:
    ratios = read(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for path in paths:
        try:
            ratios[path] = measure(path, directory / path, effort=effort)
        except BrokenPath as broken:
            print(f"guard: {path} is BROKEN, nothing is stored: {broken}", file=sys.stderr)
            return 1
        print(f"{path:16} {ratios[path]:7.3f}", file=sys.stderr, flush=True)
    ordered = {path: ratios[path] for path in PATHS if path in ratios}
    text = render(ordered, taken=datetime.now(UTC), where=machine.describe())
    STORED.write_text(text, encoding="utf-8")
    print(f"Written: bench/{STORED.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

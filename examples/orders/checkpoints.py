"""How far the queries of a pipeline have got, as their checkpoints tell: what is committed there is done for good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

Offsets = Mapping[int, int]
"""Partition to the offset of the first record that is not dealt with yet."""


def committed(checkpoints: Path, topic: str) -> dict[str, Offsets]:
    """For each query that reads the topic, how far it has got; a query without a finished batch is at the start."""
    found = {}
    for query in sorted(checkpoints.glob("*/offsets")):
        batch = _newest(query.parent / "commits")
        read = {} if batch is None else _offsets(query / str(batch), topic)
        if read is not None:
            found[query.parent.name] = read
    return found


def _newest(commits: Path) -> int | None:
    # Beside the batches there are files that are being written, and checksums.
    return max((int(path.name) for path in commits.glob("*") if path.name.isdigit()), default=None)


def _offsets(file: Path, topic: str) -> Offsets | None:
    """The offsets in a file of Spark's: a version, a line about the batch, a line for each source."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        # Spark removes old batches; the next look finds a newer one.
        return {}
    for line in lines:
        try:
            positions = json.loads(line)
        except ValueError:
            continue
        if isinstance(positions, dict) and isinstance(positions.get(topic), dict):
            return {int(partition): int(offset) for partition, offset in positions[topic].items()}
    return None

"""What is told of a pipeline while it runs: the records of `__pipeline_progress` and `__pipeline_control`. Pure.

A record of `__pipeline_progress` has the key `<pipeline>/<query>` and tells of one query, or the key `<pipeline>` and
tells of the whole run. A record of `__pipeline_control` has the key `<pipeline>` and asks its runner for something.
All values are JSON objects. Readers pass over members that they do not know, and over records that they cannot read.
Knows how Spark tells of its batches, but neither Spark nor a broker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast

import msgspec

PROGRESS_TOPIC = "__pipeline_progress"
CONTROL_TOPIC = "__pipeline_control"

State = Literal["starting", "running", "restarting", "stopping", "failed", "stopped"]
ENDED = frozenset({"failed", "stopped"})
"""The states from which nothing leads on."""

Offsets = Mapping[str, Mapping[str, int]]
"""The end of each partition of each topic, as our source and Spark's own Kafka connector tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """How one query stands."""

    pipeline: str
    query: str
    run: str
    """The id of the run; another one each time that the pipeline is started."""
    state: State
    at: str
    """When this was so, in UTC: `2026-01-31T12:00:00.000Z`."""
    batch_id: int | None = None
    """The last batch that is done."""
    rows_in: int = 0
    """Of the last batch, as are the next four."""
    rows_out: int | None = None
    """None: Spark does not count them for this kind of sink."""
    rows_in_per_s: float = 0.0
    rows_out_per_s: float | None = None
    batch_ms: int = 0
    rows_in_total: int = 0
    """Of this run, as is the next one."""
    rows_out_total: int | None = None
    lag: int | None = None
    """Records of its topics that the query has not read yet; None: it reads none, or did not say."""
    watermark: str | None = None
    restarts: int = 0
    error: str | None = None
    """Why it failed the last time, in one line."""

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.query}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How a whole run stands; told every few seconds, so that its silence tells something too."""

    pipeline: str
    run: str
    state: State
    at: str
    place: str = ""
    """The machine that the run is on."""
    process: int = 0
    """Its process there."""
    queries: tuple[str, ...] = ()
    error: str | None = None

    @property
    def key(self) -> str:
        return self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is asked of the runner of a pipeline."""

    pipeline: str
    do: Literal["stop"]
    at: str
    run: str | None = None
    """None: whichever run there is."""

    @property
    def key(self) -> str:
        return self.pipeline


# --- as records ---------------------------------------------------------------------------------------


def encoded(told: QueryProgress | RunProgress | Command) -> bytes:
    """The value of a record."""
    return json.dumps(asdict(told), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def decoded(key: bytes | None, value: bytes | None) -> QueryProgress | RunProgress | None:
    """What a record of the progress tells; None: nothing that can be understood."""
    document = _document(value)
    if document is None:
        return None
    is_query = "query" in document
    made = _made(QueryProgress, document) if is_query else _made(RunProgress, document)
    # JSON can hold halves of characters, which have no bytes of their own.
    return made if made is not None and made.key.encode(errors="replace") == key else None


def decoded_command(value: bytes | None) -> Command | None:
    """What a record of the control topic asks for; None: nothing that is known."""
    document = _document(value)
    return None if document is None else _made(Command, document)


def _document(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


T = TypeVar("T")


def _made(kind: type[T], document: Mapping[str, Any]) -> T | None:
    """Anybody can write to these topics: what has a member of another type is not understood either."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        return None


def moment(now_ms: int) -> str:
    """A time as these records write it."""
    at = datetime.fromtimestamp(now_ms // 1_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{now_ms % 1_000:03}Z"


def moment_ms(text: str) -> int | None:
    """The reverse; None: it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round(at.timestamp() * 1_000) if at.tzinfo is not None else None


# --- as Spark tells it --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """One StreamingQueryProgress, reduced to what we tell."""

    at: str
    """When the batch began. Later times are greater texts."""
    batch_id: int
    is_batch: bool
    """False: Spark only told that there was nothing to do. `batch_id` is then the batch that is yet to come."""
    rows_in: int
    rows_out: int | None
    rows_in_per_s: float
    rows_out_per_s: float | None
    batch_ms: int
    lag: int | None
    watermark: str | None
    ends: Offsets
    """How far the topics are read, once this batch is done."""


def figures(progress: Mapping[str, Any], rows_out_of: Callable[[int], int | None] | None = None) -> BatchFigures:
    """From Spark's own account; `rows_out_of` is asked about batches whose rows Spark does not count."""
    sources = [source for source in progress.get("sources") or () if source]
    durations = progress.get("durationMs") or {}
    rows_in = _count(progress.get("numInputRows"), sum(_count(each.get("numInputRows"), 0) for each in sources))
    in_per_s = _rate(sources, progress, "inputRowsPerSecond") or _rate(sources, progress, "processedRowsPerSecond")
    batch_id = int(progress.get("batchId") or 0)
    rows_out = _rows_out(progress)
    if rows_out is None and rows_out_of is not None:
        rows_out = rows_out_of(batch_id)
    ends = _merged(_offsets(each.get("endOffset")) for each in sources)
    latest = _merged(_offsets(each.get("latestOffset")) for each in sources)
    return BatchFigures(
        at=str(progress.get("timestamp") or ""),
        batch_id=batch_id,
        is_batch="addBatch" in durations,
        rows_in=rows_in,
        rows_out=rows_out,
        rows_in_per_s=round(in_per_s, 1),
        rows_out_per_s=None if rows_out is None else round(in_per_s * rows_out / rows_in, 1) if rows_in else 0.0,
        batch_ms=int(durations.get("triggerExecution") or progress.get("batchDuration") or 0),
        lag=lag(ends=ends, latest=latest),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        ends=ends,
    )


def lag(*, ends: Offsets, latest: Offsets) -> int | None:
    """How many records there are that were not read; None where no topic is read, or its end is not known."""
    if not latest:
        return None
    behind = 0
    for topic, partitions in latest.items():
        read = ends.get(topic, {})
        behind += sum(max(0, end - read.get(partition, 0)) for partition, end in partitions.items())
    return behind


def _rows_out(progress: Mapping[str, Any]) -> int | None:
    # Spark says -1 for a sink that does not count.
    told = (progress.get("sink") or {}).get("numOutputRows")
    return None if told is None or told < 0 else int(told)


def _count(told: Any, otherwise: int) -> int:
    return otherwise if told is None else int(told)


def _rate(sources: list[Mapping[str, Any]], progress: Mapping[str, Any], name: str) -> float:
    told = progress.get(name)
    rates = [each.get(name) for each in sources] if told is None else [told]
    # The first batch has nothing to be compared with, which Spark tells as no number or as infinity.
    return sum((float(rate) for rate in rates if rate is not None and math.isfinite(rate)), 0.0)


def _offsets(told: Any) -> Offsets:
    """Ends by topic and partition; none where a source counts in another way."""
    try:
        found = json.loads(told) if isinstance(told, str) else told
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    topics = {topic: ends for topic, ends in found.items() if isinstance(ends, dict) and ends}
    if any(not isinstance(end, int) for ends in topics.values() for end in ends.values()):
        return {}
    return cast(Offsets, topics)


def _merged(found: Iterable[Offsets]) -> Offsets:
    """Of sources that read the same topic the one that is behind counts."""
    merged: dict[str, dict[str, int]] = {}
    for offsets in found:
        for topic, ends in offsets.items():
            known = merged.setdefault(topic, {})
            for partition, end in ends.items():
                known[partition] = min(end, known.get(partition, end))
    return merged

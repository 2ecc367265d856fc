"""The journal of a copy into a topic with another number of partitions: what was planned, and what is done. Pure.

A step is noted before it is taken, with where the new topic ended then. So a run that was interrupted knows which step
was under way, and what of the new topic belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ottla.pipelines.transfer.errors import TransferRefused
from ottla.pipelines.transfer.steps import Span

JOURNAL = "_ottla_repartition.json"
FORMAT = "ottla-repartition"
VERSION = 1
By = Literal["key", "round-robin"]
"""How a record's new partition is chosen."""


class CopyStep(msgspec.Struct, frozen=True):
    """One step."""

    spans: tuple[Span, ...]
    new_start: Mapping[str, int]
    """Where each new partition ended before it; JSON has texts for keys."""
    rows: int | None = None
    """None: it is under way."""


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """A copy."""

    format: str = FORMAT
    version: int = VERSION
    topic: str
    topic_id: str
    new_topic: str
    new_topic_id: str
    partition_count: int
    by: By
    isolation: str
    steps: tuple[CopyStep, ...] = ()

    @property
    def rows(self) -> int:
        return sum(step.rows or 0 for step in self.steps)

    @property
    def copied(self) -> dict[int, int]:
        """How far each partition of the old topic is copied, or under way."""
        return {span.partition: span.end for step in self.steps for span in step.spans}

    @property
    def under_way(self) -> int | None:
        """The step that was begun and is not done."""
        return len(self.steps) - 1 if self.steps and self.steps[-1].rows is None else None

    def begun(self, spans: Sequence[Span], new_start: Mapping[int, int]) -> Journal:
        """With one more step."""
        step = CopyStep(tuple(spans), {str(partition): offset for partition, offset in sorted(new_start.items())})
        return msgspec.structs.replace(self, steps=(*self.steps, step))

    def narrowed(self, spans: Sequence[Span]) -> Journal:
        """With less to be done in the last step."""
        last = msgspec.structs.replace(self.steps[-1], spans=tuple(spans))
        return msgspec.structs.replace(self, steps=(*self.steps[:-1], last))

    def finished(self, rows: int) -> Journal:
        """With the last step done."""
        last = msgspec.structs.replace(self.steps[-1], rows=rows)
        return msgspec.structs.replace(self, steps=(*self.steps[:-1], last))


def encoded(journal: Journal) -> bytes:
    return msgspec.json.format(msgspec.json.encode(journal), indent=1) + b"\n"


def decoded(document: bytes, *, place: str) -> Journal:
    """TransferRefused for what is no journal, or one of a later version."""
    try:
        told = msgspec.json.decode(document)
        if not isinstance(told, dict) or (told.get("format"), told.get("version")) != (FORMAT, VERSION):
            raise TransferRefused(f"{place}: this is no journal of a copy that this program can go on with")
        return msgspec.convert(told, Journal)
    except msgspec.MsgspecError as e:
        raise TransferRefused(
            f"{place}: the journal cannot be read: {e}. Delete the new topic and the directory, and begin anew"
        ) from e

"""The journal of a copy into a topic with another number of partitions: what was planned, and what is done. Pure.

A step is noted before it is taken, with where the new topic ended then. So a run that was interrupted knows which step
was under way, and what of the new topic belongs to it. Of the steps before it only their sums are kept: a copy that
follows its topic for weeks takes a great many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ottla.pipelines.transfer.errors import TransferRefused
from ottla.pipelines.transfer.steps import Span

JOURNAL = "_ottla_repartition.json"
FORMAT = "ottla-repartition"
VERSION = 2
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
    steps_before: int = 0
    """How many steps were taken before the last one, and what they came to."""
    rows_before: int = 0
    copied_before: Mapping[str, int] = {}
    last: CopyStep | None = None

    @property
    def rows(self) -> int:
        return self.rows_before + (self.last.rows or 0 if self.last is not None else 0)

    @property
    def copied(self) -> dict[int, int]:
        """How far each partition of the old topic is copied, or under way."""
        before = {int(partition): end for partition, end in self.copied_before.items()}
        return before | {span.partition: span.end for span in (self.last.spans if self.last is not None else ())}

    @property
    def next_number(self) -> int:
        """Of the step after the last one."""
        return self.steps_before + (self.last is not None)

    @property
    def under_way(self) -> int | None:
        """The number of the step that was begun and is not done."""
        return self.steps_before if self.last is not None and self.last.rows is None else None

    def begun(self, spans: Sequence[Span], new_start: Mapping[int, int]) -> Journal:
        """With one more step."""
        assert self.under_way is None, "one step is taken after the other"
        return msgspec.structs.replace(
            self,
            steps_before=self.next_number,
            rows_before=self.rows,
            copied_before=_texts(self.copied),
            last=CopyStep(tuple(spans), _texts(new_start)),
        )

    def finished(self, rows: int) -> Journal:
        """With the last step done."""
        assert self.last is not None, "a step was begun"
        return msgspec.structs.replace(self, last=msgspec.structs.replace(self.last, rows=rows))


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


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

"""The documents of an export: what it holds, and how far it is. Pure.

`_ottla_export.json` is written last: a directory without it does not hold a whole export. Until then there is
`_ottla_export.partial.json` with the plan and the steps that are done. Spark passes over both, for their underscore.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from ottla.pipelines.transfer.errors import TransferRefused
from ottla.pipelines.transfer.steps import Span, total

MANIFEST = "_ottla_export.json"
PARTIAL = "_ottla_export.partial.json"
FORMAT = "ottla-export"
VERSION = 1


class Step(msgspec.Struct, frozen=True):
    """The offsets of one step, and what was written of them: None as long as it is not done."""

    spans: tuple[Span, ...]
    rows: int | None = None
    checksum: int | None = None
    """All rows' checksums xor-ed, as a signed number of 64 bits."""


class PartitionTotals(msgspec.Struct, frozen=True):
    """What there is of one partition."""

    partition: int
    rows: int
    bytes: int
    """Of keys and values."""
    checksum: int
    first_timestamp_ms: int
    last_timestamp_ms: int


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """An export, whole or in the making."""

    format: str = FORMAT
    version: int = VERSION
    id: str
    """What it is known by: no other export has it."""
    asked: Mapping[str, str | None]
    """The options that decide what is exported; one that is continued must have the same."""
    topic: str
    topic_id: str
    configs: Mapping[str, str]
    partition_count: int
    """Of the topic; not all need have been exported."""
    created_ms: int
    steps: tuple[Step, ...]
    partitions: tuple[PartitionTotals, ...] | None = None
    """None: it is not whole."""

    @property
    def rows(self) -> int:
        return sum(step.rows or 0 for step in self.steps)

    @property
    def offsets(self) -> int:
        return sum(total(step.spans) for step in self.steps)

    @property
    def done(self) -> int:
        """Steps that are done; they are taken one after the other."""
        return next((number for number, step in enumerate(self.steps) if step.rows is None), len(self.steps))

    @property
    def spans(self) -> tuple[Span, ...]:
        """All offsets of each partition."""
        found: dict[int, Span] = {}
        for step in self.steps:
            for span in step.spans:
                first = found.setdefault(span.partition, span)
                found[span.partition] = Span(span.partition, first.start, span.end)
        return tuple(sorted(found.values()))

    def with_step(self, number: int, *, rows: int, checksum: int) -> Export:
        """The same, one step further."""
        done = Step(self.steps[number].spans, rows, checksum)
        return msgspec.structs.replace(self, steps=(*self.steps[:number], done, *self.steps[number + 1 :]))


def new_id(*parts: object) -> str:
    """A short name for what these parts say together."""
    return sha256(msgspec.json.encode([str(part) for part in parts])).hexdigest()[:24]


def encoded(export: Export) -> bytes:
    return msgspec.json.format(msgspec.json.encode(export), indent=1) + b"\n"


def decoded(document: bytes, *, place: str) -> Export:
    """TransferRefused for what is no manifest, or one of a later version."""
    try:
        told = msgspec.json.decode(document)
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise TransferRefused(f"{place}: this is no manifest of an export")
        if told.get("version") != VERSION:
            raise TransferRefused(
                f"{place}: the export is of version {told.get('version')}, and this program reads version {VERSION}. "
                "Use the version of Ottla that made it, or a later one"
            )
        return msgspec.convert(told, Export)
    except msgspec.MsgspecError as e:
        raise TransferRefused(f"{place}: the manifest cannot be read: {e}. Export the topic again") from e

"""Where `ottla groups reset` puts a group: what was asked for, held against what the partitions have.

Texts in, a plan out; asks an admin for offsets and changes nothing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failures import MISUSED, CommandFailed
from ottla.cli.moments import AtOffset, AtTime, Beginning, End, Last, Moment, parse_moment

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.client.offsets import OffsetFound
    from ottla.client.values import TopicPartition

_DURATION = re.compile(r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.[0-9]+)?S)?)?")
_SYNONYMS = {"earliest": "beginning", "latest": "end"}
_SCOPE = re.compile(r"(?P<topic>[^:]+):(?P<partitions>[0-9]+(?:,[0-9]+)*)")


class Step(NamedTuple):
    """One partition of a reset."""

    topic: str
    partition: int
    before: int | None
    after: int
    clamped_from: int | None
    """What was asked for, where the partition does not have it."""


def parse_target(text: str, *, now_ms: int) -> Moment:
    """Where to, as people write it; ValueError with what can be written."""
    found = _DURATION.fullmatch(text)
    if found and any(found.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        ago_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000
        return AtTime(max(0, now_ms - ago_ms))
    try:
        return parse_moment(_SYNONYMS.get(text, text), now_ms=now_ms)
    except ValueError as error:
        raise ValueError(f"{error}, or a duration (PT1H30M); earliest and latest work too") from None


def parse_plan(lines: Iterable[str], group: str) -> dict[tuple[str, int], int]:
    """Offsets from CSV as Kafka's tool writes it: topic,partition,offset, or with the group in front."""
    found: dict[tuple[str, int], int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == 4 and cells[0] != group:
            continue
        topic, partition, offset = cells[-3:] if len(cells) in (3, 4) else ("", "", "")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise CommandFailed(f"line {number}: {','.join(row)!r} is not topic,partition,offset", MISUSED)
        found[topic, int(partition)] = int(offset)
    if not found:
        raise CommandFailed(f"there is no topic,partition,offset for group {group} in it", MISUSED)
    return found


def partitions_in(
    admin: Admin, scopes: Sequence[str], committed: Mapping[TopicPartition, object], group: str
) -> list[tuple[str, int]]:
    """The partitions that are meant: those named, or all in which the group has a position."""
    from ottla.client.errors import PartitionNotFound, TopicNotFound

    if not scopes:
        if not committed:
            raise CommandFailed(f"group {group} has no position anywhere; name topics with --topic")
        counts = {topic: admin.partition_count(topic) or 0 for topic in {key.topic for key in committed}}
        # What is left of a topic that was deleted goes by itself.
        return sorted((topic, partition) for topic, partition in committed if partition < counts[topic])
    wanted: dict[tuple[str, int], None] = {}
    for scope in scopes:
        found = _SCOPE.fullmatch(scope)
        topic = found["topic"] if found else scope
        count = admin.partition_count(topic)
        if count is None:
            raise TopicNotFound(topic)
        numbers = [int(text) for text in found["partitions"].split(",")] if found else range(count)
        for number in numbers:
            if number >= count:
                raise PartitionNotFound(topic, number)
            wanted[topic, number] = None
    return list(wanted)


def planned(
    admin: Admin,
    partitions: Sequence[tuple[str, int]],
    committed: Mapping[TopicPartition, int],
    target: Moment | Mapping[tuple[str, int], int],
    *,
    shift: int | None = None,
) -> list[Step]:
    """What becomes of each partition; offsets that it does not have are brought to its nearest end.

    `shift` counts from where the group is, and then `target` is not looked at.
    """
    from ottla.client.values import OffsetSpec, TopicPartition

    keys = [TopicPartition(topic, partition) for topic, partition in partitions]
    starts = {key: one.offset for key, one in _found(admin, keys, OffsetSpec.EARLIEST).items()}
    ends = {key: one.offset for key, one in _found(admin, keys, OffsetSpec.LATEST).items()}
    by_time = _found(admin, keys, target.timestamp_ms) if isinstance(target, AtTime) and shift is None else {}
    steps = []
    for key in keys:
        start, end, before = starts[key], ends[key], committed.get(key)
        wanted: int
        if shift is not None:
            if before is None:
                raise CommandFailed(f"{key.topic}-{key.partition}: there is no position to count from; use --to")
            wanted = before + shift
        elif isinstance(target, Mapping):
            wanted = target[key]
        elif isinstance(target, Beginning):
            wanted = start
        elif isinstance(target, AtOffset):
            wanted = target.offset
        elif isinstance(target, Last):
            wanted = max(start, end - target.count)
        elif isinstance(target, AtTime):
            wanted = by_time[key].offset if key in by_time else end
        else:
            assert isinstance(target, End), "one of the moments"
            wanted = end
        after = min(max(wanted, start), end)
        steps.append(Step(key.topic, key.partition, before, after, wanted if after != wanted else None))
    return steps


def _found(admin: Admin, keys: Sequence[TopicPartition], spec: int) -> dict[TopicPartition, OffsetFound]:
    found = admin.list_offsets(dict.fromkeys(keys, spec))
    return {key: one for key, one in found.items() if one is not None}

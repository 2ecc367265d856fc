"""Snapshots: up to which offset each partition counts, fixed once, so that reading gives the same every time.

Values and their texts only: the offset map as Spark's Kafka connector writes it, and the ways to say "as of when".
Knows no broker: `snapshot_taking` finds the offsets, `snapshot_reading` reads up to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import UUID

from ottla.client.errors import InvalidSetting
from ottla.client.settings import INT32_MAX, Isolation, check_isolation
from ottla.client.values import TopicPartition
from ottla.clock import EPOCH_MS_MIN, UNITS_MS
from ottla.errors import OttlaError

INT64_MAX = 2**63 - 1
PINS = "@"
"""Beside the topics in the JSON, and no name of one: what else is known of them."""

EXPECTED = 'it looks like {"orders":{"0":700,"1":655}}: for each partition the first offset that does not count'
TEXTS = (
    "write now, a time (2026-01-31T12:00:00Z or milliseconds since 1970), how long ago (-10m; ms, s, m, h, d, w), "
    'or offsets ({"orders":{"0":700}})'
)


class SnapshotUnreadable(OttlaError):
    """What a snapshot stands for cannot be had: the topic is another one, or does not reach that far."""


@dataclass(frozen=True, slots=True)
class Now:
    """The end of each partition."""


@dataclass(frozen=True, slots=True)
class Ago:
    """So much time before it is asked."""

    back_ms: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """What was before a time: in each partition, what lies before the first record that is not older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far some partitions are read. Partitions that are not named are not part of it."""

    ends: Mapping[TopicPartition, int]
    """For each partition the first offset that does not count."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where each partition began when the snapshot was taken, as far as that is known."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """Which topics are meant, as far as that is known: one that was made anew has another id."""
    isolation: Isolation = "read_uncommitted"
    """How it was taken, and how it is read unless somebody says otherwise."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key.topic for key in sorted(self.ends)))

    def of(self, topics: Iterable[str]) -> Snapshot:
        """The part of it that is about these topics; InvalidSetting for one that it says nothing of."""
        wanted = set(topics)
        if absent := sorted(wanted - set(self.topics)):
            raise InvalidSetting(f"the snapshot says nothing of topic {', '.join(absent)}; it has {self.to_json()}")
        return self._cut({key for key in self.ends if key.topic in wanted})

    def only(self, partitions: Iterable[tuple[str, int]]) -> Snapshot:
        """The part of it that is about these partitions; InvalidSetting for one that it says nothing of."""
        wanted = {TopicPartition(*each) for each in partitions}
        if absent := sorted(wanted - set(self.ends)):
            raise InvalidSetting(f"the snapshot says nothing of {listed(absent)}; it has {self.to_json()}")
        return self._cut(wanted)

    def _cut(self, keys: set[TopicPartition]) -> Snapshot:
        topics = {key.topic for key in keys}
        return replace(
            self,
            ends={key: end for key, end in self.ends.items() if key in keys},
            starts={key: start for key, start in self.starts.items() if key in keys},
            topic_ids={name: topic_id for name, topic_id in self.topic_ids.items() if name in topics},
        )

    def to_json(self, *, pinned: bool = False) -> str:
        """The offset map as one line; `pinned` adds which topics these were and where they began."""
        document: dict[str, object] = {**_nested(self.ends)}
        if pinned:
            ids = {name: str(UUID(bytes=topic_id)) for name, topic_id in sorted(self.topic_ids.items())}
            document[PINS] = {"ids": ids, "starts": _nested(self.starts)}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, isolation: Isolation = "read_uncommitted") -> Self:
        """A snapshot from either form of its text; InvalidSetting, with what is expected, for anything else."""
        try:
            document = json.loads(text, object_pairs_hook=_no_name_twice)
        except (ValueError, RecursionError) as e:
            raise InvalidSetting(f"{_shortened(text)} is not JSON ({e}); {EXPECTED}") from e
        return cls.from_offsets(document, isolation=isolation)

    @classmethod
    def from_offsets(cls, document: object, *, isolation: Isolation = "read_uncommitted") -> Self:
        """A snapshot from parsed JSON, or from a map of (topic, partition) to offset."""
        check_isolation(isolation)
        if not isinstance(document, Mapping):
            raise InvalidSetting(f"{_shortened(document)} is no map of offsets; {EXPECTED}")
        if any(isinstance(name, tuple) for name in document):
            return cls(_flat(document), isolation=isolation)
        pins = document.get(PINS, {})
        if not isinstance(pins, Mapping):
            raise InvalidSetting(f"{PINS!r} has {_shortened(pins)} where an object belongs")
        ends = _offsets({name: offsets for name, offsets in document.items() if name != PINS})
        return cls(ends, _offsets(pins.get("starts", {}), may_be_empty=True), _ids(pins.get("ids", {})), isolation)


Moment = Now | Ago | AtTime | Snapshot
AsOf = None | datetime | int | str | Snapshot | Mapping[tuple[str, int], int] | Mapping[str, Mapping[str, int]]
"""What users may say: nothing (now), a time, milliseconds since 1970, a text, or offsets."""


def moment_of(as_of: AsOf, *, isolation: Isolation | None = None) -> Moment:
    """What a user's "as of" means; InvalidSetting when it means nothing."""
    if isinstance(as_of, Snapshot):
        return as_of if isolation is None else replace(as_of, isolation=isolation)
    isolation = isolation or "read_uncommitted"
    match as_of:
        case None:
            return Now()
        case str():
            return parse_as_of(as_of, isolation=isolation)
        case datetime():
            return AtTime(_milliseconds(as_of))
        case bool():
            raise InvalidSetting(f"as_of={as_of}: {TEXTS}")
        case int():
            if not 0 <= as_of <= INT64_MAX:
                raise InvalidSetting(f"as_of={as_of}: a time is counted in milliseconds since 1970")
            return AtTime(as_of)
        case _:
            return Snapshot.from_offsets(as_of, isolation=isolation)


_LONG_UNITS = {
    **dict.fromkeys(("millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "m"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_AGO = re.compile(r"-\s*([0-9]{1,15})\s*([a-z]+)")
_NUMBER = re.compile(r"[0-9]{1,18}")


def parse_as_of(text: str, *, isolation: Isolation = "read_uncommitted") -> Moment:
    """What a text means; InvalidSetting, with what can be written, when it means nothing."""
    text = text.strip()
    if text.lower() in ("now", "latest", "end"):
        return Now()
    if text.startswith("{"):
        return Snapshot.from_json(text, isolation=isolation)
    if found := _AGO.fullmatch(text.lower()):
        unit_ms = UNITS_MS.get(_LONG_UNITS.get(found[2], found[2]))
        if unit_ms is not None:
            return Ago(int(found[1]) * unit_ms)
    number = text.removeprefix("time:")
    if _NUMBER.fullmatch(number):
        if number == text and int(number) < EPOCH_MS_MIN:
            raise InvalidSetting(f"{text} could be an offset or a time: write time:{text}, or offsets ({EXPECTED})")
        return AtTime(int(number))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSetting(f"{_shortened(text)} says no time; {TEXTS}") from None
    # Without an offset a time means UTC, so that a script does the same on every machine.
    return AtTime(_milliseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)))


def _milliseconds(moment: datetime) -> int:
    """Rounded up: a record of the millisecond in which the moment lies is before it."""
    if moment.tzinfo is None:
        raise InvalidSetting(f"{moment!r} has no time zone; add one, such as tzinfo=datetime.UTC")
    found = -((datetime(1970, 1, 1, tzinfo=UTC) - moment) // timedelta(milliseconds=1))
    if found < 0:
        raise InvalidSetting(f"{moment.isoformat()} lies before 1970; no record is that old")
    return found


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as messages show them."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def _flat(document: Mapping[object, object]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for key, offset in document.items():
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], str) or not key[0]:
            raise InvalidSetting(f"{key!r} is not a (topic, partition)")
        found[TopicPartition(key[0], _partition(key[0], key[1]))] = _offset(key[0], key[1], offset)
    return found


def _offsets(document: object, *, may_be_empty: bool = False) -> dict[TopicPartition, int]:
    if not isinstance(document, Mapping):
        raise InvalidSetting(f"{_shortened(document)} is no map of offsets; {EXPECTED}")
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in document.items():
        if not isinstance(topic, str) or not topic or not isinstance(by_partition, Mapping):
            raise InvalidSetting(f"topic {topic!r} has {_shortened(by_partition)}; {EXPECTED}")
        for partition, offset in by_partition.items():
            key = TopicPartition(topic, _partition(topic, partition))
            found[key] = _offset(topic, partition, offset)
    if not found and not may_be_empty:
        raise InvalidSetting(f"it names no partition; {EXPECTED}")
    return found


def _partition(topic: str, given: object) -> int:
    text = str(given) if type(given) is int else given
    if not isinstance(text, str) or not re.fullmatch("0|[1-9][0-9]{0,9}", text) or int(text) > INT32_MAX:
        raise InvalidSetting(f"{given!r} is not a partition of topic {topic!r}; {EXPECTED}")
    return int(text)


def _offset(topic: str, partition: object, given: object) -> int:
    if type(given) is not int or not given <= INT64_MAX:
        raise InvalidSetting(f"{topic}-{partition} has {given!r}, which is no offset; {EXPECTED}")
    if given < 0:
        # Elsewhere these stand for the end and the beginning, which move.
        raise InvalidSetting(f"{topic}-{partition} has {given}: a snapshot names the offsets themselves; or write now")
    return given


def _ids(document: object) -> dict[str, bytes]:
    if not isinstance(document, Mapping):
        raise InvalidSetting(f"{_shortened(document)} is no map of topic ids")
    try:
        return {str(name): UUID(topic_id).bytes for name, topic_id in document.items()}
    except (ValueError, AttributeError, TypeError) as e:
        raise InvalidSetting(f"{_shortened(document)} has what is no topic id ({e})") from e


def _no_name_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Two offsets for one partition are a mistake, and which one was meant cannot be known."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _shortened(document: object) -> str:
    text = repr(document)
    return text if len(text) <= 200 else f"{text[:200]}..."

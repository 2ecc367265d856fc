"""Offsets of many partitions, as the connector's JSON has them, and the ways to say where reading starts and ends.

The JSON is that of Spark's own Kafka connector, so that checkpoints and options carry over. Pure: what a
specification comes to in a given topic is found out elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ottla.client.values import TopicPartition
from ottla.spark.durations import duration_ms
from ottla.spark.errors import InvalidOption

Offsets = dict[TopicPartition, int]

LATEST_MARK = -1
"""Stands for the end of a partition in the JSON."""
EARLIEST_MARK = -2
"""Stands for the beginning of a partition in the JSON."""

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1

TimestampStrategy = Literal["error", "latest"]


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that each partition still has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each partition."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """An offset for every partition; `LATEST_MARK` and `EARLIEST_MARK` may stand in place of one."""

    offsets: Mapping[TopicPartition, int]
    option: str = "startingOffsets"
    """Where it was said, for messages."""


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """In each partition the first record that is not older than a time."""

    times_ms: int | Mapping[TopicPartition, int]
    """One time for all partitions, or one for each."""
    strategy: TimestampStrategy = "error"
    """What to do where no record is that young. Of a start only: an end is then the end of the partition."""
    option: str = "startingOffsetsByTimestamp"

    def time_ms(self, partition: TopicPartition) -> int:
        return self.times_ms if isinstance(self.times_ms, int) else self.times_ms[partition]


@dataclass(frozen=True, slots=True)
class RelativeTime:
    """In each partition the first record that is not older than now less so many milliseconds, or its end."""

    back_ms: int


@dataclass(frozen=True, slots=True)
class RelativeRecords:
    """So many offsets before the end of each partition, not below its beginning."""

    count: int


OffsetSpecification = Earliest | Latest | Exactly | ByTimestamp | RelativeTime | RelativeRecords


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as the connector lays them out, topics and partitions in order."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def from_json(document: object, *, option: str) -> Offsets:
    """The offsets in a parsed document, or in the text of one; the marks for latest and earliest stay as they are."""
    expected = 'It looks like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, where -1 is latest and -2 earliest'
    return _numbers(document, option=option, lowest=EARLIEST_MARK, expected=expected)


def times_from_json(document: object, *, option: str) -> dict[TopicPartition, int]:
    """Times in milliseconds since 1970, laid out like offsets."""
    expected = 'It looks like {"topicA":{"0":1700000000000}}, in milliseconds since 1970'
    return _numbers(document, option=option, lowest=0, expected=expected)


def partitions_from_json(document: object, *, option: str) -> tuple[TopicPartition, ...]:
    """The partitions in `{"topicA":[0,1]}`, each once and in order."""
    expected = 'It looks like {"topicA":[0,1],"topicB":[2]}'
    found: set[TopicPartition] = set()
    for topic, numbers in _objects(document, option=option, expected=expected).items():
        if not isinstance(numbers, list):
            raise InvalidOption(option, f"topic {topic!r} has {numbers!r} where a list belongs", fix=expected)
        for number in numbers:
            if type(number) is not int or not 0 <= number <= _INT32_MAX:
                raise InvalidOption(option, f"{number!r} is not a partition of topic {topic!r}", fix=expected)
            found.add(TopicPartition(topic, number))
    if not found:
        raise InvalidOption(option, "it names no partition", fix=expected)
    return tuple(sorted(found))


def _numbers(document: object, *, option: str, lowest: int, expected: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in _objects(document, option=option, expected=expected).items():
        if not isinstance(by_partition, dict):
            raise InvalidOption(option, f"topic {topic!r} has {by_partition!r}, not an object", fix=expected)
        for name, number in by_partition.items():
            # A checkpoint that Python made may have numbers where JSON can only have texts.
            text = str(name) if type(name) is int else name
            if not isinstance(text, str) or not re.fullmatch("0|[1-9][0-9]{0,9}", text) or int(text) > _INT32_MAX:
                raise InvalidOption(option, f"{name!r} is not a partition of topic {topic!r}", fix=expected)
            if type(number) is not int or not lowest <= number <= _INT64_MAX:
                raise InvalidOption(option, f"partition {text} of topic {topic!r} has {number!r}", fix=expected)
            found[TopicPartition(topic, int(text))] = number
    return found


def _objects(document: object, *, option: str, expected: str) -> dict[str, object]:
    """The outer object of a document, which may come as text."""
    if isinstance(document, str):
        try:
            document = json.loads(document, object_pairs_hook=_no_name_twice)
        except (ValueError, RecursionError) as e:
            raise InvalidOption(option, f"{_shortened(document)} is not JSON ({e})", fix=expected) from e
    if not isinstance(document, dict):
        raise InvalidOption(option, f"{_shortened(document)} is not a JSON object", fix=expected)
    for topic in document:
        if not isinstance(topic, str) or not topic:
            raise InvalidOption(option, f"{topic!r} is not the name of a topic", fix=expected)
    return document


def _no_name_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Two offsets for one partition are a mistake, and which one was meant cannot be known."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def _shortened(document: object) -> str:
    text = repr(document)
    return text if len(text) <= 200 else f"{text[:200]}..."


_RELATIVE_RECORDS = re.compile(r"-\s*([0-9]{1,19})\s*(?:records?)?")


def relative(text: str, *, option: str) -> RelativeTime | RelativeRecords:
    """A start that counts back from the end of each partition: `-10m`, `-2 hours`, `-1000`, `-1000 records`."""
    text = text.strip().lower()
    if text in ("-1", "-2"):
        # In JSON these mean latest and earliest; whoever means that here would silently lose what is in the topic.
        meant = "latest" if text == "-1" else "earliest"
        raise InvalidOption(option, f"{text} alone can be misread", fix=f"Write {meant}, or {text} records")
    if counted := _RELATIVE_RECORDS.fullmatch(text):
        count = int(counted[1])
        if not 0 < count <= _INT64_MAX:
            raise InvalidOption(option, f"{text!r} is not a number of records", fix="Write latest to begin at the end")
        return RelativeRecords(count)
    back_ms = duration_ms(text[1:], option=option) if text.startswith("-") else 0
    if back_ms <= 0:
        raise InvalidOption(option, f"{text!r} is not relative to the end", fix="It looks like -10m or -1000 records")
    return RelativeTime(back_ms)


def names(specification: OffsetSpecification, partition: TopicPartition) -> bool:
    """Whether a start or an end says something about a partition."""
    if isinstance(specification, Exactly):
        return partition in specification.offsets
    if isinstance(specification, ByTimestamp) and not isinstance(specification.times_ms, int):
        return partition in specification.times_ms
    return True


def check_partitions(specification: OffsetSpecification, partitions: Iterable[TopicPartition]) -> None:
    """A start or an end that names partitions must name those that are read: all of them, and no others."""
    if isinstance(specification, Exactly):
        named, hint = set(specification.offsets), "; -1 stands for latest, -2 for earliest"
        option = specification.option
    elif isinstance(specification, ByTimestamp) and not isinstance(specification.times_ms, int):
        named, hint = set(specification.times_ms), ""
        option = specification.option
    else:
        return
    there = set(partitions)
    problems = []
    if missing := there - named:
        problems.append(f"it leaves out {listed(missing)}")
    if unknown := named - there:
        problems.append(f"it names {listed(unknown)}, which the query does not read")
    if problems:
        raise InvalidOption(option, " and ".join(problems), fix=f"Name every partition that is read{hint}")


PARTITIONS_SHOWN_MAX = 20


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as messages show them, in order and not more than can be read."""
    ordered = sorted(partitions)
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in ordered[:PARTITIONS_SHOWN_MAX])
    more = len(ordered) - PARTITIONS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown

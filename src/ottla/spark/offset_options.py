"""Which of the options for start and end counts, and what it says.

As Spark's own connector has it: one time for all before a time for each partition, and both before offsets.
"""

from __future__ import annotations

from typing import cast

from ottla.client.values import TopicPartition
from ottla.spark.as_of import AS_OF, ENDS, SnapshotEnd, as_of
from ottla.spark.errors import InvalidOption
from ottla.spark.offsets import (
    EARLIEST_MARK,
    LATEST_MARK,
    ByTimestamp,
    Earliest,
    Exactly,
    Latest,
    OffsetSpecification,
    TimestampStrategy,
    from_json,
    listed,
    relative,
    times_from_json,
)
from ottla.spark.option_names import Given
from ottla.spark.values import whole_number

STRATEGY = "startingOffsetsByTimestampStrategy"


def start_of_stream(options: Given) -> OffsetSpecification:
    """Where a new query starts; one that has a checkpoint goes on from there."""
    for name in ENDS:
        if name in options:
            raise InvalidOption(name, "a stream has no end", fix="Leave it out, or use spark.read for a batch")
    # A text that says nothing is told as that, also where nobody knows yet that a stream is meant.
    if as_of(options) is not None:
        raise InvalidOption(AS_OF, "a stream goes on; as of a moment there are only tables", fix="Use spark.read")
    return _specification(options, "starting") or Latest()


def start_of_batch(options: Given) -> OffsetSpecification:
    """Where a batch starts: not at the end, where there is nothing yet."""
    start = _specification(options, "starting") or Earliest()
    option = "startingOffsets"
    if isinstance(start, Latest):
        raise InvalidOption(option, "a batch cannot start at latest", fix="Use earliest, offsets or a relative start")
    if isinstance(start, Exactly):
        _refuse_mark(start, LATEST_MARK, "a batch cannot start at latest (-1)", fix="Use -2 for earliest, or an offset")
    return start


def end_of_batch(options: Given, start: OffsetSpecification) -> OffsetSpecification:
    """Where a batch ends: not at the beginning, and not before its start as far as that can be told."""
    end = as_of(options) or _specification(options, "ending") or Latest()
    if isinstance(end, SnapshotEnd):
        # Which of its partitions are read is known only later.
        return end
    option = "endingOffsets"
    if isinstance(end, Earliest):
        raise InvalidOption(option, "a batch cannot end at earliest", fix="Use latest or offsets")
    if isinstance(end, Exactly):
        _refuse_mark(end, EARLIEST_MARK, "a batch cannot end at earliest (-2)", fix="Use -1 for latest, or an offset")
    if isinstance(start, Exactly) and isinstance(end, Exactly):
        _check_order(dict(start.offsets), dict(end.offsets), start.option, end.option)
    elif isinstance(start, ByTimestamp) and isinstance(end, ByTimestamp):
        first, last = start.times_ms, end.times_ms
        if isinstance(first, int) and isinstance(last, int):
            if first > last:
                raise InvalidOption(end.option, f"{last} is before {start.option}, which is {first}")
        elif not isinstance(first, int) and not isinstance(last, int):
            _check_order(dict(first), dict(last), start.option, end.option)
    return end


def _specification(options: Given, which: str) -> OffsetSpecification | None:
    strategies = ("error", "latest")
    strategy = cast(TimestampStrategy, options.word(STRATEGY, strategies, default="error"))
    name = f"{which}Timestamp"
    if (text := options.text(name)) is not None:
        return ByTimestamp(whole_number(text, option=name, lowest=0), strategy, name)
    name = f"{which}OffsetsByTimestamp"
    if (text := options.text(name)) is not None:
        return ByTimestamp(times_from_json(text, option=name), strategy, name)
    name = f"{which}Offsets"
    if (text := options.text(name)) is None:
        return None
    word = text.lower()
    if word in ("earliest", "latest"):
        return Earliest() if word == "earliest" else Latest()
    if word.startswith("-") and which == "starting":
        return relative(word, option=name)
    if not word.startswith("{"):
        forms = 'earliest, latest, or offsets like {"topicA":{"0":23}}'
        forms += "; a start may also be relative, like -10m or -1000 records" if which == "starting" else ""
        raise InvalidOption(name, f"{text!r} says nothing", fix=f"Use {forms}")
    return Exactly(from_json(text, option=name), name)


def _refuse_mark(specification: Exactly, mark: int, problem: str, *, fix: str) -> None:
    if marked := [partition for partition, offset in specification.offsets.items() if offset == mark]:
        raise InvalidOption(specification.option, f"{listed(marked)}: {problem}", fix=fix)


def _check_order(
    first: dict[TopicPartition, int], last: dict[TopicPartition, int], start_option: str, end_option: str
) -> None:
    """Both must name the same partitions, and no end may be before its start; marks are known only later."""
    if different := first.keys() ^ last.keys():
        raise InvalidOption(
            end_option,
            f"{listed(different)} is not in both {start_option} and {end_option}",
            fix="Name the same partitions in both",
        )
    for partition in sorted(first):
        if first[partition] > last[partition] >= 0:
            raise InvalidOption(
                end_option,
                f"{listed([partition])} ends at {last[partition]}, before its start at {first[partition]}",
                fix=f"Change it or {start_option}",
            )

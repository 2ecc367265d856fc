"""Where reading begins, as people write it: `beginning`, `end`, an offset, a time, or so much before now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.clock import EPOCH_MS_MIN, UNITS_MS

_AGO = re.compile(r"-([0-9]{1,15})(ms|s|m|h|d|w)")
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_LAST = re.compile(r"-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """The next record that is written."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The record with this offset, in every partition that is read."""

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many records before the end of every partition that is read."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than this."""

    timestamp_ms: int


Moment = Beginning | End | AtOffset | Last | AtTime


def parse_moment(text: str, *, now_ms: int) -> Moment:
    """What a text means; ValueError, with what can be written, when it means nothing."""
    if text in ("beginning", "end"):
        return Beginning() if text == "beginning" else End()
    if found := _AGO.fullmatch(text):
        return AtTime(max(0, now_ms - int(found[1]) * UNITS_MS[found[2]]))
    if found := _LAST.fullmatch(text):
        return Last(int(found[1]))
    if _NUMBER.fullmatch(text):
        return AtTime(int(text)) if int(text) >= EPOCH_MS_MIN else AtOffset(int(text))
    kind, _, number = text.partition(":")
    if kind in ("offset", "time") and _NUMBER.fullmatch(number):
        return AtOffset(int(number)) if kind == "offset" else AtTime(int(number))
    return AtTime(_iso_ms(text))


def parse_duration_ms(text: str) -> int:
    """How long `10m` is; ValueError, with what can be written, when it is no time."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no length of time; write a number and one of {', '.join(UNITS_MS)} (10m)")
    return int(found[1]) * UNITS_MS[found[2]]


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no place to begin; write beginning, end, an offset, -N for the last N records, a time "
            "(2026-01-31T12:00:00Z or milliseconds since 1970), or how long ago (-10m; ms, s, m, h, d, w)"
        ) from None
    # Without an offset a time means UTC, so that a script does the same on every machine.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = round(moment.timestamp() * 1_000)
    if milliseconds < 0:
        raise ValueError(f"{text!r} lies before 1970; no record is that old")
    return milliseconds

"""Spans of time as users write them: `15m`, `15 minutes`, `500`. Knows nothing of what they are for."""

from __future__ import annotations

import re

from ottla.spark.errors import InvalidOption

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
_FORM = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_INT64_MAX = 2**63 - 1


def duration_ms(text: str, *, option: str) -> int:
    """The span in milliseconds, which are also meant where no unit is given, as Spark has it."""
    form = _FORM.fullmatch(text.strip().lower())
    unit_ms = _UNITS_MS.get(form[2] or "ms") if form else None
    if form is None or unit_ms is None:
        raise InvalidOption(option, f"{text!r} is not a span of time", fix="It looks like 15m, 90s, 2h or 15 minutes")
    span_ms = int(form[1]) * unit_ms
    if span_ms > _INT64_MAX:
        raise InvalidOption(option, f"{text!r} is longer than can be counted", fix="It looks like 15m, 90s or 2h")
    return span_ms

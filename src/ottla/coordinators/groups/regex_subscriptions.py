"""Subscriptions by pattern: which topics a regular expression stands for.

RE2 does the matching, so that a pattern's time grows with the length of a name and never explodes. What is left,
many names times a large pattern, is done in slices: one look at the names costs at most so many steps, and the rest
is looked at the next time. Knows no groups and no records.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import InvalidRegularExpression

PATTERN_BYTES_MAX = 8_192
PATTERN_MEMORY_BYTES_MAX = 1 << 20
"""What RE2 may take for one pattern; one that needs more is refused."""
STEPS_MAX = 2_000_000
"""Names times the size of the pattern that are looked at in one decision: 5 to 10 ms."""
_SIZE_MIN = 500
"""A small pattern costs as much as one of this size: calling RE2 takes longer than its work."""


class Pattern:
    """One pattern and the topics that it matches, as of the last look."""

    __slots__ = ("_compiled", "_looked_at", "_size", "_waiting", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled = _compile(text)
        self._size: int = max(_SIZE_MIN, self._compiled.programsize)
        self._looked_at: frozenset[str] = frozenset()
        self._waiting: list[str] = []
        self.matched: frozenset[str] = frozenset()

    @property
    def is_finished(self) -> bool:
        """Whether every name of the last look has been compared."""
        return not self._waiting

    def look(self, names: frozenset[str], steps: int) -> int:
        """Compare the names that are new since the last look, as far as these steps carry; returns what is left."""
        if names is not self._looked_at:
            # What was compared once need not be again: a match depends on the name alone.
            waiting = [name for name in self._waiting if name in names]
            self._waiting = waiting + sorted(names - self._looked_at)
            self.matched &= names
            self._looked_at = names
        end = max(0, steps) // self._size
        portion, self._waiting = self._waiting[:end], self._waiting[end:]
        matches = self._compiled.fullmatch
        self.matched = self.matched.union(name for name in portion if matches(name.encode()))
        return steps - len(portion) * self._size


def _compile(text: str) -> Any:
    encoded = text.encode()
    if len(encoded) > PATTERN_BYTES_MAX:
        raise InvalidRegularExpression(f"the pattern has {len(encoded)} bytes; it may have {PATTERN_BYTES_MAX}")
    try:
        # Loaded with the first pattern: most brokers never see one.
        import re2  # type: ignore[import-untyped]
    except ImportError:
        raise InvalidRegularExpression(
            "this broker takes no subscriptions by pattern: google-re2 is not installed; name the topics instead"
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        return re2.compile(encoded, options)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise InvalidRegularExpression(f"RE2 cannot read the pattern {text[:100]!r}: {said}") from None

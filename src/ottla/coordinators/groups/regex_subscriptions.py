"""Subscriptions by pattern: which topics a regular expression stands for.

RE2 does the matching, so that a pattern's time grows with the length of a name and never explodes. What is left,
many long names times a large pattern, is done in slices: one look at the names costs at most so many steps, and the
rest is looked at the next time. Knows no groups and no records.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from ottla.errors import InvalidRegularExpression

PATTERN_BYTES_MAX = 8_192
PATTERN_MEMORY_BYTES_MAX = 1 << 18
"""What RE2 may take for one pattern; one that needs more is refused. More would make the worst patterns slower: RE2
fills it with states that it never comes back to, and begins anew when it is full."""
PROGRAM_SIZE_MAX = 3_500
"""Instructions that a pattern may come down to: the longest name of a topic is compared with so many in one slice."""
STEPS_MAX = 1_000_000
"""Instructions times characters that are looked at in one decision. A step takes up to 8 ns, with the pattern and the
names that suit each other worst."""

_CHARACTER_STEPS = 128
"""What a character costs beside the instructions: RE2 may have to make a state of its own for it."""
_NAME_STEPS = 600
"""What a name costs where RE2 soon knows all states that there are: the call takes longer than the work."""
_BOOKKEEPING_STEPS = 40
"""What it costs to see whether a name is new."""
_COMPILING_STEPS = 100
"""What it cost, for each instruction, to make the pattern ready; paid with the first look."""

_PLAIN_BYTES_MAX = 128
_PLAIN = re.compile(
    r"""
    \^?
    (?: [\w-] | \\[.-] | \.(?![*+]) )*+         # Characters, each in its place,
    (?: \( (?: [\w-] | \\[.-] | \| )*+ \) )?+   # words to choose from, once,
    (?: [\w-] | \\[.-] )*+
    (?: \.[*+] (?: [\w-] | \\[.-] )*+ ){0,4}+   # and words with anything between them.
    \$?
    """,
    re.VERBOSE | re.ASCII,
)
"""Patterns as most people write them: `orders.*`, `(orders|payments)-eu.*`. They have few states, whatever the names
are. It takes a choice of characters after a repetition to have many, as in `.*a.{20}`. No part of this expression ever
gives back what it has taken, so it takes no time to speak of itself."""


class Pattern:
    """One pattern and the topics that it matches, as of the last look."""

    __slots__ = ("_compiled", "_debt", "_looked_at", "_names", "_size", "_waiting", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled = compile_pattern(text)
        size: int = self._compiled.programsize
        self._size = 0 if is_plain(text) else size + _CHARACTER_STEPS
        self._debt = size * _COMPILING_STEPS
        """Steps that were made already and are still to be counted."""
        self._names: frozenset[str] = frozenset()
        """The names that there are."""
        self._looked_at: frozenset[str] = frozenset()
        """Those of the last time when they were gone through: each was compared, or waits for it."""
        self._waiting: deque[str] = deque()
        self.matched: frozenset[str] = frozenset()

    @property
    def is_finished(self) -> bool:
        """Whether every name of the last look has been compared."""
        return not self._waiting and self._names is self._looked_at

    @property
    def waiting_count(self) -> int:
        """How many names have still to be compared, of those that were gone through."""
        return len(self._waiting)

    def look(self, names: frozenset[str], steps: int) -> int:
        """Compare the names that are new since the last look, as far as these steps carry; returns what is left.

        The last one may cost more than there was. With nothing left to begin with, nothing is done but to remember
        that there is something to do.
        """
        self._names = names
        if self.is_finished or steps <= 0:
            return steps
        steps -= self._debt
        self._debt = 0
        if names is not self._looked_at:
            steps -= self._go_through(names)
        matches = self._compiled.fullmatch
        found = []
        while self._waiting and steps > 0:
            name = self._waiting.popleft()
            encoded = name.encode()
            steps -= self._cost(len(encoded))
            if matches(encoded):
                found.append(name)
        if found:
            self.matched = self.matched.union(found)
        return steps

    def _go_through(self, names: frozenset[str]) -> int:
        """Find those to compare; returns what that cost. What was compared once need not be again."""
        steps = _BOOKKEEPING_STEPS * (len(names) + len(self._waiting))
        waiting = [name for name in self._waiting if name in names]
        # In order, so that what is matched after so many looks is the same each time.
        self._waiting = deque(waiting + sorted(names - self._looked_at))
        self.matched &= names
        self._looked_at = names
        return steps

    def _cost(self, name_bytes: int) -> int:
        return max(_NAME_STEPS, self._size * (name_bytes + 1))


def is_plain(text: str) -> bool:
    """Whether it can be seen that the pattern has few states."""
    return len(text) <= _PLAIN_BYTES_MAX and _PLAIN.fullmatch(text) is not None


def compile_pattern(text: str) -> Any:
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
        compiled = re2.compile(encoded, options)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise InvalidRegularExpression(f"RE2 cannot read the pattern {text[:100]!r}: {said}") from None
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise InvalidRegularExpression(
            f"the pattern {text[:100]!r} is too large: it comes down to {compiled.programsize} instructions, "
            f"and may have {PROGRAM_SIZE_MAX}"
        )
    return compiled

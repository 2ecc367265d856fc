"""Texts that users give, as numbers, switches and words. Knows no option, only how its value must look."""

from __future__ import annotations

import re

from ottla.spark.errors import InvalidOption

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def whole_number(text: str, *, option: str, lowest: int, highest: int = INT64_MAX) -> int:
    """A whole number between two others."""
    stripped = text.strip()
    number = int(stripped) if _WHOLE.fullmatch(stripped) else None
    if number is None or not lowest <= number <= highest:
        # A limit that only the size of a number sets is nothing that a user has in mind.
        span = f"from {lowest} to {highest}" if highest < INT32_MAX else f"of at least {lowest}"
        if number is not None and number > highest >= INT32_MAX:
            span = f"of at most {highest}"
        raise InvalidOption(option, f"{text!r} is not a whole number {span}")
    return number


def switch(text: str, *, option: str) -> bool:
    """True or false, in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise InvalidOption(option, f"{text!r} is neither true nor false")
    return word == "true"


def word_of(text: str, words: tuple[str, ...], *, option: str) -> str:
    """One of these words, in any case."""
    word = text.strip().lower()
    if word not in words:
        raise InvalidOption(option, f"{text!r} is not one of {', '.join(words)}")
    return word

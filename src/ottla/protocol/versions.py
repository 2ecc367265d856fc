"""Which versions a message has, and from which of them on it is flexible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions.

    From `flexible_since` on, lengths are varints and every struct ends with tagged fields; None means that no
    version is flexible.
    """

    first: int
    last: int
    flexible_since: int | None = None

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def flexible(self, version: int) -> bool:
        """Whether this version uses compact lengths and tagged fields."""
        return self.flexible_since is not None and version >= self.flexible_since

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

"""Topics as Spark sources and sinks.

`format("ottla")` needs no import: Spark finds `pyspark_ottla` by its name. What stands here is for programs that want
more of it, and is loaded at first use, so that Spark's workers do not pay for what they do not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.errors import OttlaSparkError as OttlaSparkError
    from ottla.spark.foreach_batch import exactly_once_batches as exactly_once_batches
    from ottla.spark.sessions import session as session

_HOMES = {
    "ottla.spark.errors": ("OttlaSparkError",),
    "ottla.spark.foreach_batch": ("exactly_once_batches",),
    "ottla.spark.sessions": ("session",),
}
"""Where each public name lives."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["OttlaSparkError", "exactly_once_batches", "session"]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

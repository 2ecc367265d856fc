"""Pipelines: topics and tables in, SQL or Python in the middle, topics and tables out, as streaming queries on Spark.

    import ottla.pipelines as op

    pipeline = op.pipeline("orders")

What stands here is loaded at first use, so that whoever wants one part of it does not pay for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.pipelines.declarative import declare as declare
    from ottla.pipelines.decorators import pipeline as pipeline
    from ottla.pipelines.errors import PipelineInvalid as PipelineInvalid
    from ottla.pipelines.reading import load as load
    from ottla.pipelines.runner import run as run

_HOME_OF = {
    "PipelineInvalid": "ottla.pipelines.errors",
    "declare": "ottla.pipelines.declarative",
    "load": "ottla.pipelines.reading",
    "pipeline": "ottla.pipelines.decorators",
    "run": "ottla.pipelines.runner",
}
"""Where each public name lives."""

__all__ = ["PipelineInvalid", "declare", "load", "pipeline", "run"]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

"""What Spark finds by its name: it imports every top-level module called `pyspark_*` and takes its `DefaultSource`."""

from __future__ import annotations

from ottla.spark.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]

"""`format("ottla")`: what Spark asks for a reader or a writer of topics.

Light to import, since every worker that plans anything imports it. Decides nothing: options are checked in `options`,
and the readers and writers do the work.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ottla.spark.as_of import AS_OF
from ottla.spark.errors import InvalidOption, OttlaSparkError
from ottla.spark.offsets import OffsetSpecification
from ottla.spark.options import Pattern, ReadOptions, WriteOptions, read_options, write_options
from ottla.spark.schema import agreed_columns, spark_schema
from ottla.spark.topic_patterns import topic_expression

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_logger = logging.getLogger(__name__)


class OttlaSource(DataSource):
    """Topics of Ottla, or of any broker that speaks Kafka's protocol, as tables and streams."""

    def __init__(self, options: dict[str, str]) -> None:
        """Called once for each table that is loaded; Spark hands what is found here to all that look at it later."""
        super().__init__(options)
        self._end = as_of_end(options) if AS_OF.lower() in map(str.lower, options) else None

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        """Called when a frame is loaded, be it a table or a stream: a mistake in the options shows here."""
        return spark_schema(columns=self._readable().column_names)

    def _readable(self) -> ReadOptions:
        """The options of whichever it is: what is right for a stream may be wrong for a table, and the reverse.

        Only tables have ends, so that without one a mistake is told as that of a stream.
        """
        likelier = not any(name in self.options for name in ENDS)
        try:
            return checked_options(self.options, streaming=likelier)
        except OttlaSparkError as e:
            try:
                return checked_options(self.options, streaming=not likelier)
            except OttlaSparkError:
                raise e from None

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.batch_reader import OttlaBatchReader

        options = checked_options(self.options, streaming=False)
        if self._end is not None:
            options = replace(options, end=self._end)
        _warn(options)
        return OttlaBatchReader(options, agreed_columns(schema, options.columns))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from ottla.spark.stream_reader import OttlaStreamReader

        options = checked_options(self.options, streaming=True)
        _warn(options)
        return OttlaStreamReader(options, agreed_columns(schema, options.columns))

    def writer(self, schema: StructType, overwrite: object) -> DataSourceWriter:
        from ottla.spark.writer import BatchWriter

        _refuse_overwriting(overwrite)
        options = write_options(self.options, streaming=False)
        _warn(options)
        return BatchWriter(schema, options)

    def streamWriter(self, schema: StructType, overwrite: object) -> DataSourceStreamWriter:  # noqa: N802
        from ottla.spark.writer import StreamWriter

        options = write_options(self.options, streaming=True)
        _warn(options)
        return StreamWriter(schema, options)


def as_of_end(given: Mapping[str, str]) -> OffsetSpecification | None:
    """Where a table as of a moment ends, found once; None where options are wrong, which is told when it is read."""
    from ottla.spark.batch_reader import fixed

    try:
        options = checked_options(given, streaming=False)
    except OttlaSparkError:
        return None
    return fixed(options).end


def checked_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a reader, with what can be said of them before a broker is asked."""
    options = read_options(given, streaming=streaming)
    if isinstance(options.topics, Pattern):
        topic_expression(options.topics.pattern)
    return options


def _refuse_overwriting(overwrite: object) -> None:
    """Spark hands a bool over, and by its place."""
    if overwrite:
        raise InvalidOption("mode", "a topic cannot be overwritten", fix='Write with mode("append")')


def _warn(options: ReadOptions | WriteOptions) -> None:
    if options.ignored:
        _warn_once(options.ignored)


@cache
def _warn_once(names: tuple[str, ...]) -> None:
    """A worker that is used again has said it already."""
    _logger.warning("these options have no effect: %s", ", ".join(names))

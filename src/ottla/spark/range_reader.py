"""A task's ranges as Arrow record batches of exactly the schema that Spark expects.

Runs on executors only, and is the one place of the source that needs pyarrow. What is fetched and in which order is
`fetching`'s business; here batches become columns, without a Python object for any record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.errors import BatchError, DecompressionTooLarge
from ottla.records.arrow import ArrowRecords, to_arrow
from ottla.records.batch import check, walk
from ottla.records.isolation import AbortedTransactions
from ottla.spark import pool
from ottla.spark.collector import settle
from ottla.spark.fetching import RangeFetcher, UnreadableBatch
from ottla.spark.options import ReadOptions
from ottla.spark.planning import OffsetRange
from ottla.spark.range_cursor import Piece
from ottla.spark.schema import spark_schema

ROWS_MAX = 10_000
"""Rows of one record batch: Spark takes one as a whole into memory of its own."""
BYTES_MAX = 4 * 1024 * 1024
"""Bytes of one record batch, unless a single record is larger."""
ROWS_ENOUGH = 2_000
BYTES_ENOUGH = 1024 * 1024
"""Record batches below both are put together: each costs Spark the same, however little is in it."""
MICROSECONDS = pa.timestamp("us", tz="UTC")
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
"""The last millisecond whose microseconds fit into 64 bits."""
CONSTANT = ("topic", "partition")
"""Columns that are the same in every row of a partition."""


def read_ranges(
    ranges: Sequence[OffsetRange], options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records of these ranges, in order within each partition."""
    settle("reading")
    fetch = options.connection.fetch
    with pool.borrowed(options.connection) as link:
        fetcher = RangeFetcher(
            link,
            ranges,
            settings=fetch,
            isolation=options.connection.isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            poll_timeout_ms=options.poll_timeout_ms,
        )
        pieces = fetcher.pieces()
        try:
            yield from gathered(decoded(pieces, tuple(columns), check_crcs=fetch.check_crcs))
        finally:
            # What is under way is given up before the connections go back.
            pieces.close()


def decoded(pieces: Iterator[Piece], columns: tuple[str, ...], *, check_crcs: bool) -> Iterator[pa.RecordBatch]:
    """The wanted records of all pieces, as rows."""
    unpacked = tuple(name for name in columns if name not in CONSTANT)
    for piece in pieces:
        try:
            for portion, is_checked in _portions(piece, check_crcs=check_crcs):
                for records in _columns(portion, piece, unpacked, is_checked=is_checked):
                    if records.row_count:
                        yield from _rows(records, piece, columns)
        except BatchError as e:
            offset = _unreadable_offset(piece, unpacked, check_crcs=check_crcs)
            raise UnreadableBatch(piece.topic, piece.partition, offset=offset, cause=e) from e


def _columns(
    portion: memoryview, piece: Piece, columns: tuple[str, ...], *, is_checked: bool
) -> Iterator[ArrowRecords]:
    """The wanted records of a portion; batch by batch where together they grow beyond what one column can hold."""

    def unpacked(batches: memoryview) -> ArrowRecords:
        return to_arrow(batches, columns=columns, start_offset=piece.start, end_offset=piece.end, checked=is_checked)

    try:
        together = unpacked(portion)
    except DecompressionTooLarge:
        for position, header in walk(portion):
            yield unpacked(portion[position : position + header.size])
    else:
        yield together


def _portions(piece: Piece, *, check_crcs: bool) -> Iterator[tuple[memoryview, bool]]:
    """What is to be decoded at a time, and whether its checksums need not be looked at."""
    view, start = piece.batches, 0
    if not piece.aborted:
        for cut in piece.cuts:
            yield view[start:cut], not check_crcs
            start = cut
        return
    # Which transactions are open runs through all portions, so that the batches to be left out are found here.
    transactions = AbortedTransactions(piece.aborted)
    cuts = set(piece.cuts)
    for position, header in walk(view):
        if check_crcs:
            check(view, position)
        following = position + header.size
        if transactions.hides(header, view[position:following]):
            if start < position:
                yield view[start:position], True
            start = following
        elif following in cuts:
            yield view[start:following], True
            start = following


def _unreadable_offset(piece: Piece, columns: tuple[str, ...], *, check_crcs: bool) -> int:
    """Where the first batch is that cannot be decoded; for the message of an error."""
    found = piece.start
    try:
        for position, header in walk(piece.batches):
            found = header.base_offset
            to_arrow(piece.batches[position : position + header.size], columns=columns, checked=not check_crcs)
    except BatchError:
        return found
    return piece.start


def _rows(records: ArrowRecords, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Decoded records with the columns that Spark wants, cut to size; nothing is copied but timestamps."""
    count = records.row_count
    schema = arrow_schema(columns)
    arrays = {
        name: _as_spark(name, array, schema)
        for name, array in zip(records.rows.schema.names, records.rows.columns, strict=True)
    }
    step = max(1, min(ROWS_MAX, BYTES_MAX * count // max(1, records.rows.nbytes)))
    for start in range(0, count, step):
        size = min(step, count - start)
        parts = [
            arrays[name].slice(start, size) if name in arrays else _constant(name, piece).slice(0, size)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(parts, schema=schema)


@lru_cache(maxsize=64)
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """What Spark's workers compare with: the first record batch of a task must have exactly this."""
    schema = spark_schema(columns=columns)
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        # Spark before 4.3 knows no other time zone here.
        return to_arrow_schema(schema)


def _as_spark(name: str, array: Any, schema: pa.Schema) -> Any:
    if name == "timestamp":
        return _microseconds(array)
    if name == "headers":
        return _headers(array, schema.field("headers").type)
    return array


def _microseconds(array: Any) -> Any:
    try:
        return array.cast(MICROSECONDS)
    except pa.ArrowInvalid:
        # A time that Spark cannot hold. The record is worth more than its time: the nearest that can be held stands in.
        limit = pa.scalar(TIMESTAMP_MS_MAX, pa.int64())
        held = pc.min_element_wise(pc.max_element_wise(array.view(pa.int64()), pc.negate(limit)), limit)
        return pc.multiply(held, 1000).view(MICROSECONDS)


def _headers(lists: Any, wanted: pa.ListType) -> Any:
    """As Spark's connector gives them: a record without headers has null, not an empty list."""
    entries = pa.StructArray.from_arrays(lists.values.flatten(), fields=list(wanted.value_type))
    are_empty = pc.equal(pc.list_value_length(lists), 0)
    mask = are_empty if pc.any(are_empty).as_py() else None
    return pa.ListArray.from_arrays(lists.offsets, entries, type=wanted, mask=mask)


def _constant(name: str, piece: Piece) -> Any:
    return _topic_column(piece.topic) if name == "topic" else _partition_column(piece.partition)


@lru_cache(maxsize=64)
def _topic_column(topic: str) -> Any:
    return pa.repeat(pa.scalar(topic, pa.string()), ROWS_MAX)


@lru_cache(maxsize=256)
def _partition_column(partition: int) -> Any:
    return pa.repeat(pa.scalar(partition, pa.int32()), ROWS_MAX)


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, with neighbours put together where they are small."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        is_enough = batch.num_rows >= ROWS_ENOUGH or batch.nbytes >= BYTES_ENOUGH
        if not is_enough:
            small.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if is_enough or rows >= ROWS_ENOUGH or size >= BYTES_ENOUGH:
            yield from _merged(small)
            small, rows, size = [], 0, 0
        if is_enough:
            yield batch
    yield from _merged(small)


def _merged(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) <= 1:
        return batches
    merged: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return merged

"""Which partition of its new topic a record goes to: a column for Spark, computed from columns of Arrow.

The same record goes to the same partition each time, so that a step that is taken again does the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipelines.transfer.journal import By
from ottla.spark.rows import Turns, packable

if TYPE_CHECKING:
    from pyspark.sql import Column


def partitions_of(keys: Any, old_partitions: Any, old_offsets: Any, *, partition_count: int, by: By) -> Any:
    """The new partition of each record: by key as Kafka's clients choose it, else by the place that it had.

    Neighbours in an old partition go to neighbours among the new ones, and each old partition begins elsewhere.
    """
    places = (old_partitions.to_numpy(zero_copy_only=False).astype(np.int64) + old_offsets.to_numpy()) % partition_count
    in_turn = pa.array(places, pa.int32())
    if by == "round-robin" or keys.null_count == len(keys):
        return in_turn
    chosen = pc.if_else(pc.is_null(keys), in_turn, pa.scalar(None, pa.int32()))
    rows = packable(pa.record_batch({"key": keys}))
    shares = rows.shared_out(partition_count=partition_count, spread=[0], turns=Turns(1), chosen=chosen)
    order = np.frombuffer(shares.order, np.int32)
    found = np.empty(len(keys), np.int32)
    for share in shares.found:
        found[order[share.start : share.end]] = share.partition
    return pa.array(found)


def new_partition(*, partition_count: int, by: By) -> Column:
    """The same as a column of a frame that has `key`, `partition` and `offset`."""
    from pyspark.sql import functions as fn

    def route(keys: pa.Array, old_partitions: pa.Array, old_offsets: pa.Array) -> pa.Array:
        return partitions_of(keys, old_partitions, old_offsets, partition_count=partition_count, by=by)

    column: Column = fn.arrow_udf(route, "int")("key", "partition", "offset")  # type: ignore[attr-defined]
    return column

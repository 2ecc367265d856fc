"""Rows that replace others with the same keys, as Spark computes them.

A batch is reduced to the last row of each key, its changes. To merge them, the files that hold one of those keys are
written anew without the old rows, and with the new ones; all other files stay as they are. Readers apply the changes
that are not merged yet in the same way. docs/decisions/0015-tables.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED = "__ottla_deleted"
SEQUENCE = "__ottla_sequence"
CHANGE_COLUMNS = (DELETED, SEQUENCE)
_RANK = "__ottla_rank"
_PATH = "__ottla_path"
_ORDER = "__ottla_order"
_NEW_ORDER = "__ottla_new_order"
ARRIVAL = ("_partition", "_offset")
"""Columns of a source that tell in which order the records of one key came."""


def changes_of(
    frame: DataFrame, keys: Sequence[str], *, order: str | None, deleted: str | None, sequence: int
) -> DataFrame:
    """One row for each key: the greatest by `order`, else the last that came; with a column that says if it deletes."""
    from pyspark.sql import functions as f

    # A row for which the predicate is unknown stays.
    deletes = f.coalesce(f.expr(deleted).cast("boolean"), f.lit(False)) if deleted is not None else f.lit(False)
    frame = frame.withColumn(DELETED, deletes)
    if set(ARRIVAL) <= set(frame.columns):
        arrival = frame.withColumn(SEQUENCE, f.struct(*ARRIVAL))
    else:
        arrival = frame.withColumn(SEQUENCE, f.monotonically_increasing_id())
    return last_of_each_key(arrival, keys, order=order).withColumn(SEQUENCE, f.lit(sequence).cast("bigint"))


def last_of_each_key(changes: DataFrame, keys: Sequence[str], *, order: str | None) -> DataFrame:
    """One change for each key: the greatest by `order`, else, or of equals, that of the highest sequence."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    first = [f.expr(order).desc_nulls_last()] if order is not None else []
    by_key = Window.partitionBy(*(f.col(quoted(key)) for key in keys)).orderBy(*first, f.col(SEQUENCE).desc())
    return changes.withColumn(_RANK, f.row_number().over(by_key)).where(f.col(_RANK) == 1).drop(_RANK)


def paths_holding(table: DataFrame, changes: DataFrame, keys: Sequence[str]) -> list[str]:
    """The files in which a row has a key of the changes."""
    from pyspark.sql import functions as f

    held = table.select(*map(quoted, keys), f.input_file_name().alias(_PATH))
    found = held.join(_keys(changes, keys), _same_keys(held, keys), "left_semi")
    return [row[0] for row in found.select(_PATH).distinct().collect()]


def merged_rows(table: DataFrame, changes: DataFrame, keys: Sequence[str], *, order: str | None) -> DataFrame:
    """The rows of a table as the changes leave them."""
    from pyspark.sql import functions as f

    changes = last_of_each_key(changes, keys, order=order)
    if order is not None:
        changes = _not_outdated(table, changes, keys, order)
    kept = table.join(_keys(changes, keys), _same_keys(table, keys), "left_anti")
    return kept.unionByName(changes.where(~f.col(DELETED)).drop(*CHANGE_COLUMNS))


def _not_outdated(table: DataFrame, changes: DataFrame, keys: Sequence[str], order: str) -> DataFrame:
    """The changes without those that the table has a greater row for; of equals the new one counts."""
    from pyspark.sql import functions as f

    known = _keys(table.withColumn(_ORDER, f.expr(order)), keys, also=_ORDER)
    changes = changes.withColumn(_NEW_ORDER, f.expr(order))
    new, old = f.col(_NEW_ORDER), f.col(_ORDER)
    greater = (old > new) | (new.isNull() & old.isNotNull())
    return changes.join(known, _same_keys(changes, keys) & greater, "left_anti").drop(_NEW_ORDER)


def _keys(frame: DataFrame, keys: Sequence[str], *, also: str | None = None) -> DataFrame:
    """The keys under names that no table has."""
    from pyspark.sql import functions as f

    columns = [f.col(quoted(key)).alias(f"__ottla_key_{n}") for n, key in enumerate(keys)]
    return frame.select(*columns, *([also] if also is not None else []))


def _same_keys(frame: DataFrame, keys: Sequence[str]) -> Column:
    """Keys that are null are equal to each other: a table holds one row for them too."""
    from pyspark.sql import functions as f

    same = [f.col(quoted(key)).eqNullSafe(f.col(f"__ottla_key_{n}")) for n, key in enumerate(keys)]
    return reduce(lambda one, other: one & other, same)


def quoted(name: str) -> str:
    """A column's name as Spark reads it whatever is in it."""
    return f"`{name.replace('`', '``')}`"

"""The counts of a query's last batches."""

from __future__ import annotations

from ottla.pipelines.rows_out import BATCHES_MAX, RowsOut


def test_the_rows_of_a_batch_are_known_once_they_are_noted() -> None:
    rows = RowsOut()
    rows.note(3, rows=40)

    assert (rows.of(3), rows.of(4)) == (40, None)


def test_old_batches_are_forgotten() -> None:
    rows = RowsOut()
    for batch_id in range(BATCHES_MAX + 2):
        rows.note(batch_id, rows=batch_id)

    assert (rows.of(1), rows.of(2)) == (None, 2)

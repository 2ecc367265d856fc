"""When the changes of a table with keys are merged into its files, and when they may wait. Pure.

A batch of a few keys that are scattered over a big table would write most of the table anew. So its changes wait in
files of their own, which every reader of the log takes into account, and are merged once for many batches.
"""

from __future__ import annotations

from ottla.pipelines.tables.commits import State

MERGED_ALWAYS_BYTES = 16 * 1024 * 1024
"""A table up to this size is written anew as quickly as a batch is."""
CHANGES_MAX = 50
"""So many files of changes wait at most: each of them makes reading slower."""
CHANGES_SHARE_MAX = 0.25
"""And in bytes, at most this part of the table."""
PAUSE_FACTOR = 4
"""After a merge there is none for so many times as long as it took: a fifth of the time at most goes into them."""


def is_due(state: State, *, now_ms: int, deletes_by_order: bool, merged_always_bytes: int) -> bool:
    """Whether the next batch is merged at once, with all changes that wait.

    With an order and deletions nothing waits: a row that comes after its deletion is new to the table, and whether it
    does must not depend on what has been merged.
    """
    if deletes_by_order or state.bytes <= merged_always_bytes or len(state.changes) >= CHANGES_MAX:
        return True
    if sum(one.bytes for one in state.changes.values()) > CHANGES_SHARE_MAX * state.bytes:
        return True
    return now_ms - state.merged_ms >= PAUSE_FACTOR * state.merge_took_ms

"""Every place where a simulated log can die, by the operation that comes past it.

The list is complete on purpose: a place that is never hit, or one that is not listed, fails the suite.
"""

from __future__ import annotations

from ottla.storage.memory_disk import Moment

Point = tuple[str, Moment]


def _around(*operations: str) -> list[Point]:
    """Before and after each; in the middle too where bytes are written."""
    return [
        (operation, moment)
        for operation in operations
        for moment in (("before", "torn", "after") if operation.startswith("append ") else ("before", "after"))
    ]


def _fresh(kind: str) -> list[str]:
    """What it takes to write a file anew."""
    return [f"create {kind}", f"truncate {kind}", f"append {kind}", f"sync {kind}"]


def _replaced(kind: str, *, name: str = "") -> list[str]:
    """What it takes to replace a file as a whole."""
    temporary = ".tmp" if name else f"{kind}.tmp"
    return [*_fresh(temporary), f"rename {temporary} to {name or kind}", "sync-directory"]


APPENDING = _around("create .log", "append .log")
SYNCING = _around(
    *_fresh(".index"),
    *_fresh(".timeindex"),
    *_fresh(".txnindex"),
    "sync .log",
    *_replaced(".snapshot"),
    *_replaced("", name="leader-epoch-checkpoint"),
    *_replaced(".seal"),
)
REMOVING = _around(
    "remove .seal", "remove .log", "remove .index", "remove .timeindex", "remove .txnindex", "remove .snapshot"
)
RAISING_LOG_START = _around(*_replaced("", name="log-start-offset"))
TRUNCATING = _around("truncate .log", "sync .log", "sync-directory")
SWAPPING = _around(
    "rename .seal.cleaned to .seal.swap",
    "rename .log.cleaned to .log",
    "rename .index.cleaned to .index",
    "rename .timeindex.cleaned to .timeindex",
    "rename .txnindex.cleaned to .txnindex",
    "rename .seal.swap to .seal",
    "sync-directory",
)
COMPACTING = [
    *_around(
        *_fresh(".log.cleaned"),
        *_fresh(".index.cleaned"),
        *_fresh(".timeindex.cleaned"),
        *_fresh(".txnindex.cleaned"),
        *_fresh(".seal.cleaned"),
    ),
    *SWAPPING,
]
NOTING_A_FAULT = _around(*_replaced("", name="sync-failed"))
REWRITING = _around(*_fresh(".log.rewrite"), "rename .log.rewrite to .log", "remove sync-failed")
MAKING = _around("make-directory", *_replaced("", name="log-format"))
TIDYING = _around(
    "remove .log.cleaned",
    "remove .index.cleaned",
    "remove .timeindex.cleaned",
    "remove .txnindex.cleaned",
    "remove .seal.cleaned",
    "remove .seal.tmp",
    "remove .snapshot.tmp",
    "remove .tmp",
)

RECOVERING = [*TRUNCATING, *REMOVING, *SYNCING, *APPENDING[:2]]

ALL = sorted(
    {
        *APPENDING,
        *SYNCING,
        *REMOVING,
        *RAISING_LOG_START,
        *TRUNCATING,
        *COMPACTING,
        *NOTING_A_FAULT,
        *REWRITING,
        *MAKING,
        *TIDYING,
    }
)

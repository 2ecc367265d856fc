"""A program that commits to a local store until it is killed, and prints each number when it is durable."""

from __future__ import annotations

import sys

from ottla.metadata.local_store import LocalStore
from ottla.metadata.store import Commit

WINDOW = 5
"""As many commits are under way at once, so that they share transactions."""


def main(path: str) -> None:
    """Each number is written under two keys, and removes the one `WINDOW` before it under a third."""
    store = LocalStore.open(path)
    entry = store.load().entries.get("last")
    number = 0 if entry is None else int(entry.value)
    while True:
        batch = range(number + 1, number + 1 + WINDOW)
        futures = [store.submit(_commit(n)) for n in batch]
        for n, future in zip(batch, futures, strict=True):
            future.result()
            print(n, flush=True)
        number = batch[-1]


def _commit(n: int) -> Commit:
    puts = {f"left/{n}": b"%d" % n, f"right/{n}": b"%d" % n, f"passing/{n}": b"", "last": b"%d" % n}
    return Commit(puts, deletes=frozenset({f"passing/{n - 1}"}))


if __name__ == "__main__":
    main(sys.argv[1])

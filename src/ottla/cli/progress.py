"""A bar on standard error for work that takes long; nothing at all where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(doing: str, *, total: int | None, is_bytes: bool = False) -> Iterator[Advance]:
    """Give a function that is told how much more was done. `total` is None where nobody knows it.

    A bar is drawn only when standard error is a terminal and standard output is not: there, the records
    themselves show how it goes.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    counted = DownloadColumn() if is_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counted, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda amount: bar.advance(task, amount)

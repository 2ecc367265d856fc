"""What is refused about tables; each message names the table and the fix. Knows nothing of Spark."""

from __future__ import annotations

from ottla.errors import OttlaError


class TableError(OttlaError):
    """The root of what tables raise on purpose."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.path, self.problem))


class TableRefused(TableError, ValueError):
    """What was asked for does not fit the table: its schema, its keys, its partitions, or where it lies."""


class NoTable(TableError):
    """There is no table at this place."""


class DamagedTable(TableError):
    """A document of the table cannot be read, or speaks of what is not there."""


class TableFault(TableError):
    """The file system failed. Nothing is half done: the next batch finds all of this one, or nothing."""


class WriterReplaced(TableError):
    """Another process has taken over the application that this one writes for."""


class TableBusy(TableError):
    """Others were faster each time a commit was tried."""

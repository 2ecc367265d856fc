"""What the first of many batches failed with, for whoever hands over more than they can wait for one by one."""

from __future__ import annotations

from ottla.client.values import RecordPosition


class FirstFailure:
    """Waits for many batches and remembers what the first one failed with."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.error is not None

    def set_result(self, result: RecordPosition, /) -> None:
        """All is well with one more."""

    def set_exception(self, exception: Exception, /) -> None:
        self.error = exception

"""How a command ends: the exit code and the one line that says why.

0 is success, 1 something that failed, 2 a command or setting that cannot be. An interrupt ends by its signal.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal

FAILED = 1
MISUSED = 2

_ADVICE = {
    errno.EACCES: "give this user the right to it, or choose another",
    errno.EPERM: "give this user the right to it, or choose another",
    errno.EROFS: "it lies on a read-only file system; choose another, or mount it for writing",
    errno.ENOSPC: "the disk is full; make room and try again",
    errno.EDQUOT: "the quota is used up; make room and try again",
    errno.EMFILE: "raise the limit on open files (ulimit -n) and try again",
    errno.ENOTDIR: "a directory is expected",
}


class CommandFailed(Exception):
    """A command that cannot go on; the message says what to do about it."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def report(error: CommandFailed | OttlaError | OSError) -> int:
    """Say on standard error why a command failed; returns its exit code."""
    if isinstance(error, CommandFailed):
        tell(str(error))
        return error.exit_code
    tell(explained(error))
    # An argument that a client refuses before it asks a server anything is one of the two.
    return MISUSED if isinstance(error, ValueError) else FAILED


def tell(message: str) -> None:
    """One line on standard error, whatever the message has in it."""
    sys.stderr.write(f"ottla: {' '.join(message.split())}\n")
    sys.stderr.flush()


def explained(error: BaseException) -> str:
    """The message of an error, with what to do where the system's own reason lies beneath it."""
    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, Refusal) and error.code is ErrorCode.BROKER_NOT_AVAILABLE:
        return f"{message}; is the server running? --bootstrap HOST:PORT names another"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _ADVICE:
            return f"{message}: {_ADVICE[cause.errno]}"
        cause = cause.__cause__
    return message


def hush_standard_output() -> None:
    """Let what is still buffered go nowhere: whoever read our output has gone."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())

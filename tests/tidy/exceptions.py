"""Where the guide is broken on purpose, and why. A row that is no longer needed fails the suite."""

from __future__ import annotations

# (path from the root of the repository, rule): the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("src/ottla/clock.py", "banned-call"): "this is the Clock",
    (
        "src/ottla/embedded.py",
        "keyword-only",
    ): "the client's contract of a broker in this process, called at every send",
    ("src/ottla/protocol/wire.py", "keyword-only"): "called by generated readers only, where a keyword costs time",
    ("src/ottla/storage/disk.py", "banned-call"): "this is the Disk",
}

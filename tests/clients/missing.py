"""What to do when a client that is no Python package is not on this machine: skip, or fail where it must be there."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip with the reason, or fail in a run that has been told that all peers must be there."""
    if os.environ.get("REQUIRE_PEERS") == "1":
        pytest.fail(f"REQUIRE_PEERS=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def program(name: str) -> str:
    """Where a program is."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} was not found; `make setup` installs it as root")
    return found

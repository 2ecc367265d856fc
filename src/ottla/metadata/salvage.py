"""What can still be read of a damaged metadata store.

Only needed after damage, so nothing imports it at an ordinary start. The damaged files are copied and not
touched. What the entries are good for is decided in `recovery.py`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from tempfile import TemporaryDirectory

from ottla.metadata.local_store import MAIN, WAL, entry_crc

_logger = logging.getLogger(__name__)


def salvage(path: str) -> dict[str, bytes]:
    """The entries of a store that can be read and whose checksum fits."""
    found: dict[str, bytes] = {}
    with TemporaryDirectory(prefix="ottla-salvage-") as directory:
        copy = os.path.join(directory, "copy")
        for suffix in (MAIN, WAL):
            if os.path.exists(path + suffix):
                shutil.copyfile(path + suffix, copy + suffix)
        # From both ends: a damaged page in the middle hides what is behind it, seen from either.
        for order in ("ASC", "DESC"):
            try:
                with closing(sqlite3.connect(copy)) as connection:
                    for key, value in _readable(connection, order):
                        found.setdefault(key, value)
            except sqlite3.Error as error:
                _logger.info("%s: reading what is left (%s) ended at: %s", path, order, error)
    return found


def _readable(connection: sqlite3.Connection, order: str) -> Iterator[tuple[str, bytes]]:
    for key, value, crc in connection.execute(f"SELECT key, value, crc FROM entries ORDER BY rowid {order}"):
        if isinstance(key, str) and isinstance(value, bytes) and crc == entry_crc(key, value):
            yield key, value

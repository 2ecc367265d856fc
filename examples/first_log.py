"""Opens a log, appends a batch of records, and reads it back.

The log goes to the directory named on the command line, or to a temporary one that is gone afterwards.
"""

from __future__ import annotations

import sys
import tempfile

from ottla.clock import SystemClock
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.reader import read_batch
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig


def main(directory: str) -> None:
    """Append, make durable, close, open again, read."""
    clock = SystemClock()
    log = Log.open(OsDisk(), directory, config=LogConfig(), clock=clock)
    print(f"Opened a log in {directory}; its next offset is {log.end_offset}.")

    words = ["ahoy", "from", "ottla"]
    records = [(b"greeting", word.encode(), clock.now_ms(), [("language", b"en")]) for word in words]
    appended = log.append(build_batch(records, codec=Codec.LZ4), leader_epoch=0)
    log.sync()
    print(f"Appended {len(words)} records as offsets {appended.first_offset} to {appended.last_offset}, safe on disk.")
    log.close()

    log = Log.open(OsDisk(), directory, config=LogConfig(), clock=clock)
    print("Closed it, opened it again, and read:")
    for batch in log.batches(offset=appended.first_offset):
        for record in read_batch(batch.data):
            key, value = (record.key or b"").decode(), (record.value or b"").decode()
            print(f"  offset {record.offset}: {key} = {value}")
    log.close()
    print("These are Kafka's own files; src/ottla/storage/FORMAT.md explains them.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory(prefix="ottla-") as temporary:
            main(f"{temporary}/greetings-0")

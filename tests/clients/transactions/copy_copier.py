"""A copier as a program of its own, so that it can be killed: `python -m ... <errand as JSON>`.

It reads a topic as a member of a group, and writes what it read to another with the group's offsets in the same
transaction: key, value and partition stay. Every transaction has a number that its records carry, and a receipt on a
topic of its own that tells how many there are, so that a reader can check that it sees all of them or none. Some
transactions are aborted on purpose. What the copier does it says on its standard output, a line for each thing.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module

from tests.clients.groups.members import Wish

TRANSACTION_HEADER = "transaction"
RECEIPTS = ".receipts"
"""Behind a topic's name: the topic of its receipts."""
ABORTED_OF_ALL = 0.1
"""How many transactions are given up although nothing is wrong."""
POLL_MS = 100
ANSWER_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Errand:
    """Who a copier is and what it copies."""

    name: str
    """One process; no two of a test have the same."""
    client: str
    """One of `CLIENTS`."""
    address: str
    group: str
    source: str
    target: str
    transactional_id: str
    """The same in all lives of a copier. Clients that cannot say who they are in their group make one for each
    partition of it."""
    partitions: int
    transaction_records_max: int
    session_ms: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def receipts(self) -> str:
        return self.target + RECEIPTS


@dataclass(frozen=True, slots=True)
class Number:
    """The number of a transaction, and what is written of it."""

    text: str
    size: int

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [(TRANSACTION_HEADER, self.text.encode())]

    @property
    def receipt(self) -> bytes:
        return json.dumps({"transaction": self.text, "size": self.size}).encode()

    def receipt_partition(self, partitions: int) -> int:
        return len(self.text) * 31 % partitions


class Notes:
    """What a copier says of itself, written at once: a kill takes nothing back."""

    def __init__(self, descriptor: int, errand: Errand) -> None:
        self._descriptor = descriptor
        self._errand = errand
        self._count = 0
        self._chance = random.Random(errand.name)
        self.is_started = False

    def started(self) -> None:
        self.is_started = True
        self._say("started")

    def begin(self, size: int) -> Number:
        """A new transaction; to be called before anything of it is sent."""
        self._count += 1
        number = Number(f"{self._errand.name}/{self._count}", size)
        self._say("begun", number=number.text, size=size)
        return number

    def is_to_abort(self) -> bool:
        """Whether this one is to be given up on purpose."""
        return self._chance.random() < ABORTED_OF_ALL

    def committed(self, number: Number) -> None:
        self._say("committed", number=number.text)

    def aborted(self, number: Number, why: str) -> None:
        """To be called when the broker has acknowledged that."""
        self._say("aborted", number=number.text, what=why)

    def fenced(self, what: str) -> None:
        """Somebody else has the transactional id, or has the partition."""
        self._say("fenced", what=what)

    def trouble(self, what: str) -> None:
        """Something that a copier lives with."""
        self._say("trouble", what=what)

    def fatal(self, what: str) -> None:
        """Something that it does not live with: whoever started it has to start it anew."""
        self._say("fatal", what=what)

    def left(self) -> None:
        self._say("left")

    def _say(self, event: str, **facts: object) -> None:
        line = json.dumps({"at": time.monotonic_ns(), "event": event, **facts}) + "\n"
        os.write(self._descriptor, line.encode())


Run = Callable[[Errand, Notes, Wish], None]

CLIENTS = {
    "aiokafka": "copy_aiokafka:run",
    "confluent": "copy_confluent:run_classic",
    "confluent-consumer": "copy_confluent:run_consumer",
    "kafka-python": "copy_kafka_python:run",
    "ottla": "copy_ottla:run_classic",
    "ottla-consumer": "copy_ottla:run_consumer",
}
"""Each client, by the function that runs it; imported by who runs it only."""


def main(text: str) -> None:
    # What a client prints by itself goes where its log goes; the notes have the real standard output for themselves.
    descriptor = os.dup(1)
    os.dup2(2, 1)
    wish = Wish()
    errand = Errand(**json.loads(text))
    module, name = CLIENTS[errand.client].split(":")
    run: Run = getattr(import_module(f"{__package__}.{module}"), name)
    notes = Notes(descriptor, errand)
    try:
        run(errand, notes, wish)
    except Exception as error:
        # Most clients do not wait for a server that is down when they start.
        if notes.is_started:
            raise
        notes.fatal(f"not started: {error!r}")


if __name__ == "__main__":
    main(sys.argv[1])

"""A member of a consumer group as a program of its own, so that it can be killed: `python -m ... <spec as JSON>`.

It says on its standard output, a line for each thing as it happens, what it was given, processed and committed.
The clients are in `members_confluent`, `members_kafka_python` and `members_aiokafka`; what happens to a member from
outside is in `churn_members`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib import import_module

Place = tuple[str, int]
"""A topic and the number of a partition."""

COMMIT_RECORDS_MAX = 20
"""How many records a member processes before it commits."""
POLL_MS = 100
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Spec:
    """Who a member is and what it does."""

    name: str
    client: str
    """One of `CLIENTS`."""
    address: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Subscribes by this instead of by names."""
    instance: str | None = None
    """Makes it a static member."""
    session_ms: int = 3_000
    heartbeat_ms: int = 300

    @property
    def owner(self) -> str:
        """Who owns what this process is given: a static member is the same one in all its lives."""
        return self.name if self.instance is None else self.instance

    def again(self, name: str) -> Spec:
        """The same member in a new process."""
        return replace(self, name=name)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        fields = json.loads(text)
        return cls(**{**fields, "topics": tuple(fields["topics"])})


class Notes:
    """What a member says of itself, written at once: a kill takes nothing back."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.held: set[Place] = set()
        self.uncommitted: dict[Place, int] = {}
        """Where the next record is, for each partition with records that are processed and not committed."""
        self._since_commit = 0

    def started(self) -> None:
        self._say("started")

    def assigned(self, places: Iterable[Place], generation: int) -> None:
        self.held.update(places)
        self._say("assigned", held=sorted(self.held), generation=generation)

    def revoked(self, places: Iterable[Place], generation: int) -> None:
        """To be called when the member has stopped to use them, and before anybody is told so."""
        gone = set(places)
        self.held -= gone
        for place in gone:
            self.uncommitted.pop(place, None)
        # Who has no generation was shut out some time ago: others may have had the partitions since.
        self._say("lost" if generation == NO_GENERATION and gone else "revoked", held=sorted(self.held))

    def lost(self, places: Iterable[Place]) -> None:
        self.revoked(places, NO_GENERATION)

    def processed(self, place: Place, offset: int, value: bytes) -> None:
        self.uncommitted[place] = offset + 1
        self._say("processed", place=place, offset=offset, value=value.decode())

    def is_commit_due(self, *, is_idle: bool) -> bool:
        return bool(self.uncommitted) and (is_idle or self._since_commit >= COMMIT_RECORDS_MAX)

    def committed(self, offsets: dict[Place, int]) -> None:
        """The broker has acknowledged these."""
        for place, offset in offsets.items():
            if self.uncommitted.get(place) == offset:
                del self.uncommitted[place]
        self._since_commit = 0
        self._say("committed", offsets=[[*place, offset] for place, offset in sorted(offsets.items())])

    def trouble(self, what: str) -> None:
        """Something that a member lives with."""
        self._say("trouble", what=what)

    def fatal(self, what: str) -> None:
        """Something that it does not live with: whoever started it has to start it anew."""
        self._say("fatal", what=what)

    def left(self) -> None:
        """To be called when it will process nothing more, and before the group is told so."""
        self.held.clear()
        self._say("left", held=[])

    def _say(self, event: str, **facts: object) -> None:
        if event == "processed":
            self._since_commit += 1
        line = json.dumps({"at": time.monotonic_ns(), "event": event, **facts}) + "\n"
        os.write(self._descriptor, line.encode())


class Wish:
    """Whether a member is to go on: until it is asked to leave, or nobody is there any more to ask it."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._is_asked_to_leave = False
        signal.signal(signal.SIGTERM, self._ask)

    @property
    def is_to_stay(self) -> bool:
        return not self._is_asked_to_leave and os.getppid() == self._parent

    def _ask(self, *_: object) -> None:
        self._is_asked_to_leave = True


Run = Callable[[Spec, Notes, Wish], None]

CLIENTS = {
    "confluent-range": "members_confluent:run_range",
    "confluent-cooperative": "members_confluent:run_cooperative",
    "confluent-consumer": "members_confluent:run_consumer",
    "kafka-python-range": "members_kafka_python:run_range",
    "kafka-python-cooperative": "members_kafka_python:run_cooperative",
    "aiokafka-range": "members_aiokafka:run_range",
    "aiokafka-roundrobin": "members_aiokafka:run_roundrobin",
}
"""Each client in each of its ways, by the function that runs it; imported by who runs it only."""


def main(text: str) -> None:
    # What a client prints by itself goes where its log goes; the notes have the real standard output for themselves.
    descriptor = os.dup(1)
    os.dup2(2, 1)
    wish = Wish()
    spec = Spec.from_json(text)
    module, name = CLIENTS[spec.client].split(":")
    run: Run = getattr(import_module(f"{__package__}.{module}"), name)
    run(spec, Notes(descriptor), wish)


if __name__ == "__main__":
    main(sys.argv[1])

"""The raw client for several brokers at once: it knows which of them has a partition. Run as a client of `phases`.

Each connection keeps to one partition, so it goes to the one broker that has it, as a Kafka client's would once
metadata had told it so.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from bench.peers.phases import serve
from bench.peers.raw_client import Asked, Line, RawClient, frame


class WatchedLine(Line):
    """One connection, which says what came when more came than was asked for: some answer had another size."""

    def receive(self) -> int:
        count = super().receive()
        if self.open < 0:
            raise ConnectionError(f"{-self.open} answers too many, of {self._answer_bytes} B: {self._buffer[:300]!r}")
        return count


class SharedOutClient(RawClient):
    """One connection for each partition."""

    def __init__(self, asked: Asked, places: list[tuple[int, int]]) -> None:
        self._asked = asked
        self._lines = [WatchedLine(replace(asked, port=port), [frame(asked, partition)]) for partition, port in places]


def main(text: str) -> None:
    """Append when told to."""
    told = json.loads(text)
    places = [(int(partition), int(port)) for partition, port in told.pop("places")]
    serve(SharedOutClient(Asked(**told), places).run)


if __name__ == "__main__":
    main(sys.argv[1])

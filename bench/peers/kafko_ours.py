"""Our side of the comparison with kafko: `ottla.open` in a program that appends as it is told to.

python -m bench.peers.kafko_ours DIRECTORY

Speaks like `kafko/src/main.rs`: each line `RECORDS CALLS` is that many calls with that many records each, one after
the other, answered with the nanoseconds that they took together. The offset of every answer is checked.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns

import ottla

VALUE_BYTES = 256
TOPIC = "bench"


def main(directory: str) -> None:
    """Append until there are no more orders."""
    value, written = bytes(VALUE_BYTES), 0
    with ottla.open(directory) as client, client.producer(acks=1) as producer:
        client.admin().create_topic(TOPIC)
        print("ready", flush=True)
        for line in sys.stdin:
            records, calls = map(int, line.split())
            begun = perf_counter_ns()
            for _ in range(calls):
                written += records
                if records == 1:
                    last = producer.send(TOPIC, value)
                else:
                    last = producer.send_batch(TOPIC, [value] * records)[-1]
                assert last.offset == written - 1, f"the last of {written} records got offset {last.offset}"
            print(perf_counter_ns() - begun, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

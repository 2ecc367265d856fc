"""Brings all that the tests against other programs need and that can be had only once; `make test` runs it first.

Before the tests start, so that the wait is seen. A failure is theirs to report.
"""

from __future__ import annotations

import contextlib

from tests.peers import kafka, kafka_start, spark_connector, spark_start
from tests.peers.maven import PeerMissing


def main() -> None:
    for bring in (kafka.jars, spark_connector.jars, kafka_start.bring, spark_start.bring):
        with contextlib.suppress(PeerMissing):
            bring(lambda line: print(f"ottla: {line}", flush=True))


if __name__ == "__main__":
    main()

"""Several brokers as one process tree: each its own data directory and port, started together and ended together.

python -m bench.peers.processes_group DIRECTORY PORT...

Nothing joins them: which of them has a partition is the client's business. Made for an experiment, never a product.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.peers.servers import ottla_command


def main(directory: str, *ports: str) -> int:
    """Run until told to end, or until one of them ends by itself."""
    brokers: list[subprocess.Popen[bytes]] = []

    told: list[subprocess.Popen[bytes]] = []

    def end(*_: object) -> None:
        # Each once: a second signal would cut short what the first began.
        for broker in brokers:
            if broker not in told:
                told.append(broker)
                broker.terminate()

    signal.signal(signal.SIGTERM, end)
    for number, port in enumerate(ports):
        place = Path(directory) / str(number)
        place.mkdir()
        brokers.append(subprocess.Popen(ottla_command(place, int(port), {})))
    # Where one could not start, whoever listens on its port in its stead must not be measured.
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    end()
    return max(abs(broker.wait()) for broker in brokers)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

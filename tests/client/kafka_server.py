"""Apache Kafka's own broker on loopback, for tests of our client against it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.peers.tools import Tools

START_SECONDS_MAX = 120
CLUSTER_ID = "b3R0bGEtdGVzdC1jbHVzdA"
SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}{listeners}
controller.listener.names=CONTROLLER
log.dirs={directory}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


@contextmanager
def kafka_server(
    tools: Tools, root: Path, settings: str = "", features: Sequence[str] = (), listeners: Sequence[str] = ()
) -> Iterator[str]:
    """The address of a broker that runs until the block ends.

    `settings` are further lines of its properties, `features` levels (`name=level`) that differ from the release's own,
    `listeners` doors beside the plain one (`NAME://host:port`).
    """
    broker, controller = _free_ports()
    server = root / "server.properties"
    more = "".join(f",{listener}" for listener in listeners)
    text = SERVER.format(broker=broker, controller=controller, directory=root / "data", listeners=more)
    server.write_text(text + settings, encoding="utf-8")
    levels = [word for level in features for word in ("--feature", level)]
    tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(server), *levels)
    output = root / "server.log"
    with tools.background("kafka.Kafka", str(server), output=output) as process:
        never = threading.Event()
        for _ in range(START_SECONDS_MAX * 10):
            if process.poll() is not None or _answers(broker):
                break
            never.wait(0.1)
        assert _answers(broker), output.read_text(encoding="utf-8")[-2000:]
        yield f"127.0.0.1:{broker}"


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]

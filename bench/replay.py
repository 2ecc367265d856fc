"""The broker's CPU seconds for a GB of what Kafka's own client sends for six partitions, sent without that client.

python -m bench.replay                      this working copy
python -m bench.replay . ../other           two working copies in turns, each with its kernel built
python -m bench.replay --pause-us 2000      a pause behind each pass, in which the processor's caches forget

The same requests go out again and again, several at once as such a client has them under way, and the next when all
are answered. No JVM computes beside it, so a change of a few percent can be told from none.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench.append import workplace
from bench.network import ask, connect, start_process, take_answers
from bench.peers import free_memory
from bench.spark_cpu import Meter, Spent
from ottla.clock import SystemClock
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import build_batch

HERE = Path(__file__).resolve().parent.parent
TOPIC, PARTITIONS = "replay", 6
RECORDS, RECORD_BYTES = 15, 1_000
"""A batch of 16 KB, as Kafka's client makes them by default."""
COUNTS = (3, 4, 3, 4)
"""How many partitions each request of a pass has batches for; each pass begins with another one."""
BATCHES = sum(COUNTS)
LATEST = -1
VERSION = 12
GB = 1_000_000_000


def main() -> int:
    """Measure in turns, and print every round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[HERE], help="working copies; this one when left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--gigabytes", type=float, default=2.0, help="in each round, after a quarter as much unmeasured"
    )
    parser.add_argument("--pause-us", type=int, default=0, help="behind each pass")
    parser.add_argument("--directory", type=Path, default=HERE / ".cache" / "bench", help="a real disk")
    options = parser.parse_args()
    taken: dict[Path, list[float]] = {tree: [] for tree in options.trees}
    for number in range(1, options.rounds + 1):
        for tree, figures in taken.items():
            with workplace(options.directory) as directory:
                spent = replay(tree, directory, gigabytes=options.gigabytes, pause_us=options.pause_us)
            figures.append(spent.seconds / options.gigabytes)
            kernel = spent.kernel_seconds / options.gigabytes
            print(f"round {number}, {tree}: {figures[-1]:.2f} s a GB, {kernel:.2f} of it in the kernel", flush=True)
    for tree, figures in taken.items():
        print(f"{tree}: {statistics.median(figures):.2f} s a GB")
    return 0


def replay(tree: Path, directory: Path, *, gigabytes: float, pause_us: int) -> Spent:
    """What a broker of this working copy computes for so much."""
    # Else the one whose memory went back to the machine's host pays for that.
    free_memory.settle(is_quick=False)
    with ExitStack() as stack:
        command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0"]
        environment = os.environ | {"PYTHONPATH": str(tree.resolve() / "src")}
        process, bootstrap = start_process(stack, command, environment=environment)
        connection = connect(stack, bootstrap)
        _create_topic(connection)
        passes = _passes()
        batches = _send(connection, passes, size=gigabytes / 4, pause_us=pause_us)
        meter = Meter(process.pid)
        batches += _send(connection, passes, size=gigabytes, pause_us=pause_us)
        spent = meter.spent()
        held = _records(connection)
        if held != batches * RECORDS:
            raise RuntimeError(f"{batches * RECORDS} records were sent, the topic holds {held}")
        process.terminate()
        process.wait()
    return spent


def _create_topic(connection: socket.socket) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    answer = ask(connection, ApiKey.CREATE_TOPICS, 7, request)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0].error_message


def _passes() -> list[bytes]:
    """What goes out at once, in turns."""
    now_ms = SystemClock().now_ms()
    records = bytes(build_batch([(None, os.urandom(RECORD_BYTES), now_ms, ()) for _ in range(RECORDS)]))
    client = ClientConnection("producer-1")

    def request(first: int, count: int) -> bytes:
        data = [PartitionProduceData((first + at) % PARTITIONS, records) for at in range(count)]
        message = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(TOPIC, partition_data=data)])
        return b"".join(client.send(ApiKey.PRODUCE, VERSION, message)[1])

    return [b"".join(request(first + at, count) for at, count in enumerate(COUNTS)) for first in range(PARTITIONS)]


def _records(connection: socket.socket) -> int:
    """How many the topic holds."""
    partitions = [ListOffsetsPartition(index, timestamp=LATEST) for index in range(PARTITIONS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(TOPIC, partitions)])
    answer = ask(connection, ApiKey.LIST_OFFSETS, 7, request)
    assert isinstance(answer, ListOffsetsResponse)
    return sum(each.offset for each in answer.topics[0].partitions)


def _send(connection: socket.socket, passes: list[bytes], *, size: float, pause_us: int) -> int:
    """Send them until it is so many GB: how many batches that were."""
    sent, turn = 0, 0
    while sent < size * GB:
        connection.sendall(passes[turn % PARTITIONS])
        sent += len(passes[turn % PARTITIONS])
        turn += 1
        _receive(connection)
        if pause_us:
            time.sleep(pause_us / 1_000_000)
    return turn * BATCHES


def _receive(connection: socket.socket) -> None:
    """All answers of a pass."""
    came, left = b"", len(COUNTS)
    while left:
        done, came = take_answers(came + connection.recv(1 << 16))
        left -= done


if __name__ == "__main__":
    sys.exit(main())

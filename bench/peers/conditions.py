"""Under what conditions a run was taken: the machine, the disk, versions, the commands without this machine's paths."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import ottla
from bench import append
from bench.peers import java, kafko_rows, latency, nats, perf_tools, redis, servers
from bench.peers.contract import Pace
from bench.peers.launch import HOST
from bench.peers.policies import ACKS_1
from bench.peers.raw import WINDOW
from scripts import machine
from tests.peers import kafka
from tests.peers.maven import PeerMissing

PORT = 9092
TOPIC = "TOPIC"
JAVA = ("java", "-cp", "'libs/*'")
DESCRIBED: Mapping[str, Callable[[], str]] = {
    "Redis server": redis.described,
    "nats-server": nats.described,
    "kafko": kafko_rows.described,
}


def facts(directory: Path, pace: Pace, kept: Sequence[str] = ()) -> list[str]:
    """One line each. Of a peer that is not there now, what was kept of an earlier run: its rows still stand."""
    with append.workplace(directory) as place:
        disk = append.describe_disk(place)
    heap = " ".join(servers.JVM)
    return [
        machine.describe(),
        disk,
        f"ottla {ottla.__version__}, {machine.versions('uvloop', 'confluent-kafka')}, librdkafka {_librdkafka()}",
        _java(),
        f"Apache Kafka {kafka.KAFKA_VERSION}, one combined KRaft node, started with `{heap}`, its own defaults",
        *others(kept),
        f"Ottla and Kafka: `{', '.join(f'{name}={value}' for name, value in servers.EQUAL.items())}`",
        f"warm-up: {pace.warm_up_s:g} s of work before a session's first timed part, before each run of the raw client;"
        f" {pace.again_s:g} s of its own work before each further row of a session; it goes on until the work goes no"
        f" faster; timed for {pace.timed_s:g} s, the most from a producer to a reader for"
        f" {pace.timed_s * latency.MOST_TIMES:g} s, latencies for {latency.PIECES} pieces of"
        f" {pace.timed_s * latency.WAIT_TIMES / latency.PIECES:g} s, of which each percentile is the median; the"
        f" producer of Kafka's tools warms up for about {pace.warm_up_s * java.WARM_UPS:g} s in each run, until its"
        f" compiler is done, and is timed for about {pace.timed_s * java.TIMES:g} s",
        "fifty producers are fifty instances of librdkafka in one process, fed in turns by one thread; twenty consumers"
        " likewise; a JVM for each of fifty would not fit on two cores, so Kafka's tools run one producer",
    ]


def commands() -> list[str]:
    """Exact but for the directory, the port and the name of the topic."""
    records, warm_up = java.tool_records(1_000, ACKS_1, Pace())
    produce = perf_tools.producer_arguments(
        bootstrap=f"{HOST}:{PORT}", topic=TOPIC, acks=ACKS_1.acks, size=1_000, records=records, warm_up_records=warm_up
    )
    consume = perf_tools.consumer_arguments(bootstrap=f"{HOST}:{PORT}", topic=TOPIC, records=1_000_000)
    raw = (
        f'{{"host": "{HOST}", "port": {PORT}, "topic": "{TOPIC}", "partitions": 1, "connections": 8, '
        f'"window": {WINDOW}, "acks": 1, "size": 100}}'
    )
    return [
        "make bench-peers ARGS=--write",
        "python -m bench.peers --only raw-acks1-100b-1c --write",
        "",
        "# the brokers",
        " ".join(["python", *servers.ottla_command(Path("DIRECTORY"), PORT, {})[1:]]),
        "java -cp 'libs/*' kafka.tools.StorageTool format -t CLUSTER-ID -c server.properties",
        f"java {' '.join(servers.JVM)} -cp 'libs/*' kafka.Kafka server.properties",
        "",
        "# server.properties",
        *servers.kafka_properties(Path("DIRECTORY"), port=PORT, controller=PORT + 1).splitlines(),
        "",
        "# the clients",
        " ".join([*JAVA, perf_tools.PRODUCER, *produce]),
        " ".join([*JAVA, perf_tools.CONSUMER, *consume]),
        f"echo 3 | python -m bench.peers.raw_client '{raw}'",
        f"echo 3 | python -m bench.peers.rdkafka_produce "
        f'\'{{"bootstrap": "{HOST}:{PORT}", "topic": "{TOPIC}", "acks": "1", "producers": 1, "size": 1000}}\'',
    ]


def others(kept: Sequence[str], described: Mapping[str, Callable[[], str]] = DESCRIBED) -> list[str]:
    """The other peers by their own words, the first of which is the key; brings none."""
    found: list[str] = []
    for name, describe in described.items():
        try:
            found.append(describe())
        except PeerMissing:
            found += [line for line in kept if line.startswith(name)]
    return found


def _librdkafka() -> str:
    from confluent_kafka import libversion

    return libversion()[0]


def _java() -> str:
    try:
        told = subprocess.run([kafka.java(), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except PeerMissing:
        return "no Java"
    return next((line for line in told.stderr.splitlines() if " version " in line), "Java").replace('"', "")

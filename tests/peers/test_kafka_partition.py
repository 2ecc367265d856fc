"""A partition that a real Kafka broker wrote opens as a log of ours, and one of ours is served by a real broker.

One broker on loopback serves all tests. It is started twice: Kafka's own producers write a topic, the broker stops,
the partition is copied and then replaced by one that we wrote, and the broker starts again.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.clock import ManualClock
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, parse_marker
from ottla.storage import producer_snapshot
from ottla.storage.disk import OsDisk
from ottla.storage.layout import METADATA_FILE, decode_metadata
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_state import ProducerEntry
from ottla.storage.recovery import EPOCHS_FILE
from tests.peers.tools import Tools
from tests.storage.workbench import CODECS, NOW_MS, batch, marker, records_of, sequenced

pytestmark = [pytest.mark.peers, pytest.mark.slow]

TOPIC = "mixed"
CLUSTER_ID = "b3R0bGEtdGVzdC1jbHVzdA"
SEGMENT_BYTES = 60_000
LINES_PER_CODEC = 300
TRANSACTIONAL_RECORDS = 200
PAYLOAD = "a payload of the performance tool"
OURS_COMMITTED = 63
"""Records in our partition that a read_committed consumer sees."""

SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={directory}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""
# A client that is there before the broker should notice soon when that comes.
CLIENT = "reconnect.backoff.ms=20\nreconnect.backoff.max.ms=100\nretry.backoff.ms=20\nretry.backoff.max.ms=100\n"


@dataclass(frozen=True)
class Sent:
    """A line that was given to Kafka's console producer."""

    key: str
    value: str


@dataclass(frozen=True)
class Story:
    """What happened with the broker."""

    theirs: Path
    """The partition as the broker left it."""
    sent: Sequence[Sent]
    ours: Path
    """The partition of ours that the broker was given."""
    consumed: str
    """What Kafka's console consumer printed of it."""


def _lines(codec: Codec) -> list[Sent]:
    name = codec.name.lower()
    return [
        Sent(f"{name}-{number}", hashlib.sha256(f"{name} {number}".encode()).hexdigest() * (1 + number % 9))
        for number in range(LINES_PER_CODEC)
    ]


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _produce(tools: Tools, address: str, root: Path) -> None:
    """Create the topic and fill it, with one producer after the other."""
    client = root / "client.properties"
    client.write_text(CLIENT, encoding="utf-8")
    tools.run(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", address, "--command-config", str(client)),
        *("--create", "--topic", TOPIC, "--partitions", "1"),
        # Kafka's users cannot go below a mebibyte; its own tests can, with this.
        *("--config", f"internal.segment.bytes={SEGMENT_BYTES}"),
    )
    for codec in CODECS:
        tools.run(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", address, "--topic", TOPIC, "--compression-codec", codec.name.lower()),
            *("--reader-property", "parse.key=true", "--batch-size", "3000"),
            text="".join(f"{line.key}\t{line.value}\n" for line in _lines(codec)),
        )
    payload = root / "payload.txt"
    payload.write_text(PAYLOAD, encoding="utf-8")
    tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", address, "--topic", TOPIC, "--payload-file", str(payload)),
        *("--num-records", str(TRANSACTIONAL_RECORDS), "--throughput", "-1", "--transaction-duration-ms", "10"),
    )


def _write_ours(directory: Path) -> None:
    """A partition with every codec, several segments, and an aborted transaction among committed records."""
    config = LogConfig(segment_bytes=500, index_interval_bytes=200)
    log = Log.open(OsDisk(), str(directory), config=config, clock=ManualClock(NOW_MS))
    for codec in CODECS:
        log.append(batch(*(b"%d" % n for n in range(12)), codec=codec), leader_epoch=0)
    log.append(sequenced(7, 0, count=3, transactional=True), leader_epoch=0)
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    log.roll()
    log.append(sequenced(7, 3, count=3, transactional=True), leader_epoch=0)
    log.append(marker(7, MarkerType.COMMIT), leader_epoch=0)
    log.close()
    assert len(log.segments) >= 3


def _act(tools: Tools, root: Path) -> None:
    """Run the broker twice, and leave both partitions and what was consumed in `root`."""
    broker, controller = _free_ports()
    address = f"127.0.0.1:{broker}"
    data, theirs, ours = root / "data", root / "theirs-0", root / "ours-0"
    server = root / "server.properties"
    server.write_text(SERVER.format(broker=broker, controller=controller, directory=data), encoding="utf-8")
    tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(server))
    with tools.background("kafka.Kafka", str(server), output=root / "first.log"):
        _produce(tools, address, root)
    partition = data / f"{TOPIC}-0"
    partition.rename(theirs)
    _write_ours(ours)
    shutil.copytree(ours, partition)
    shutil.copy(theirs / METADATA_FILE, partition)
    # Without its mark of a clean stop the broker looks at every segment that it finds.
    (data / ".kafka_cleanshutdown").unlink()
    with tools.background("kafka.Kafka", str(server), output=root / "second.log"):
        consumed = tools.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", address, "--topic", TOPIC, "--partition", "0", "--offset", "earliest"),
            *("--isolation-level", "read_committed", "--max-messages", str(OURS_COMMITTED), "--timeout-ms", "60000"),
            *("--formatter-property", "print.offset=true", "--formatter-property", "print.key=true"),
        )
    (root / "consumed.txt").write_text(consumed, encoding="utf-8")


@pytest.fixture(scope="module")
def story(shared_directory: Path, java: Path, kafka_jars: Path) -> Story:
    """One broker for all processes of the test run: the first that comes runs it, the others wait."""
    root = shared_directory / "kafka-partition"
    with open(f"{root}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "consumed.txt").exists():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            _act(Tools(java, kafka_jars), root)
    sent = [line for codec in CODECS for line in _lines(codec)]
    return Story(root / "theirs-0", sent, root / "ours-0", (root / "consumed.txt").read_text(encoding="utf-8"))


@pytest.fixture
def copy(story: Story, tmp_path: Path) -> Path:
    """A copy of the partition that Kafka wrote, to open."""
    return Path(shutil.copytree(story.theirs, tmp_path / f"{TOPIC}-0"))


def _open(directory: Path) -> Log:
    return Log.open(OsDisk(), str(directory), config=LogConfig(), clock=ManualClock(NOW_MS))


# --- Kafka's partition, opened by us -----------------------------------------------------------------


def test_kafkas_partition_opens_whole(copy: Path) -> None:
    log = _open(copy)
    assert (log.recovery.damage, log.recovery.cut_bytes) == ([], 0)
    assert log.size == sum(path.stat().st_size for path in copy.glob("*.log"))
    assert len(log.segments) >= 4
    assert {Codec(found.header.codec) for found in log.batches(offset=0)} == set(CODECS)


def test_the_records_of_kafkas_partition_are_those_that_were_sent(story: Story, copy: Path) -> None:
    log = _open(copy)
    expected = [(offset, line.key, line.value) for offset, line in enumerate(story.sent)]
    read = records_of(log)[: len(expected)]
    assert [(r.offset, (r.key or b"").decode(), (r.value or b"").decode()) for r in read] == expected


def test_the_transactions_in_kafkas_partition_are_read_with_their_markers(story: Story, copy: Path) -> None:
    log = _open(copy)
    behind = list(log.batches(offset=len(story.sent)))
    assert {found.header.is_transactional for found in behind} == {True}
    markers = [parse_marker(found.data) for found in behind if found.header.is_control]
    assert {found.marker_type for found in markers if found is not None} == {MarkerType.COMMIT}
    values = [record.value for record in records_of(log, offset=len(story.sent))]
    assert values.count(PAYLOAD.encode()) == TRANSACTIONAL_RECORDS == len(values) - len(markers)
    assert log.first_unstable_offset(log.end_offset) is None


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_that_we_build_are_kafkas_byte_for_byte(story: Story, copy: Path, suffix: str) -> None:
    for path in copy.glob("*index"):
        path.unlink()
    log = _open(copy)
    sealed = [segment for segment in log.segments if segment.seal is not None]
    assert len(sealed) >= 3
    for segment in sealed:
        name = Path(segment.path(suffix)).name
        assert (copy / name).read_bytes() == (story.theirs / name).read_bytes() != b"", name


def test_the_leader_epochs_that_we_find_are_kafkas_byte_for_byte(story: Story, copy: Path) -> None:
    (copy / EPOCHS_FILE).unlink()
    _open(copy)
    assert (copy / EPOCHS_FILE).read_bytes() == (story.theirs / EPOCHS_FILE).read_bytes()


def test_the_producers_that_we_find_are_those_of_kafkas_snapshot(story: Story, copy: Path) -> None:
    newest = max(story.theirs.glob("*.snapshot"))
    theirs = producer_snapshot.decode(newest.read_bytes())
    for path in copy.glob("*.snapshot"):
        path.unlink()
    log = _open(copy)
    assert int(newest.stem) == log.end_offset
    assert {_stand(entry) for entry in log.producers.entries} == {_stand(entry) for entry in theirs}


def _stand(entry: ProducerEntry) -> tuple[object, ...]:
    """What Kafka's format keeps of a producer. A marker moves its time on, so that of the last batch is left out."""
    last = entry.batches[-1][:3] if entry.batches else None
    return entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset, last


def test_kafkas_partition_metadata_is_read(story: Story) -> None:
    path = story.theirs / METADATA_FILE
    assert decode_metadata(path.read_bytes(), str(path)).topic_id.version == 4


def test_kafkas_partition_can_be_written_on_and_closed(story: Story, copy: Path) -> None:
    log = _open(copy)
    end_offset = log.end_offset
    log.append(batch(b"from us"), leader_epoch=1)
    log.close()
    log = _open(copy)
    assert (log.recovery.clean, log.end_offset) == (True, end_offset + 1)
    assert [record.value for record in records_of(log, offset=end_offset)] == [b"from us"]


# --- our partition, served by Kafka ------------------------------------------------------------------


def test_kafka_serves_the_committed_records_of_our_partition(story: Story) -> None:
    consumed = re.findall(r"^Offset:(\d+)\t([^\t]*)\t(.*)$", story.consumed, re.MULTILINE)
    log = Log.open(OsDisk(), str(story.ours), config=LogConfig(), clock=ManualClock(NOW_MS))
    (aborted,) = log.aborted_transactions(offset=0, end_offset=log.end_offset)
    hidden = {*range(aborted.first_offset, aborted.last_offset + 1), log.end_offset - 1}
    expected = [
        (str(record.offset), (record.key or b"").decode(), (record.value or b"").decode())
        for record in records_of(log)
        if record.offset not in hidden
    ]
    assert len(expected) == OURS_COMMITTED
    assert consumed == expected

"""Logs between us and two other Kafka libraries, both ways, for every codec.

Their parsers read what a log of ours hands out, and the files as they stand; a log takes and gives back what their
builders make.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from msgspec.structs import replace

from ottla.records.batch import peek
from ottla.records.compression import Codec
from ottla.records.control import MarkerType
from ottla.records.reader import Record
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from tests.storage.workbench import CODECS, NOW_MS, Workbench, batch, marker, records_of, sequenced

with warnings.catch_warnings():
    # While it is imported, kafka-python reads its resources in a way that Python 3.11 warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_python_codecs
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

READERS = {"aiokafka": AiokafkaRecords, "kafka-python": KafkaPythonRecords}
BUILDERS = {"aiokafka": AiokafkaBuilder, "kafka-python": KafkaPythonBuilder}
LIBRARIES: dict[Codec, Callable[[], bool]] = {
    Codec.SNAPPY: kafka_python_codecs.has_snappy,
    Codec.ZSTD: kafka_python_codecs.has_zstd,
}
BATCHES = 12
PER_BATCH = 40


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(OsDisk(), str(tmp_path / "topic-0"))


def _require_codec(peer: str, codec: Codec) -> None:
    """kafka-python has libraries of its own for two codecs, which may be missing."""
    if peer == "kafka-python" and codec in LIBRARIES and not LIBRARIES[codec]():
        pytest.skip(f"kafka-python has no library for {codec.name.lower()} here")


def _value(number: int) -> bytes:
    return b"value %d " % number * (number % 9)


def _open(bench: Workbench) -> Log:
    return bench.open(segment_bytes=2_000, index_interval_bytes=300)


def _fill(log: Log, codec: Codec) -> None:
    """Several segments of one codec."""
    for number in range(BATCHES):
        values = (_value(number * PER_BATCH + n) for n in range(PER_BATCH))
        log.append(batch(*values, key=b"k%d" % number, timestamp_ms=NOW_MS + number, codec=codec), leader_epoch=0)
    log.roll()
    log.append(batch(b"last", codec=codec), leader_epoch=1)
    assert len(log.segments) >= 2


def _seen(reader: Any, data: bytes) -> Iterator[Record]:
    """What a peer's parser finds in a run of batches."""
    records = reader(data)
    while records.has_next():
        found = records.next_batch()
        assert found.validate_crc()
        for record in found:
            headers = tuple(tuple(pair) for pair in record.headers)
            yield Record(record.offset, record.timestamp, record.key, record.value, headers)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("peer", READERS)
def test_a_peer_reads_what_our_log_hands_out(bench: Workbench, peer: str, codec: Codec) -> None:
    _require_codec(peer, codec)
    log = _open(bench)
    _fill(log, codec)
    seen: list[Record] = []
    while not seen or seen[-1].offset + 1 < log.end_offset:
        offset = seen[-1].offset + 1 if seen else 0
        seen += _seen(READERS[peer], log.read(offset=offset, bytes_max=1_500))
    assert seen == records_of(log)
    assert [record.value for record in seen[:-1]] == [_value(n) for n in range(BATCHES * PER_BATCH)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("peer", READERS)
def test_a_peer_reads_our_segment_files_as_they_stand(bench: Workbench, peer: str, codec: Codec) -> None:
    _require_codec(peer, codec)
    log = _open(bench)
    _fill(log, codec)
    expected = records_of(log)
    log.close()
    seen: list[Record] = []
    for path in sorted(Path(bench.directory).glob("*.log")):
        seen += _seen(READERS[peer], path.read_bytes())
    assert seen == expected


def _built(peer: str, codec: Codec, *, first: int, **fields: Any) -> bytes:
    """A batch as a peer's producer would send it."""
    chosen = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **fields}
    builder = BUILDERS[peer](magic=2, compression_type=int(codec), batch_size=2**30, **chosen)
    for delta in range(PER_BATCH):
        number = first + delta
        builder.append(delta, NOW_MS + number, b"k%d" % number, _value(number), [("h", b"%d" % number)])
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("peer", BUILDERS)
def test_our_log_keeps_what_a_peer_builds(bench: Workbench, peer: str, codec: Codec) -> None:
    _require_codec(peer, codec)
    log = _open(bench)
    for first in range(0, BATCHES * PER_BATCH, PER_BATCH):
        given = _built(peer, codec, first=first)
        assert peek(given).codec == codec
        log.append(given, leader_epoch=0)
    log.close()
    expected = [Record(n, NOW_MS + n, b"k%d" % n, _value(n), (("h", b"%d" % n),)) for n in range(BATCHES * PER_BATCH)]
    assert records_of(_open(bench)) == expected


@pytest.mark.parametrize("peer", BUILDERS)
def test_our_log_recognises_a_batch_that_a_peers_producer_sends_again(bench: Workbench, peer: str) -> None:
    log = _open(bench)
    given = _built(peer, Codec.GZIP, first=0, producer_id=7, producer_epoch=0, base_sequence=0)
    first = log.append(given, leader_epoch=0)
    assert log.append(given, leader_epoch=0) == replace(first, repeated=True)


@pytest.mark.parametrize("peer", READERS)
def test_a_peer_tells_our_transaction_markers_from_records(bench: Workbench, peer: str) -> None:
    log = _open(bench)
    log.append(sequenced(7, 0, transactional=True), leader_epoch=0)
    log.append(marker(7, MarkerType.ABORT), leader_epoch=0)
    records = READERS[peer](log.read(offset=0, bytes_max=10_000))
    batches = [records.next_batch(), records.next_batch()]
    assert [found.is_control_batch for found in batches] == [False, True]
    assert [found.producer_id for found in batches] == [7, 7]
    assert not records.has_next()

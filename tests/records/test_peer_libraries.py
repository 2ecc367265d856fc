"""Batches between us and two other Kafka libraries, both ways, for every codec."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.control_record import ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

from ottla.records.batch import check, peek, restamp_append_time, walk
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.records.filter import filter_batch
from ottla.records.packing import RecordTuple
from ottla.records.reader import Record, read_batch
from tests.records.samples import NOW_MS, TYPICAL, as_given

with warnings.catch_warnings():
    # While it is imported, kafka-python reads its resources in a way that Python 3.11 warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_python_codecs
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

MANY: list[RecordTuple] = [
    (b"key-%d" % n if n % 7 else None, b"value-%d " % n * (n % 50), NOW_MS + n * 37 - 5_000, [("n", b"%d" % n)])
    for n in range(3_000)
]
# Not -1 first: aiokafka's builder takes that for "no timestamp yet".
NEGATIVE: list[RecordTuple] = [(b"k", b"v", stamp, []) for stamp in (-2, -5_000_000, -1, 12)]
SAMPLES = {"typical": TYPICAL, "many": MANY, "negative timestamps": NEGATIVE}


def seen(found: Any) -> list[tuple[Any, ...]]:
    """What a peer's records say, in our shape."""
    return [
        (record.offset, record.timestamp, record.key, record.value, tuple(tuple(pair) for pair in record.headers))
        for record in found
    ]


def require_codec(peer: Any, codec: Codec) -> None:
    """kafka-python has libraries of its own for two codecs, which may be missing."""
    if peer in (KafkaPythonBatch, KafkaPythonBuilder):
        known = {Codec.SNAPPY: kafka_python_codecs.has_snappy, Codec.ZSTD: kafka_python_codecs.has_zstd}
        if codec in known and not known[codec]():
            pytest.skip(f"kafka-python has no library for {codec.name.lower()} here")


def peer_batch(builder_type: Any, given: Sequence[RecordTuple], codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    """A batch that a peer's producer would send."""
    chosen = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **fields}
    builder = builder_type(magic=2, compression_type=int(codec), batch_size=2**30, **chosen)
    for offset, (key, value, timestamp_ms, headers) in enumerate(given):
        builder.append(offset, timestamp_ms, key, value, list(headers))
    return bytes(builder.build())


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("peer", [AiokafkaBatch, KafkaPythonBatch], ids=["aiokafka", "kafka-python"])
def test_a_peer_reads_what_we_build(peer: Any, codec: Codec, sample: list[RecordTuple]) -> None:
    require_codec(peer, codec)
    batch = bytes(build_batch(sample, codec=codec, base_offset=1_000))
    theirs = peer(batch)
    assert theirs.validate_crc()
    assert seen(theirs) == [tuple(record) for record in read_batch(batch)]


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("peer", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
def test_we_read_what_a_peer_builds(peer: Any, codec: Codec, sample: list[RecordTuple]) -> None:
    require_codec(peer, codec)
    assert as_given(read_batch(peer_batch(peer, sample, codec))) == sample


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("peer", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
def test_uncompressed_records_are_the_same_bytes_as_a_peers(peer: Any, sample: list[RecordTuple]) -> None:
    assert peer_batch(peer, sample)[61:] == build_batch(sample)[61:]


@pytest.mark.parametrize("peer", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
def test_a_peers_producer_fields_are_read(peer: Any) -> None:
    batch = peer_batch(peer, TYPICAL, is_transactional=1, producer_id=2**40, producer_epoch=3, base_sequence=17)
    header = check(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 3, 17)
    assert header.is_transactional


@pytest.mark.parametrize("peer", [AiokafkaBatch, KafkaPythonBatch], ids=["aiokafka", "kafka-python"])
def test_a_peer_reads_our_producer_fields(peer: Any) -> None:
    theirs = peer(
        bytes(build_batch(TYPICAL, producer_id=2**40, producer_epoch=3, base_sequence=17, transactional=True))
    )
    assert (theirs.producer_id, theirs.is_transactional, theirs.is_control_batch) == (2**40, True, False)


@pytest.mark.parametrize("peer", [AiokafkaBatch, KafkaPythonBatch], ids=["aiokafka", "kafka-python"])
def test_a_peer_sees_our_append_time(peer: Any) -> None:
    batch = build_batch(TYPICAL)
    restamp_append_time(batch, timestamp_ms=NOW_MS + 3)
    assert {record.timestamp for record in peer(bytes(batch))} == {NOW_MS + 3}


@pytest.mark.parametrize("peer", [AiokafkaBatch, KafkaPythonBatch], ids=["aiokafka", "kafka-python"])
def test_a_peer_reads_a_batch_with_records_taken_out(peer: Any) -> None:
    batch = build_batch(MANY, codec=Codec.LZ4, base_offset=50)
    kept = filter_batch(batch, lambda offset, *_: offset % 3 == 0)
    assert seen(peer(bytes(kept))) == [tuple(record) for record in read_batch(batch) if record.offset % 3 == 0]


@pytest.mark.parametrize("marker_type", MarkerType)
def test_aiokafka_reads_our_markers(marker_type: MarkerType) -> None:
    theirs = AiokafkaBatch(marker(marker_type))
    assert (theirs.is_control_batch, theirs.is_transactional) == (True, True)
    (record,) = theirs
    assert ControlRecord.parse(record.key).type_ == marker_type


@pytest.mark.parametrize("marker_type", MarkerType)
def test_kafka_python_reads_our_markers(marker_type: MarkerType) -> None:
    theirs = KafkaPythonBatch(marker(marker_type))
    assert theirs.is_control_batch
    (record,) = theirs
    assert (record.abort, record.commit) == (marker_type is MarkerType.ABORT, marker_type is MarkerType.COMMIT)


@pytest.mark.parametrize("peer", [AiokafkaRecords, KafkaPythonRecords], ids=["aiokafka", "kafka-python"])
def test_a_peer_walks_a_run_of_our_batches_as_we_do(peer: Any) -> None:
    run = b"".join(build_batch(TYPICAL, base_offset=7 * n, codec=codec) for n, codec in enumerate((0, 1, 3)))
    cut = run + run[:80]
    theirs, offsets = peer(cut), []
    while theirs.has_next():
        offsets += [record.offset for record in theirs.next_batch()]
    ours: list[Record] = []
    for position, header in walk(cut):
        ours += read_batch(cut[position : position + header.size])
    assert offsets == [record.offset for record in ours] == list(range(21))


def marker(marker_type: MarkerType) -> bytes:
    batch = build_marker(marker_type, producer_id=3, producer_epoch=1, coordinator_epoch=0, timestamp_ms=NOW_MS)
    assert peek(batch).is_control
    return bytes(batch)

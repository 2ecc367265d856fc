"""Messages to bytes and back, against kio and kafka-python.

The peers' messages are read by the peers from bytes that we wrote, and must give the same bytes again,
so every side handles the very same message. Our encoder gives a list of buffers for `writelines`, with
large record batches passed through; a row of its own joins them into one piece, as the peers do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from types import ModuleType
from typing import Any
from uuid import UUID

import kio.schema.fetch.v12.response as kio_fetch
import kio.schema.metadata.v12.response as kio_metadata
import kio.schema.produce.v9.request as kio_produce
from kafka.protocol.consumer.fetch import FetchResponse as KafkaPythonFetch
from kafka.protocol.metadata import MetadataResponse as KafkaPythonMetadata
from kafka.protocol.producer.produce import ProduceRequest as KafkaPythonProduce
from kio.serial import entity_reader, entity_writer

from bench.turns import Comparison, Side
from ottla.protocol.codec import decode, encode, encode_bytes
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Message

PRODUCE_VERSION = 9
FETCH_VERSION = 12
METADATA_VERSION = 12
KB = 1024
FETCH_KB = 16
TOPIC_COUNT = 10
PARTITION_COUNT = 6


def comparisons() -> list[Comparison]:
    """Decoding what a producer sends, and encoding what a consumer and a new client are answered."""
    return [
        *(_decode_produce(size_kb) for size_kb in (1, 16, 64)),
        *_encode(
            fetch_response(),
            FETCH_VERSION,
            what="encode Fetch v12",
            settings=f"1 topic, 1 partition, {FETCH_KB} KB of records",
            kio_class=_class(kio_fetch, "FetchResponse"),
            kafka_python_class=KafkaPythonFetch,
            expected_of_kio=5.0,
        ),
        *_encode(
            metadata_response(),
            METADATA_VERSION,
            what="encode Metadata v12",
            settings=f"3 brokers, {TOPIC_COUNT} topics of {PARTITION_COUNT} partitions",
            kio_class=_class(kio_metadata, "MetadataResponse"),
            kafka_python_class=KafkaPythonMetadata,
            expected_of_kio=None,
        ),
    ]


def produce_request(*, records_size: int) -> ProduceRequest:
    """One partition of one topic, as a busy producer sends it."""
    partition = PartitionProduceData(index=3, records=bytes(records_size))
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=[partition])]
    )


def fetch_response() -> FetchResponse:
    """One partition with new records."""
    partition = PartitionData(
        partition_index=3,
        high_watermark=1_000_000,
        last_stable_offset=1_000_000,
        log_start_offset=0,
        records=bytes(FETCH_KB * KB),
    )
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


def metadata_response() -> MetadataResponse:
    """A small cluster."""
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=index % 3, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for index in range(PARTITION_COUNT)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=index, host="broker.example", port=9092) for index in range(3)],
        cluster_id="ottla-bench",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=f"topic-{index}", topic_id=UUID(int=index + 1).bytes, partitions=partitions)
            for index in range(TOPIC_COUNT)
        ],
    )


def _decode_produce(size_kb: int) -> Comparison:
    sent = encode_bytes(produce_request(records_size=size_kb * KB), PRODUCE_VERSION)
    kio_read = entity_reader(_class(kio_produce, "ProduceRequest"))
    ours = decode(ProduceRequest, PRODUCE_VERSION, sent)
    _require_same(bytes(ours.topic_data[0].partition_data[0].records or b""), bytes(size_kb * KB))
    return Comparison(
        "decode Produce v9",
        f"1 topic, 1 partition, {size_kb} KB of records",
        Side("ottla", partial(decode, ProduceRequest, PRODUCE_VERSION, sent)),
        (
            (Side("kio", partial(kio_read, sent, 0)), 1.0),
            (Side("kafka-python", partial(KafkaPythonProduce.decode, sent, version=PRODUCE_VERSION)), None),
        ),
    )


def _encode(
    message: Message,
    version: int,
    *,
    what: str,
    settings: str,
    kio_class: Any,
    kafka_python_class: Any,
    expected_of_kio: float | None,
) -> list[Comparison]:
    """Two rows against each peer: as a list of buffers, and in one piece."""
    wanted = encode_bytes(message, version)
    kio_message, _ = entity_reader(kio_class)(wanted, 0)
    with_kio = partial(_write_with_kio, entity_writer(kio_class), kio_message)
    kafka_python_message = kafka_python_class.decode(wanted, version=version)
    with_kafka_python = kafka_python_message.encode
    _require_same(with_kio(), wanted)
    _require_same(bytes(with_kafka_python()), wanted)
    peers = ((Side("kio", with_kio), expected_of_kio), (Side("kafka-python", with_kafka_python), None))
    return [
        Comparison(what, settings, Side("ottla", partial(encode, message, version)), peers),
        Comparison(f"{what}, joined", settings, Side("ottla", partial(encode_bytes, message, version)), peers),
    ]


def _write_with_kio(write: Callable[[BytesIO, object], None], message: object) -> bytes:
    buffer = BytesIO()
    write(buffer, message)
    return buffer.getvalue()


def _class(module: ModuleType, name: str) -> Any:
    return getattr(module, name)


def _require_same(got: bytes, wanted: bytes) -> None:
    if got != wanted:
        raise AssertionError("the sides do not handle the same message")

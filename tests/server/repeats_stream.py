"""Random streams of request frames: bursts of Produce requests that are alike, and all that may come between them.

The bytes depend on the seed, and on the ids that the topics have by then; nothing here knows a broker.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode_bytes
from ottla.protocol.headers import RequestHeader, request_header
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Message
from ottla.records.batch import TimestampType, seal
from ottla.records.compression import Codec
from tests.broker.stage import creation
from tests.storage.workbench import batch

FLEXIBLE_VERSION_MIN = 9
TOPIC_ID_VERSION_MIN = 13
PARTITIONS = 3
BURST_MAX = 30
BULKY_SHARE = 0.1
"""How many bursts are of large requests, of which one pass brings more than is copied."""
TOPIC_RESOURCE = 2
SET, DELETE = 0, 1

TOPICS: dict[str, dict[str, str]] = {
    "t-plain": {},
    "t-small": {"segment_bytes": "6000", "index_interval_bytes": "200"},
    "t-index": {"segment_index_bytes": "300", "index_interval_bytes": "0"},
    "t-compa": {"cleanup_policy": "compact"},
    "t-stamp": {"message_timestamp_type": "LogAppendTime"},
    "t-limit": {
        "message_timestamp_before_max_ms": "60000",
        "message_timestamp_after_max_ms": "60000",
        "max_message_bytes": "600",
    },
    "t-flush": {"flush_messages": "1"},
    "t-cache": {"ottla_acks_all": "os", "flush_messages": "7"},
    "t-timed": {"segment_ms": "3000"},
}
"""All names have one length, so that a connection remembers requests for several of them."""

FAST_TOPICS = ("t-plain", "t-small", "t-index", "t-timed", "t-cache")
"""Those that take the shorter way most of the time."""

CHANGES = {
    "max.message.bytes": ("150", "600"),
    "segment.bytes": ("700", "6000"),
    "segment.index.bytes": ("12", "40"),
    "index.interval.bytes": ("0", "200"),
    "flush.messages": ("1", "7"),
    "message.timestamp.type": ("LogAppendTime",),
    "message.timestamp.before.max.ms": ("0", "60000"),
    "cleanup.policy": ("compact",),
    "ottla.acks.all": ("os", "disk"),
    "segment.ms": ("1", "3000"),
}


@dataclass(frozen=True)
class Burst:
    """What the requests of one burst have in common."""

    topic: str
    partition: int
    version: int
    client_id: str | None
    acks: int
    producer: int
    codec: Codec
    is_bulky: bool
    spread: int
    """For how many partitions each request has a batch."""


class Stream:
    """Gives the frames of a seed."""

    def __init__(self, seed: int, topic_id: Callable[[str], bytes], now_ms: Callable[[], int]) -> None:
        self._chance = Random(seed)
        self._topic_id = topic_id
        self._now_ms = now_ms
        self._version = self._chance.randint(5, 13)
        self._client_id: str | None = "client-a"
        self._sequences: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._number = 0
        self.is_spreading = True
        """Whether requests may have batches for several partitions."""
        self.produced = 0
        """How many Produce requests it has given that a broker can read."""

    def group(self) -> list[bytes]:
        """Frames that are served before anything else happens."""
        chance = self._chance
        frames: list[bytes] = []
        for _ in range(chance.randint(1, 3)):
            frames += self._burst()
            if chance.random() < 0.15:
                frames.append(self._other())
            if chance.random() < 0.03:
                frames.append(self._rubbish())
        return frames

    # --- bursts ----------------------------------------------------------------------------------------

    def _burst(self) -> list[bytes]:
        chance = self._chance
        if chance.random() < 0.06:
            self._version = chance.choice([3, 4, *range(5, 14), *range(5, 14)])
        if chance.random() < 0.05:
            self._client_id = chance.choice(["client-a", "client-b", "c", None])
        burst = Burst(
            chance.choice([*TOPICS, *FAST_TOPICS, *FAST_TOPICS, *FAST_TOPICS]),
            chance.randrange(PARTITIONS),
            self._version,
            self._client_id,
            chance.choice([1] * 26 + [0] + [-1] * 14),
            chance.choice([-1, -1, 7, 8]),
            chance.choice([Codec.NONE] * 6 + list(Codec)),
            chance.random() < BULKY_SHARE,
            chance.choice([1, 1, 1, 2, PARTITIONS]),
        )
        place = (burst.topic, burst.partition, burst.producer)
        if chance.random() < 0.6 and place in self._sequences:
            # Whatever was refused before, its sequence begins anew.
            self._sequences[place] = (self._sequences[place][0] + 1, 0)
        tricks = [self._echo, self._echo_in_a_tag, self._long_length]
        if burst.version >= FLEXIBLE_VERSION_MIN and chance.random() < 0.03:
            return chance.choice(tricks)(burst)
        return [self._one(burst) for _ in range(chance.randint(1, BURST_MAX))]

    def _one(self, burst: Burst) -> bytes:
        chance = self._chance
        odd = chance.random()
        if burst.spread > 1 and self.is_spreading:
            return self._spread(burst)
        if odd < 0.005:
            return self._produce(burst, self._unusual_batch(burst))
        if odd < 0.01:
            return self._produce(burst, self._damaged(self._plain_batch(burst)))
        if odd < 0.015:
            return self._unusual_request(burst)
        return self._produce(burst, self._plain_batch(burst))

    def _spread(self, burst: Burst) -> bytes:
        """A request with batches for several partitions, in any order; sometimes not as it should be."""
        chance = self._chance
        chosen = chance.sample(range(PARTITIONS), burst.spread)
        if chance.random() < 0.02:
            chosen.append(chance.choice([chosen[0], 77]))
        entries: list[tuple[int, bytes | None]] = []
        for partition in chosen:
            one = replace(burst, partition=partition)
            records: bytes | None = self._plain_batch(one)
            odd = chance.random()
            if odd < 0.005:
                records = self._unusual_batch(one)
            elif odd < 0.01:
                records = self._damaged(self._plain_batch(one))
            elif odd < 0.012:
                records = None
            entries.append((partition, records))
        body = self._body_of(burst, entries)
        odd = chance.random()
        if odd < 0.01:
            return self._frame(body, chance.choice([b"stray", b"\0"]))
        if odd < 0.02 and burst.version >= FLEXIBLE_VERSION_MIN:
            # Tagged fields that no version knows: of the request, the topic, or the last partition.
            cut = chance.randint(1, 3)
            return self._frame(body[:-cut] + b"\1\5\2ab" + b"\0" * (cut - 1))
        return self._frame(body)

    def _echo(self, burst: Burst) -> list[bytes]:
        """Stray bytes behind a request that look like the end of another: they are nobody's records."""
        records = self._records()
        first = self._body(burst, records)
        return [self._frame(first, b"?" + self._tail(echoed)) for echoed in (records, records, self._records())]

    def _echo_in_a_tag(self, burst: Burst) -> list[bytes]:
        """The same in a tagged field that no version knows."""
        records = self._records()
        first = self._body(burst, records)[:-1]
        frames = []
        for echoed in (records, records, self._records(), records):
            field = b"??" + self._tail(echoed)
            frames.append(self._frame(first + b"\1\5" + _varint(len(field)) + field))
        return frames

    def _long_length(self, burst: Burst) -> list[bytes]:
        """A length with a byte more than it needs, and then one that begins with the same byte."""
        records = self._records()
        body = self._body(burst, records)
        head, tail = body[: -len(self._tail(records))], records + b"\0\0\0"
        low = (len(records) + 1) & 0x7F | 0x80
        longer = self._frame(head + bytes((low, (len(records) + 1) >> 7 | 0x80, 0)) + tail)
        if len(records) >= 0x7F:
            return [longer, longer, longer]
        longer = self._frame(head + bytes((low, 0)) + tail)
        return [longer, longer, self._frame(head + bytes((low, len(records) + 1)) + tail), longer]

    def _records(self) -> bytes:
        return batch(b"e%d" % self._next_number(), timestamp_ms=self._now_ms())

    def _tail(self, records: bytes) -> bytes:
        """How a request of a flexible version ends."""
        return _varint(len(records) + 1) + records + b"\0\0\0"

    # --- batches ---------------------------------------------------------------------------------------

    def _plain_batch(self, burst: Burst) -> bytes:
        chance = self._chance
        codec = burst.codec if chance.random() < 0.99 else chance.choice(list(Codec))
        count = chance.choice([1, 1, 1, 1, 2, 2, 5, 40])
        size = chance.choice([5, 5, 5, 20, 60]) if chance.random() < 0.998 else 20_000
        if burst.is_bulky:
            count, size = 1, chance.choice([3_000, 9_000, 20_000])
        values = [bytes(chance.choices(b"abcd", k=size)) for _ in range(count)]
        shift_ms = chance.choice([0] * 60 + [-500, 900, 4_000, -70_000, 70_000])
        timestamp_ms = -1 if chance.random() < 0.002 else self._now_ms() + shift_ms
        key = None if chance.random() < 0.02 else b"k"
        if burst.producer < 0:
            return batch(*values, codec=codec, timestamp_ms=timestamp_ms, key=key)
        epoch, sequence = self._sequence(burst, count)
        return batch(
            *values,
            codec=codec,
            timestamp_ms=timestamp_ms,
            key=key,
            producer_id=burst.producer,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def _sequence(self, burst: Burst, count: int) -> tuple[int, int]:
        """The next of this producer, mostly; sometimes an old one, one too far, or one of an older epoch."""
        chance, place = self._chance, (burst.topic, burst.partition, burst.producer)
        epoch, sequence = self._sequences.get(place, (0, 2**31 - 20))
        odd = chance.random()
        if odd < 0.01:
            return epoch, max(0, sequence - count * chance.randint(1, 3))
        if odd < 0.015:
            return epoch, (sequence + chance.randint(1, 3)) % 2**31
        if odd < 0.02:
            return max(0, epoch - 1), sequence
        if odd < 0.05:
            epoch, sequence = epoch + 1, 0
        self._sequences[place] = (epoch, (sequence + count) % 2**31)
        return epoch, sequence

    def _unusual_batch(self, burst: Burst) -> bytes:
        chance, now_ms = self._chance, self._now_ms()
        match chance.randrange(6):
            case 0:
                epoch, sequence = self._sequences.get((burst.topic, burst.partition, 7), (0, 0))
                return batch(
                    timestamp_ms=now_ms, transactional=True, producer_id=7, producer_epoch=epoch, base_sequence=sequence
                )
            case 1:
                return batch(timestamp_ms=now_ms, control=True, producer_id=7, producer_epoch=0, base_sequence=0)
            case 2:
                return batch(timestamp_ms=now_ms, timestamp_type=TimestampType.LOG_APPEND_TIME)
            case 3:
                return batch(timestamp_ms=now_ms, producer_id=9)
            case 4:
                return batch(timestamp_ms=now_ms) + batch(timestamp_ms=now_ms)
            case _:
                return b""

    def _damaged(self, data: bytes) -> bytes:
        """A batch with something wrong about it."""
        chance, damaged = self._chance, bytearray(data)
        choice = chance.randrange(8)
        if choice == 0:
            damaged[chance.randrange(17, len(damaged))] ^= 1 << chance.randrange(8)
            return bytes(damaged)
        if choice == 1:
            return data[: chance.randrange(len(data))]
        if choice == 2:
            return data + b"more"
        if choice == 3:
            struct.pack_into(">i", damaged, 8, chance.choice([-1, 0, 48, len(data) - 13, len(data)]))
        elif choice == 4:
            count = chance.choice([-1, 0, 100, 2**20, 2**31 - 1])
            struct.pack_into(">i", damaged, 23, max(-1, count - 1))
            struct.pack_into(">i", damaged, 57, count)
        elif choice == 5:
            struct.pack_into(">i", damaged, 23, chance.choice([-1, 3, 2**31 - 1]))
        elif choice == 6:
            struct.pack_into(">h", damaged, 21, chance.choice([0x05, 0x07, 0x40, 0x80, 0x4000]))
        else:
            damaged[16] = chance.choice([0, 1, 3])
        seal(damaged)
        return bytes(damaged)

    # --- requests --------------------------------------------------------------------------------------

    def _produce(self, burst: Burst, records: bytes | None, stray: bytes = b"") -> bytes:
        return self._frame(self._body(burst, records), stray)

    def _body(
        self, burst: Burst, records: bytes | None, *, others: int = 0, transactional_id: str | None = None
    ) -> bytes:
        entries = [(burst.partition, records), *[((burst.partition + 1) % PARTITIONS, records)] * others]
        return self._body_of(burst, entries, transactional_id=transactional_id)

    def _body_of(
        self, burst: Burst, entries: Sequence[tuple[int, bytes | None]], *, transactional_id: str | None = None
    ) -> bytes:
        is_by_id = burst.version >= TOPIC_ID_VERSION_MIN
        topic = TopicProduceData(
            name="" if is_by_id else burst.topic,
            topic_id=self._topic_id(burst.topic) if is_by_id else bytes(16),
            partition_data=[PartitionProduceData(partition, records) for partition, records in entries],
        )
        request = ProduceRequest(transactional_id, burst.acks, 1_000, [topic])
        return self._head(ApiKey.PRODUCE, burst.version, burst.client_id) + encode_bytes(request, burst.version)

    def _unusual_request(self, burst: Burst) -> bytes:
        records = self._plain_batch(burst)
        body = self._body(burst, records)
        match self._chance.randrange(7):
            case 0:
                return self._frame(body, b"stray")
            case 1 if burst.version >= FLEXIBLE_VERSION_MIN:
                return self._frame(body[:-1] + b"\1\5\2ab")
            case 2:
                return self._frame(self._body(burst, records, others=1))
            case 3:
                return self._frame(self._body(burst, None))
            case 4:
                return self._frame(self._body(burst, records, transactional_id="tx"))
            case 5:
                return self._frame(self._body(replace(burst, partition=77), records))
            case _:
                return self._frame(self._body(replace(burst, acks=2), records))

    def _frame(self, body: bytes, stray: bytes = b"") -> bytes:
        # A number of its own for each request, also where a test sends the same one again.
        self.produced += 1
        body = body[:4] + struct.pack(">i", self._next_number()) + body[8:] + stray
        return struct.pack(">i", len(body)) + body

    def _head(self, key: ApiKey, version: int, client_id: str | None) -> bytes:
        return request_header(RequestHeader(key, version, self._next_number(), client_id))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # --- what comes between ----------------------------------------------------------------------------

    def _other(self) -> bytes:
        """A request of another API."""
        name = self._chance.choice(list(TOPICS))
        odd = self._chance.random()
        if odd < 0.3:
            return self._plain_frame(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name=name)]))
        if odd < 0.5:
            return self.deletion(name)
        if odd < 0.7:
            return self.creation(name)
        if odd < 0.95:
            return self.alteration(name)
        return struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, self._next_number(), -1)

    def deletion(self, name: str) -> bytes:
        return self._plain_frame(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest([DeleteTopicState(name)]))

    def creation(self, name: str) -> bytes:
        request: CreateTopicsRequest = creation(name, PARTITIONS, **TOPICS[name])
        return self._plain_frame(ApiKey.CREATE_TOPICS, 7, request)

    def alteration(self, name: str) -> bytes:
        """Some settings of one topic are changed, most of them back to what is usual."""
        changes = []
        for setting, values in CHANGES.items():
            if self._chance.random() < 0.08:
                changes.append(AlterableConfig(setting, SET, self._chance.choice(values)))
            else:
                changes.append(AlterableConfig(setting, DELETE, None))
        resource = AlterConfigsResource(TOPIC_RESOURCE, name, changes)
        return self._plain_frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([resource]))

    def _plain_frame(self, key: ApiKey, version: int, request: Message) -> bytes:
        body = self._head(key, version, self._client_id) + encode_bytes(request, version)
        return struct.pack(">i", len(body)) + body

    def _rubbish(self) -> bytes:
        """A frame that is no request, or no frame."""
        return self._chance.choice(
            [
                struct.pack(">i", -1),
                struct.pack(">i", 2**31 - 1),
                struct.pack(">i", 0),
                struct.pack(">ihhih", 10, ApiKey.PRODUCE, 9, 1, -1),
                struct.pack(">ihhih", 10, 999, 0, 1, -1),
                struct.pack(">i3s", 3, b"abc"),
            ]
        )


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

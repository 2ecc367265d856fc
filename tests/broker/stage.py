"""A broker moved by hand: disk and metadata in memory, a clock that stands still, one thread.

Requests and responses go through their bytes, so that what a test sees is what a client would get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from ottla.broker.assembly import World, start
from ottla.broker.broker import Broker
from ottla.broker.caller import Address, Caller
from ottla.broker.file_range import FileRange
from ottla.broker.housekeeping import Compactor
from ottla.broker.pending import Pending
from ottla.clock import Clock, ManualClock
from ottla.config import Settings
from ottla.error_codes import ErrorCode
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.recovery import restore
from ottla.partitions.partition import Partition
from ottla.partitions.sync_pool import Done, InlineSyncs, Job, SyncRunner, run_job
from ottla.protocol import codec
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.headers import RequestHeader, read_request_header, request_header
from ottla.protocol.messages import MESSAGES, request_class, response_class
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.schema import Message
from ottla.records.batch import walk
from ottla.records.reader import read_batch
from ottla.scheduler import ManualScheduler
from ottla.storage.memory_disk import MemoryDisk
from tests.storage.workbench import NOW_MS, batch

M = TypeVar("M", bound=Message)
DATA = "/data"
CALLER = Caller(Address("broker.example", 9092), host="10.0.0.7", client_id="test")


class HeldSyncs:
    """Runs jobs when it is told to: for what happens between a job's beginning and its end."""

    def __init__(self, scheduler: ManualScheduler) -> None:
        self._scheduler = scheduler
        self.waiting: list[tuple[Job, Done]] = []

    def submit(self, job: Job, done: Done) -> None:
        self.waiting.append((job, done))

    def finish(self, place: int = 0) -> Job:
        """Run one of the jobs that wait, and what follows from it."""
        job, done = self.waiting.pop(place)
        fault = run_job(job)
        self._scheduler.post(partial(done, fault))
        self._scheduler.run()
        return job

    def close(self) -> None:
        """There is nothing to wait for."""


@dataclass
class Stage:
    """One broker, and all that it stands on."""

    settings: Mapping[str, str] = field(default_factory=dict)
    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(seed=1))
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    compactor: Compactor | None = None
    held: bool = False
    """Whether jobs wait until the test runs them."""
    wall: Clock | None = None
    """The time of day, where that is not the time that passes."""

    def __post_init__(self) -> None:
        self._ids = iter(range(1, 2**62))
        self.start()

    def start(self) -> None:
        """Begin a life of the broker on what is there."""
        self.scheduler = ManualScheduler(self.clock)
        self.syncs: SyncRunner = HeldSyncs(self.scheduler) if self.held else InlineSyncs(self.scheduler)
        wall = self.wall or self.clock
        world = World(self.disk, wall, self.scheduler, self.syncs, self.new_id, self.compactor, self.clock)
        self.broker: Broker = start(
            DATA,
            Settings.resolve(BROKER_CONFIGS, flags=dict(self.settings)),
            world,
            lambda disk, directory, owner: restore(
                self.store, disk, directory, owner, now_ms=self.clock.now_ms(), new_id=self.new_id
            ),
        )
        self.scheduler.run()

    def new_id(self) -> UUID:
        # Spread out, so that ids differ in more than their last digit.
        return UUID(int=next(self._ids) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)

    def restart(self) -> None:
        """Stop in order and begin anew."""
        self.broker.stop()
        self.scheduler.run()
        self.broker.close()
        # Closed with its broker; what it holds is what a real one would have on disk.
        self.store = self.store.crash()
        self.start()

    def crash(self) -> None:
        """Lose the power, and begin anew on what is left."""
        self.disk.crash()
        self.store = self.store.crash()
        self.start()

    @property
    def jobs(self) -> HeldSyncs:
        assert isinstance(self.syncs, HeldSyncs)
        return self.syncs

    # --- requests --------------------------------------------------------------------------------------

    def send(self, request: M, version: int | None = None, *, caller: Caller = CALLER) -> Sent:
        """Submit a request as a client would, without moving anything."""
        key = key_of(request)
        version = APIS[key].versions.last if version is None else version
        header = RequestHeader(key, version, 7, caller.client_id)
        frame = request_header(header) + codec.encode_bytes(request, version)
        header, position = read_request_header(frame)
        decoded = codec.decode(request_class(key), version, frame, start=position)
        return Sent(self.broker.submit(header, decoded, caller), key, version)

    def call(self, request: Message, version: int | None = None, *, caller: Caller = CALLER) -> Any:
        """Submit a request, let what is ready run, and give the response as the client reads it."""
        sent = self.send(request, version, caller=caller)
        self.scheduler.run()
        return sent.response

    # --- shorthands ------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """A topic; the names of `configs` have underscores for dots."""
        result = self.call(creation(name, partitions, **configs)).topics[0]
        assert result.error_code == ErrorCode.NONE, result.error_message
        return UUID(bytes=result.topic_id)

    def produce(self, topic: str, partition: int = 0, *batches: bytes, acks: int = -1) -> PartitionProduceResponse:
        """Append batches one after the other, and give the last one's answer."""
        answer: PartitionProduceResponse | None = None
        for data in batches or (batch(b"v"),):
            response = self.call(produce_request(topic, partition, data, acks=acks), 12)
            answer = response.responses[0].partition_responses[0]
        assert answer is not None
        return answer

    def values(self, topic: str, partition: int = 0, *, offset: int = 0) -> list[bytes | None]:
        """The values of all records that a consumer sees from an offset on, however many fetches that takes."""
        values: list[bytes | None] = []
        while True:
            data = self.fetch(topic, partition, offset=offset)
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code)
            found = bytes(data.records or b"")
            if not found:
                return values
            for position, header in walk(found):
                values += [record.value for record in read_batch(found[position:]) if record.offset >= offset]
                offset = max(offset, header.last_offset + 1)

    def fetch(self, topic: str, partition: int = 0, *, offset: int = 0) -> PartitionData:
        request = FetchRequest(topics=[fetch_topic(topic, partition, offset=offset)])
        response: FetchResponse = self.call(request, 12)
        found: FetchableTopicResponse = response.responses[0]
        return found.partitions[0]

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.broker.services.partitions.by_name(topic, index)


@dataclass
class Sent:
    """A request that was submitted."""

    outcome: Message | Pending | None
    key: ApiKey
    version: int

    def __post_init__(self) -> None:
        self._told: list[Message] = []
        if isinstance(self.outcome, Pending):
            self.outcome.then(self._told.append)
        elif self.outcome is not None:
            self._told.append(self.outcome)

    @property
    def is_answered(self) -> bool:
        return bool(self._told)

    @property
    def response(self) -> Any:
        """What the client reads; None where nothing is sent."""
        if self.outcome is None:
            return None
        assert self._told, "no response yet"
        # A file range stands in for records that whoever sends the response reads from the file.
        parts: list[Any] = list(codec.encode(self._told[0], self.version))
        body = b"".join(part.read() if isinstance(part, FileRange) else bytes(part) for part in parts)
        return codec.decode(response_class(self.key), self.version, body)


def key_of(request: Message) -> ApiKey:
    """The API of a request."""
    return next(key for key in MESSAGES if isinstance(request, request_class(key)))


def creation(name: str, partitions: int = 1, **configs: str) -> CreateTopicsRequest:
    """The request for a topic; the names of `configs` have underscores for dots."""
    wanted = [CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=wanted)
    return CreateTopicsRequest(topics=[topic])


def produce_request(
    topic: str, partition: int, data: bytes | None, *, acks: int = -1, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    partitions = [PartitionProduceData(index=partition, records=data)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=partitions)],
    )


def fetch_topic(
    topic: str, *partitions: int, offset: int = 0, bytes_max: int = 1 << 20, topic_id: bytes = bytes(16)
) -> FetchTopic:
    return FetchTopic(
        topic=topic,
        topic_id=topic_id,
        partitions=[
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
            for index in partitions or (0,)
        ],
    )

"""What a group coordinator wrote down, read back from `__consumer_offsets` by a plain connection.

Every generation of a group is there, with who owned what in it, whatever clients the members were. So this tells of
each generation, also of one that nobody had time to look at, whether a partition had two owners in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ottla.coordinators.groups import records
from ottla.coordinators.groups.consumer_embedded import read_assignment
from ottla.coordinators.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
)
from ottla.coordinators.outcome import CoordinatorRecord
from ottla.coordinators.runtime import shard_index
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchResponse
from ottla.records.batch import HEADER_SIZE, peek
from ottla.records.reader import read_batch
from tests.clients.server_process import ServerProcess
from tests.server.wire import EARLIEST, FETCH_VERSION, LATEST, Wire, fetch_request

Partition = tuple[object, int]
"""A topic, by its name or by its id, and a number."""


@dataclass
class History:
    """All that a group went through, in both protocols."""

    generations: Counter[str] = field(default_factory=Counter)
    """How many there were, by protocol."""
    doubles: list[str] = field(default_factory=list)
    """Partitions that two members had in one generation, or that one still had to give back when another got it."""
    member_ids: set[str] = field(default_factory=set)


def history(server: ServerProcess, group: str, *, shard_count: int) -> History:
    """Read a group's shard from its first record to its last."""
    return told(_batches(server, shard_index(group, shard_count)), group)


def told(batches: Iterable[Sequence[CoordinatorRecord]], group: str) -> History:
    """What these records tell of a group."""
    found = History()
    owned: dict[str, set[Partition]] = {}
    for batch in batches:
        # One batch is one decision: what is in it happened at once.
        for key, value in batch:
            if isinstance(key, GroupMetadataKey) and key.group == group:
                if isinstance(value, GroupMetadataValue):
                    _note_generation(found, value)
            elif isinstance(key, ConsumerGroupMetadataKey) and key.group_id == group:
                if isinstance(value, ConsumerGroupMetadataValue):
                    found.generations["consumer"] += 1
                else:
                    owned.clear()
            elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) and key.group_id == group:
                found.member_ids.add(key.member_id)
                owned.pop(key.member_id, None)
                if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                    parts = (*value.assigned_partitions, *value.partitions_pending_revocation)
                    owned[key.member_id] = {(part.topic_id, number) for part in parts for number in part.partitions}
        found.doubles += _doubles(owned.items())
    return found


def _note_generation(found: History, value: GroupMetadataValue) -> None:
    found.generations["classic"] += 1
    found.member_ids.update(member.member_id for member in value.members)
    shares = (
        (member.member_id, {(topic, number) for topic, numbers in parts.items() for number in numbers})
        for member in value.members
        for parts in (read_assignment(member.assignment).partitions,)
    )
    found.doubles += (f"generation {value.generation}: {double}" for double in _doubles(shares))


def _doubles(shares: Iterable[tuple[str, Iterable[Partition]]]) -> Iterator[str]:
    owners: dict[Partition, str] = {}
    for member_id, partitions in shares:
        for partition in partitions:
            if partition in owners:
                yield f"{partition} belongs to {owners[partition]} and to {member_id}"
            owners[partition] = member_id


def _batches(server: ServerProcess, partition: int) -> Iterator[list[CoordinatorRecord]]:
    with Wire(server) as wire:
        first, end = (
            wire.end_offset(CONSUMER_OFFSETS, partition=partition, timestamp_ms=at) for at in (EARLIEST, LATEST)
        )
        assert first == 0, "nothing may have been removed from the log that is to tell everything"
        offset = 0
        while offset < end:
            request = fetch_request(CONSUMER_OFFSETS, offset, partition=partition, wait_ms=0)
            response = wire.call(ApiKey.FETCH, FETCH_VERSION, request)
            assert isinstance(response, FetchResponse)
            (answer,) = response.responses[0].partitions
            left = memoryview(answer.records or b"")
            assert len(left) >= HEADER_SIZE, f"nothing came at {offset}, the end is {end}"
            while len(left) >= HEADER_SIZE and len(left) >= (size := peek(left).size):
                found = list(read_batch(left[:size]))
                yield [_decoded(record.key, record.value) for record in found]
                offset = found[-1].offset + 1
                left = left[size:]


def _decoded(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    decoded = records.decode(key or b"", value)
    assert decoded is not None
    return decoded

"""Which partition a record goes to.

Pure: hashes of keys, and two ways to spread records that have none. Knows how many partitions a topic
has only because it is told each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from struct import Struct
from types import MappingProxyType
from typing import Protocol

_MASK = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_WORD_LAYOUTS = tuple(Struct(f"<{count}I") for count in range(17))
"""For keys of up to 64 bytes, which nearly all are; longer ones get a layout when they come."""


def murmur2(key: bytes) -> int:
    """The 32-bit hash that Kafka's own producer uses for keys, as an unsigned number."""
    length = len(key)
    words = length >> 2
    layout = _WORD_LAYOUTS[words] if words < len(_WORD_LAYOUTS) else Struct(f"<{words}I")
    value = _MURMUR2_SEED ^ length
    for word in layout.unpack_from(key):
        word = (word * _MURMUR2_M) & _MASK
        word = ((word ^ (word >> 24)) * _MURMUR2_M) & _MASK
        value = ((value * _MURMUR2_M) & _MASK) ^ word
    tail = length & 3
    if tail:
        value ^= int.from_bytes(key[-tail:], "little")
        value = (value * _MURMUR2_M) & _MASK
    value = ((value ^ (value >> 13)) * _MURMUR2_M) & _MASK
    return value ^ (value >> 15)


def murmur2_partition(key: bytes, partition_count: int) -> int:
    """Where every Kafka client puts this key by default: the sign bit is dropped before the division."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def fnv1a(key: bytes) -> int:
    """The 32-bit FNV-1a hash, as an unsigned number."""
    value = _FNV_OFFSET
    for byte in key:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value


def fnv1a_partition(key: bytes, partition_count: int) -> int:
    return fnv1a(key) % partition_count


KeyRouter = Callable[[bytes, int], int]
KEY_ROUTERS: Mapping[str, KeyRouter] = MappingProxyType({"murmur2": murmur2_partition, "fnv1a": fnv1a_partition})


class KeylessRouter(Protocol):
    """Spreads records without a key."""

    def choose(self, topic: str, *, partition_count: int, available: Sequence[int], record_bytes: int) -> int:
        """The partition of the next record; `available` are those that have a leader, perhaps none."""
        ...


class _Turn:
    """One topic's turn."""

    __slots__ = ("bytes_sent", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.bytes_sent = 0


class StickyRouter:
    """A batch's worth of records for one partition, then the next one's: fewer and fuller batches."""

    __slots__ = ("_batch_bytes", "_chance", "_turns")

    def __init__(self, *, batch_bytes: int, chance: Random) -> None:
        self._batch_bytes = batch_bytes
        self._chance = chance
        self._turns: dict[str, _Turn] = {}

    def choose(self, topic: str, *, partition_count: int, available: Sequence[int], record_bytes: int) -> int:
        turn = self._turns.get(topic)
        if turn is None:
            # A first partition by chance: else many short-lived producers would all fill partition 0.
            turn = self._turns[topic] = _Turn(self._chance.randrange(partition_count))
        elif turn.bytes_sent >= self._batch_bytes or turn.partition >= partition_count:
            turn.partition = (turn.partition + 1) % partition_count
            turn.bytes_sent = 0
        if available and len(available) < partition_count and turn.partition not in available:
            turn.partition = next((each for each in available if each > turn.partition), available[0])
            turn.bytes_sent = 0
        turn.bytes_sent += record_bytes
        return turn.partition


class RoundRobinRouter:
    """Every record to the next partition."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(self, topic: str, *, partition_count: int, available: Sequence[int], record_bytes: int) -> int:
        chosen = self._next.get(topic, 0) % partition_count
        self._next[topic] = chosen + 1
        return chosen

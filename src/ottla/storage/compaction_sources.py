"""What a compaction reads: the sources with their seals, their producers and their aborted transactions.

Says what stands there and where it is damaged; what stays of it is `compaction`'s to decide.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.errors import BatchError, StorageFault
from ottla.records.batch import NO_PRODUCER_EPOCH, BatchHeader
from ottla.storage import aborted_index, scan, seal
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.checkpoint import read_small
from ottla.storage.compaction_plan import CompactionPlan, Source
from ottla.storage.disk import Disk
from ottla.storage.scan import FoundBatch
from ottla.storage.seal import DamagedSeal, FileSum, Seal
from ottla.storage.segment import ABORTED_SUFFIX, LOG_SUFFIX, SEAL_SUFFIX, file_name


def file_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{file_name(base_offset, suffix)}"


def _damaged(path: str, position: int, error: Exception) -> StorageFault:
    return StorageFault(path, f"damaged at byte {position}, so it is not compacted: {error}")


def read_seal(disk: Disk, directory: str, source: Source) -> Seal:
    path = file_path(directory, source.base_offset, SEAL_SUFFIX)
    data = read_small(disk, path)
    if data is None:
        raise StorageFault(path, "missing, but only sealed segments are compacted")
    try:
        found = seal.decode(data)
    except DamagedSeal as error:
        raise StorageFault(path, f"damaged, so its segment is not compacted: {error}") from error
    if (found.log_bytes, found.end_offset) != (source.size, source.end_offset):
        raise StorageFault(path, "the segment has changed since its compaction was planned")
    return found


def read_aborted(
    disk: Disk, directory: str, seals: dict[Source, Seal], plan: CompactionPlan
) -> Iterator[AbortedTransaction]:
    """Every aborted transaction that has a batch or its marker in the sources."""
    for source, found in seals.items():
        path = file_path(directory, source.base_offset, ABORTED_SUFFIX)
        data = read_small(disk, path)
        if data is None or FileSum.of(data) != found.aborted_index:
            raise StorageFault(path, "missing, or not the one that the seal speaks of, so its segment is not compacted")
        yield from aborted_index.decode(data)
    yield from plan.aborted_beyond or ()


def read_batches(disk: Disk, directory: str, source: Source, *, verify: bool) -> Iterator[FoundBatch]:
    path = file_path(directory, source.base_offset, LOG_SUFFIX)
    position = 0
    file = disk.open(path)
    try:
        for found in scan.batches(file, end=source.size, verify=verify):
            position = found.position + found.header.size
            yield found
    except BatchError as error:
        raise _damaged(path, position, error) from error
    finally:
        file.close()


class AbortedTransactions:
    """Which batches belong to an aborted transaction."""

    __slots__ = ("_by_marker", "_by_producer")

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._by_marker = {transaction.last_offset: transaction for transaction in transactions}
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        # A producer's transactions follow each other, so the order of their ends is that of their beginnings.
        for _, transaction in sorted(self._by_marker.items()):
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def hold(self, header: BatchHeader) -> bool:
        """Whether this data batch was aborted."""
        if not header.is_transactional:
            return False
        candidates = self._by_producer.get(header.producer_id, ())
        at = bisect_right(candidates, header.base_offset, key=lambda transaction: transaction.first_offset)
        return at > 0 and header.base_offset <= candidates[at - 1].last_offset

    def ended_by(self, marker_offset: int) -> AbortedTransaction | None:
        return self._by_marker.get(marker_offset)


@dataclass(slots=True)
class _Producer:
    epoch: int = NO_PRODUCER_EPOCH
    last_base_offset: int = -1
    last_data_offset: int = -1
    """Base offset of the last batch with a sequence number in this epoch, -1 when it has none."""
    last_timestamp_ms: int = -1


class Survey:
    """What the headers of the sources say."""

    __slots__ = ("_open", "_producers", "record_counts")

    def __init__(self) -> None:
        # As many as the log itself remembers, and those that it has forgotten since the last compaction.
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}
        self.record_counts: dict[Source, int] = {}

    def note(self, source: Source, header: BatchHeader) -> None:
        self.record_counts[source] = self.record_counts.get(source, 0) + header.record_count
        if not header.has_producer or (header.is_control and not header.record_count):
            return
        producer = self._producers.setdefault(header.producer_id, _Producer())
        if header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.last_data_offset = -1
        producer.last_base_offset = header.base_offset
        producer.last_timestamp_ms = header.max_timestamp
        if header.is_control:
            self._open.pop(header.producer_id, None)
            return
        if header.base_sequence >= 0:
            producer.last_data_offset = header.base_offset
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    @property
    def first_open_offset(self) -> int | None:
        """Where the first transaction begins whose marker was not met."""
        return min(self._open.values(), default=None)

    def kept_for_producers(self, plan: CompactionPlan) -> frozenset[int]:
        """Base offsets of the batches that say where a producer stands.

        That is the last batch of its newest epoch that has a sequence number, and its last batch of all,
        which may be a marker. A producer that the log forgets for its silence needs neither; but one whose
        transaction ends behind the sources has spoken since, so its silence here says nothing.
        """
        kept: set[int] = set()
        for producer_id, producer in self._producers.items():
            silent_ms = plan.now_ms - producer.last_timestamp_ms
            if silent_ms < plan.producer_id_expiration_ms or producer_id in self._open:
                kept.update((producer.last_base_offset, producer.last_data_offset))
        return frozenset(kept)


def take_survey(disk: Disk, directory: str, plan: CompactionPlan) -> Survey:
    survey = Survey()
    for source in plan.sources:
        for found in read_batches(disk, directory, source, verify=False):
            survey.note(source, found.header)
    return survey

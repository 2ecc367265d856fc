"""Compaction against a plain model: random histories of a log, told twice.

The model holds records in a list and knows nothing of batches' bytes, indexes or files. After every
compaction the log must hold exactly the records that the model holds, at the same offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.clock import ManualClock
from ottla.records.batch import BatchHeader
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.records.isolation import AbortedTransactions
from ottla.records.reader import Record, read_batch
from ottla.storage import swap
from ottla.storage.aborted_index import AbortedTransaction
from ottla.storage.compaction import compact
from ottla.storage.compaction_plan import CompactionPlan, plan
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.memory_disk import MemoryDisk
from ottla.storage.producer_replay import replay_batch
from ottla.storage.producer_state import ProducerStates
from ottla.storage.retention import SegmentFacts
from ottla.storage.scan import batches, build_indexes
from tests.storage.workbench import installed

NOW_MS = 1_700_000_000_000
RETENTION_MS = 100
EXPIRATION_MS = 1000
SHIFT_MS = 50
INTERVAL_BYTES = 60
DIRECTORY = "/data/topic-0"
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)
KEYS = (None, b"", b"a", b"b", b"c", b"d", b"long" * 20)

Pairs = list[tuple[bytes | None, bytes | None, int]]
pairs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from((None, b"", b"v", b"w" * 40)), st.integers(-SHIFT_MS, SHIFT_MS)),
    min_size=1,
    max_size=4,
)
codecs = st.sampled_from(tuple(Codec))
times_ms = st.sampled_from((0, 1, RETENTION_MS - 1, RETENTION_MS, EXPIRATION_MS))


@dataclass(eq=False)
class ModelBatch:
    """A data batch: its records, and the transaction that it belongs to."""

    records: list[Record]
    transaction: ModelTransaction | None = None
    horizon_ms: int | None = None


@dataclass(eq=False)
class ModelTransaction:
    """One producer's transaction."""

    producer_id: int
    outcome: MarkerType | None = None
    marker_offset: int | None = None
    batches: list[int] = field(default_factory=list)
    """Base offsets of its batches."""


class Model:
    """Every record of the log, as the rules of compaction leave them."""

    def __init__(self) -> None:
        self.batches: list[ModelBatch] = []

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def committed(self) -> list[Record]:
        found = [batch for batch in self.batches if _is_committed(batch)]
        return [record for batch in found for record in batch.records]

    def compact(self, *, end_offset: int, now_ms: int) -> int:
        """Apply the rules to everything below `end_offset`; returns how many records went."""
        newest: dict[bytes, int] = {}
        for record in self.committed:
            if record.key is not None and record.offset < end_offset:
                newest[record.key] = record.offset
        removed = 0
        for batch in self.batches:
            if batch.records and batch.records[0].offset >= end_offset:
                break
            stay = [record for record in batch.records if _stays(record, batch, newest, now_ms)]
            removed += len(batch.records) - len(stay)
            batch.records = stay
            if batch.horizon_ms is None and any(_is_tombstone(record) for record in stay):
                batch.horizon_ms = now_ms + RETENTION_MS
        return removed


def _is_committed(batch: ModelBatch) -> bool:
    return batch.transaction is None or batch.transaction.outcome is MarkerType.COMMIT


def _is_tombstone(record: Record) -> bool:
    return record.key is not None and record.value is None


def _stays(record: Record, batch: ModelBatch, newest: dict[bytes, int], now_ms: int) -> bool:
    if batch.transaction is not None and batch.transaction.outcome is MarkerType.ABORT:
        return False
    if record.key is None:
        return True
    expired = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
    return newest.get(record.key, -1) <= record.offset and not (_is_tombstone(record) and expired)


class CompactedLog(RuleBasedStateMachine):
    """A log that is written to, compacted and reopened in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk(seed=1)
        self.clock = ManualClock(NOW_MS)
        self.config = LogConfig(
            segment_bytes=900,
            index_interval_bytes=INTERVAL_BYTES,
            delete=False,
            compact=True,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=RETENTION_MS,
            producer_id_expiration_ms=EXPIRATION_MS,
        )
        self.log = self.open()
        self.model = Model()
        self.sequences = dict.fromkeys((*IDEMPOTENT, *TRANSACTIONAL), 0)
        self.open_transactions: dict[int, ModelTransaction] = {}
        self.transactions: list[ModelTransaction] = []

    def open(self) -> Log:
        return Log.open(self.disk, DIRECTORY, config=self.config, clock=self.clock)

    # --- writing -----------------------------------------------------------------------------------

    def append(self, chosen: Pairs, codec: Codec, transaction: ModelTransaction | None, producer_id: int) -> None:
        now_ms = self.clock.now_ms()
        tuples = [(key, value, now_ms + shift, (("h", b"x"),)) for key, value, shift in chosen]
        built = build_batch(
            tuples,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, -1),
            transactional=transaction is not None,
        )
        first = self.log.append(bytes(built), leader_epoch=0).first_offset
        records = [
            Record(first + n, timestamp_ms, key, value, tuple(headers))
            for n, (key, value, timestamp_ms, headers) in enumerate(tuples)
        ]
        self.model.batches.append(ModelBatch(records, transaction))
        if transaction is not None:
            transaction.batches.append(first)
        if producer_id >= 0:
            self.sequences[producer_id] += len(chosen)

    @rule(chosen=pairs, codec=codecs)
    def append_plain(self, chosen: Pairs, codec: Codec) -> None:
        self.append(chosen, codec, None, -1)

    @rule(chosen=pairs, codec=codecs, producer_id=st.sampled_from(IDEMPOTENT))
    def append_idempotent(self, chosen: Pairs, codec: Codec, producer_id: int) -> None:
        self.append(chosen, codec, None, producer_id)

    @rule(chosen=pairs, codec=codecs, producer_id=st.sampled_from(TRANSACTIONAL))
    def append_transactional(self, chosen: Pairs, codec: Codec, producer_id: int) -> None:
        transaction = self.open_transactions.get(producer_id)
        if transaction is None:
            transaction = self.open_transactions[producer_id] = ModelTransaction(producer_id)
            self.transactions.append(transaction)
        self.append(chosen, codec, transaction, producer_id)

    @precondition(lambda self: self.open_transactions)
    @rule(data=st.data(), outcome=st.sampled_from(MarkerType))
    def end_transaction(self, data: st.DataObject, outcome: MarkerType) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.open_transactions))), outcome)

    @rule(chosen=pairs, codec=codecs, producer_id=st.sampled_from(TRANSACTIONAL), outcome=st.sampled_from(MarkerType))
    def append_a_whole_transaction(self, chosen: Pairs, codec: Codec, producer_id: int, outcome: MarkerType) -> None:
        self.append_transactional(chosen, codec, producer_id)
        self.end(producer_id, outcome)

    def end(self, producer_id: int, outcome: MarkerType) -> None:
        transaction = self.open_transactions.pop(producer_id)
        built = build_marker(
            outcome, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self.clock.now_ms()
        )
        transaction.marker_offset = self.log.append(bytes(built), leader_epoch=0).first_offset
        transaction.outcome = outcome

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def seal_and_compact(self, data: st.DataObject) -> None:
        self.log.roll()
        self.compact(data.draw(st.booleans()), data.draw(st.sampled_from((4, 1000))), data.draw(times_ms))

    # --- restarts -------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()

    # --- compacting --------------------------------------------------------------------------------

    @rule(knows_what_lies_behind=st.booleans(), keys_max=st.sampled_from((0, 4, 1000)), passed_ms=times_ms)
    def compact(self, knows_what_lies_behind: bool, keys_max: int, passed_ms: int) -> None:
        self.clock.advance(passed_ms)
        self.log.sync()
        planned = self.log.plan_compaction(high_watermark=self.log.synced_offset)
        if planned is None:
            return
        planned = replace(planned, aborted_beyond=self.aborted_beyond(planned) if knows_what_lies_behind else None)
        before = self.headers()
        result = compact(self.disk, DIRECTORY, planned, keys_max=keys_max)
        assert installed(self.log, planned, result)
        if not result.outputs:
            assert not knows_what_lies_behind
            return
        end_offset = result.outputs[-1].end_offset
        assert result.records_removed == self.model.compact(end_offset=end_offset, now_ms=self.clock.now_ms())
        self.check_markers(before, self.headers(), end_offset)
        self.check_nothing_more_goes(end_offset)
        self.check_indexes()

    def aborted_beyond(self, planned: CompactionPlan) -> tuple[AbortedTransaction, ...]:
        end = planned.end_offset
        aborted = self.log.aborted_transactions(offset=self.log.log_start_offset, end_offset=end)
        return tuple(entry for entry in aborted if entry.last_offset >= end)

    def headers(self) -> dict[int, BatchHeader]:
        return {found.header.base_offset: found.header for found in self.log.batches(offset=0)}

    def check_markers(self, before: dict[int, BatchHeader], after: dict[int, BatchHeader], end_offset: int) -> None:
        """A marker stays as it was while its transaction has a batch, then gets a horizon, then goes."""
        now_ms = self.clock.now_ms()
        for transaction in self.transactions:
            marker_offset = transaction.marker_offset
            if marker_offset is None:
                continue
            was, now = before.get(marker_offset), after.get(marker_offset)
            has_batches = any(offset in before for offset in transaction.batches)
            if was is None or marker_offset >= end_offset or has_batches:
                assert now == was
            elif was.delete_horizon_ms is None:
                assert now is not None
                assert now.delete_horizon_ms == now_ms + RETENTION_MS
            elif was.delete_horizon_ms > now_ms:
                assert now == was
            elif now is not None:
                later = [offset for offset in before if offset > marker_offset]
                assert now == was
                assert all(before[offset].producer_id != now.producer_id for offset in later if offset < end_offset)

    def check_nothing_more_goes(self, end_offset: int) -> None:
        """A second compaction of the same range at the same time finds nothing to remove."""
        facts = [
            SegmentFacts(segment.base_offset, segment.end_offset, segment.size, 0, True)
            for segment in self.log.segments
            if segment.base_offset < end_offset
        ]
        now_ms = self.clock.now_ms()
        again = plan(
            facts,
            self.config,
            now_ms=now_ms,
            first_unstable_offset=None,
            high_watermark=self.log.end_offset,
            earliest_horizon_ms=now_ms,
        )
        assert again is not None
        result = compact(self.disk, DIRECTORY, replace(again, aborted_beyond=self.aborted_beyond(again)))
        swap.drop_undecided(self.disk, DIRECTORY)
        assert result.records_removed == 0

    def check_indexes(self) -> None:
        """The indexes answer as a scan of everything does, and are as dense as those of any other segment."""
        for segment in self.log.segments:
            rebuilt = build_indexes(segment.file, base_offset=segment.base_offset, interval_bytes=INTERVAL_BYTES)
            assert segment.indexes.offsets.to_bytes() == rebuilt.offsets.to_bytes()
            positions = [(found.position, found.header.last_offset) for found in batches(segment.file, verify=True)]
            for offset in range(segment.base_offset, segment.end_offset):
                behind = [position for position, last_offset in positions if last_offset >= offset]
                assert segment.position_of(offset) == min(behind, default=segment.size)
        everything = [record for found in self.log.batches(offset=0) for record in read_batch(found.data)]
        for timestamp_ms in {record.timestamp_ms + shift for record in everything for shift in (0, 1)}:
            expected = next((record.offset for record in everything if record.timestamp_ms >= timestamp_ms), None)
            answer = self.log.offset_for_timestamp(timestamp_ms)
            assert (None if answer is None else answer.offset) == expected

    # --- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_log_holds_the_records_of_the_model(self) -> None:
        found = [each for each in self.log.batches(offset=0) if not each.header.is_control]
        assert [record for each in found for record in read_batch(each.data)] == self.model.records

    @invariant()
    def a_reader_of_committed_records_sees_those_of_the_model(self) -> None:
        end = self.log.end_offset
        unstable = self.log.first_unstable_offset(end)
        stable_end = end if unstable is None else unstable
        aborted = self.log.aborted_transactions(offset=0, end_offset=stable_end)
        reader = AbortedTransactions((entry.producer_id, entry.first_offset) for entry in aborted)
        seen = [
            record
            for found in self.log.batches(offset=0, end_offset=stable_end)
            if not reader.hides(found.header, found.data)
            for record in read_batch(found.data)
        ]
        assert seen == [record for record in self.model.committed if record.offset < stable_end]

    @invariant()
    def a_transaction_that_has_a_batch_and_has_ended_has_its_marker(self) -> None:
        present = self.headers()
        for transaction in self.transactions:
            if transaction.marker_offset is not None and any(offset in present for offset in transaction.batches):
                assert transaction.marker_offset in present

    @invariant()
    def the_log_alone_tells_where_its_producers_stand(self) -> None:
        """Also when every snapshot is lost. Producers close to being forgotten are left out."""
        replayed = ProducerStates()
        for found in self.log.batches(offset=0):
            replay_batch(replayed, found.header, found.data)
        for entry in self.log.producers.entries:
            if self.clock.now_ms() - entry.last_timestamp_ms < EXPIRATION_MS - 2 * SHIFT_MS:
                again = replayed.entry(entry.producer_id)
                assert again is not None
                assert (again.epoch, again.last_sequence) == (entry.epoch, entry.last_sequence)
                assert again.transaction_first_offset == entry.transaction_first_offset


CompactedLog.TestCase.settings = settings(stateful_step_count=60)
TestACompactedLogIsWhatTheModelSays = pytest.mark.slow(CompactedLog.TestCase)

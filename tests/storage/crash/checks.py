"""What must hold of a log that was just opened, whatever happened before.

Every check reads the log through its public surface and compares with a full scan or with the model.
"""

from __future__ import annotations

from ottla.records.reader import Record
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerEntry
from tests.storage.crash.model import Model, StoredBatch

LOOKUPS_MAX = 16
"""How many offsets, and how many timestamps, are looked up in one check."""


def check_opened(log: Log, model: Model) -> None:
    """Everything at once; raises AssertionError with what is wrong."""
    start, end = log.log_start_offset, log.end_offset
    assert log.synced_offset == end, "recovery must leave nothing that a second crash could take"
    assert model.start_lowest <= start <= model.start_highest, (model.start_lowest, start, model.start_highest)
    if start != end:
        assert end in model.boundaries(), f"the log ends at {end}, allowed: {sorted(model.boundaries())}"
    assert model.lowest_end <= max(end, start)
    assert end <= max(model.end_offset, start)
    found = [StoredBatch.of(bytes(batch.data)) for batch in log.batches(offset=start)]
    check_content(found, model, start=start, end=end)
    check_lookups(log, found)
    check_producers(log, model)
    check_transactions(log, model, found)
    epochs = model.epochs(start=start, end=end)
    # An epoch is known from when it begins, so the last one may have lost all its records.
    with_records = tuple(entry for entry in log.epochs.entries if entry.start_offset < end)
    assert with_records == epochs.entries, (log.epochs.entries, epochs.entries)
    assert log.epochs.latest >= epochs.latest


def check_content(found: list[StoredBatch], model: Model, *, start: int, end: int) -> None:
    """What was written is there byte for byte; below the compacted end, what compaction may not take is."""
    written = model.batches_between(start=start, end=end)
    intact = [batch for batch in written if batch.header.base_offset >= model.compacted_end]
    tail = [batch for batch in found if batch.header.base_offset >= model.compacted_end]
    assert [batch.data for batch in tail] == [batch.data for batch in intact]
    if model.compacted_end <= start:
        assert len(found) == len(intact)
        return
    head = [batch for batch in written if batch.header.base_offset < model.compacted_end]
    as_written = {record.offset: record for batch in head for record in batch.records}
    kept = {record.offset: record for batch in found[: len(found) - len(tail)] for record in batch.records}
    for offset, record in kept.items():
        assert record == as_written[offset], f"offset {offset} is {record}, written was {as_written[offset]}"
    for record in _must_stay(head, model, end=end):
        assert record.offset in kept, f"offset {record.offset} is gone, the latest of key {record.key!r}"


def _must_stay(head: list[StoredBatch], model: Model, *, end: int) -> list[Record]:
    """The latest committed record of each key unless it is a tombstone, and every record without a key."""
    aborted = model.replay(start=0, end=end).aborted_offsets
    latest: dict[bytes, Record] = {}
    keyless = []
    for batch in head:
        for record in batch.records:
            if batch.header.is_control or record.offset in aborted:
                continue
            if record.key is None:
                keyless.append(record)
            else:
                latest[record.key] = record
    return keyless + [record for record in latest.values() if record.value is not None]


def check_lookups(log: Log, found: list[StoredBatch]) -> None:
    """The indexes answer as a scan of every batch does."""
    start, end = log.log_start_offset, log.end_offset
    for offset in _spread(list(range(start, end))):
        holder = next((batch.data for batch in found if batch.header.last_offset >= offset), b"")
        assert log.read(offset=offset, bytes_max=1) == holder, f"offset {offset}"
    assert log.read(offset=end, bytes_max=1) == b""
    records = [record for batch in found for record in batch.records if record.offset >= start]
    times = sorted({record.timestamp_ms + shift for record in records for shift in (-1, 0, 1)})
    for timestamp_ms in _spread(times):
        scanned = next((record for record in records if record.timestamp_ms >= timestamp_ms), None)
        answer = log.offset_for_timestamp(timestamp_ms)
        expected = None if scanned is None else (scanned.timestamp_ms, scanned.offset)
        assert (answer and answer[:2]) == expected, f"timestamp {timestamp_ms}: {answer}, a scan says {expected}"


def _spread(values: list[int]) -> list[int]:
    """At most LOOKUPS_MAX values, both ends among them."""
    if len(values) <= LOOKUPS_MAX:
        return values
    last = len(values) - 1
    return [values[at * last // (LOOKUPS_MAX - 1)] for at in range(LOOKUPS_MAX)]


def check_producers(log: Log, model: Model) -> None:
    """Producer state is what a replay gives that begins at or before the log start.

    What only deleted batches told may be forgotten, or known from a snapshot. Compaction may have taken
    some of the remembered batches of a producer, never its last, and the newest timestamps with them.
    """
    start, end = log.log_start_offset, log.end_offset
    entries = {entry.producer_id: entry for entry in log.producers.entries}
    whole = {entry.producer_id: entry for entry in model.replay(start=0, end=end).producers.entries}
    if entries == whole:
        return
    assert start or model.compacted_end, (entries, whole)
    begins = [0, *(batch.header.next_offset for batch in model.batches if batch.header.next_offset <= start), start]
    replays = [model.replay(start=begin, end=end).producers for begin in sorted(set(begins))]
    for producer_id in entries.keys() | whole.keys():
        entry = entries.get(producer_id)
        allowed = [replayed.entry(producer_id) for replayed in replays]
        if model.compacted_end:
            assert entry is None or _is_subsequence(_numbers(entry), _written(model, producer_id, end=end)), entry
            assert _outline(entry) in [_outline(other) for other in allowed], (entry, allowed)
        else:
            assert entry in allowed, (entry, allowed)


Numbers = tuple[int, int, int]
"""Last sequence number, last offset, and how many records came before in the batch."""


def _numbers(entry: ProducerEntry) -> list[Numbers]:
    return [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in entry.batches]


def _outline(entry: ProducerEntry | None) -> tuple[int, int, int, list[Numbers]] | None:
    """An entry without its timestamps, and without all but the last of its batches."""
    if entry is None:
        return None
    return entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset, _numbers(entry)[-1:]


def _written(model: Model, producer_id: int, *, end: int) -> list[Numbers]:
    """Every data batch that a producer wrote."""
    return [
        (header.last_sequence, header.last_offset, header.last_offset_delta)
        for header in (batch.header for batch in model.batches_between(start=0, end=end))
        if header.producer_id == producer_id and not header.is_control
    ]


def _is_subsequence(part: list[Numbers], whole: list[Numbers]) -> bool:
    rest = iter(whole)
    return all(batch in rest for batch in part)


def check_transactions(log: Log, model: Model, found: list[StoredBatch]) -> None:
    """A read_committed reader sees what was committed, and stops before what is still open."""
    start, end = log.log_start_offset, log.end_offset
    replayed = model.replay(start=0, end=end)
    listed = log.aborted_transactions(offset=start, end_offset=end)
    hidden = {
        record.offset
        for batch in found
        if batch.header.is_transactional and not batch.header.is_control
        for record in batch.records
        if any(
            batch.header.producer_id == ended.producer_id and ended.first_offset <= record.offset <= ended.last_offset
            for ended in listed
        )
    }
    present = {record.offset for batch in found for record in batch.records}
    assert hidden == replayed.aborted_offsets & present
    if start == 0 and not model.compacted_end:
        assert listed == sorted(replayed.aborted, key=lambda ended: ended.first_offset)
    unstable, expected = log.first_unstable_offset(end), replayed.producers.first_unstable_offset(end)
    if expected is None or expected >= start:
        assert unstable == expected
    else:
        # Only the part of the transaction that is still in the log has to hold readers back.
        began = {entry.producer_id: entry.transaction_first_offset for entry in replayed.producers.entries}
        left = [
            batch.header.base_offset
            for batch in found
            if 0 <= began.get(batch.header.producer_id, -1) <= batch.header.base_offset
        ]
        assert unstable is None or unstable >= start
        # The log may start inside of a batch.
        assert unstable is None or not left or unstable <= max(left[0], start)
        assert unstable is not None or not left

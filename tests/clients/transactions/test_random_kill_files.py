"""What is read from a server's files: what is open, what is decided, which markers are missing, and what is torn."""

from __future__ import annotations

from pathlib import Path

from ottla.coordinators.outcome import CoordinatorRecord
from ottla.coordinators.transactions import records
from ottla.coordinators.transactions.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
)
from ottla.records.builder import build_batch
from ottla.records.control import MarkerType, build_marker
from tests.clients.transactions import kill_files

TOPIC = "orders"
PRODUCER = 5
EPOCH = 3


def _append(data: Path, topic: str, partition: int, content: bytes | bytearray) -> None:
    directory = data / f"{topic}-{partition}"
    directory.mkdir(exist_ok=True)
    with open(directory / "00000000000000000000.log", "ab") as log:
        log.write(content)


def _write(data: Path, partition: int, *, epoch: int = EPOCH) -> None:
    batch = build_batch(
        [(None, b"x", 0, ())], producer_id=PRODUCER, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    _append(data, TOPIC, partition, batch)


def _end(data: Path, partition: int, kind: MarkerType, *, epoch: int = EPOCH + 1) -> None:
    marker = build_marker(kind, producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=0)
    _append(data, TOPIC, partition, marker)


def _decide(data: Path, status: TransactionStatus, *, name: str = "a", is_fenced: bool = False) -> None:
    value = TransactionLogValue(
        producer_id=PRODUCER,
        producer_epoch=EPOCH + 1,
        transaction_status=status,
        transaction_partitions=[PartitionsSchema(topic=TOPIC, partition_ids=[0, 1, 2])],
        is_fenced=is_fenced,
    )
    record = records.encode(CoordinatorRecord(TransactionLogKey(transactional_id=name), value))
    _append(data, kill_files.TRANSACTION_STATE, 0, build_batch([(*record, 0, ())]))


def test_the_last_word_on_a_transaction_counts(tmp_path: Path) -> None:
    _decide(tmp_path, TransactionStatus.ONGOING)
    _decide(tmp_path, TransactionStatus.ONGOING, name="b")
    _decide(tmp_path, TransactionStatus.COMPLETE_COMMIT)
    hit = kill_files.Hit.of(tmp_path)
    assert (hit.open_ids, hit.missing_markers) == (frozenset({"b"}), {})


def test_partitions_that_a_decision_has_not_reached_are_counted(tmp_path: Path) -> None:
    for partition in range(3):
        _write(tmp_path, partition)
    _decide(tmp_path, TransactionStatus.PREPARE_COMMIT)
    _end(tmp_path, 1, MarkerType.COMMIT)
    hit = kill_files.Hit.of(tmp_path)
    assert (hit.open_ids, hit.missing_markers, hit.unmarked_count) == (frozenset(), {"a": 2}, 1)


def test_a_decision_that_only_wants_its_end_misses_no_marker(tmp_path: Path) -> None:
    _write(tmp_path, 0)
    _decide(tmp_path, TransactionStatus.PREPARE_ABORT)
    _end(tmp_path, 0, MarkerType.ABORT)
    hit = kill_files.Hit.of(tmp_path)
    assert (hit.missing_markers, hit.unmarked_count) == ({"a": 0}, 0)


def test_half_a_batch_at_the_end_is_not_there_yet(tmp_path: Path) -> None:
    _decide(tmp_path, TransactionStatus.ONGOING)
    _append(tmp_path, kill_files.TRANSACTION_STATE, 0, bytes(30))
    assert kill_files.Hit.of(tmp_path).open_ids == {"a"}


def test_ends_are_counted_for_the_ids_that_are_asked_for(tmp_path: Path) -> None:
    _decide(tmp_path, TransactionStatus.COMPLETE_COMMIT)
    _decide(tmp_path, TransactionStatus.PREPARE_ABORT, is_fenced=True)
    _decide(tmp_path, TransactionStatus.COMPLETE_ABORT)
    _decide(tmp_path, TransactionStatus.COMPLETE_COMMIT, name="other")
    found = kill_files.tally(tmp_path, "a")
    assert (found.commits, found.aborts, found.fences, found.ids) == (1, 1, 1, {"a"})


def test_transactions_that_ended_alike_everywhere_are_whole(tmp_path: Path) -> None:
    for partition in range(2):
        _write(tmp_path, partition)
        _end(tmp_path, partition, MarkerType.COMMIT)
        _write(tmp_path, partition, epoch=EPOCH + 1)
        _end(tmp_path, partition, MarkerType.ABORT, epoch=EPOCH + 2)
    assert kill_files.torn(tmp_path, TOPIC) == (2, [])


def test_one_that_was_committed_here_and_aborted_there_is_torn(tmp_path: Path) -> None:
    for partition, kind in enumerate(MarkerType):
        _write(tmp_path, partition)
        _end(tmp_path, partition, kind)
    count, wrong = kill_files.torn(tmp_path, TOPIC)
    assert (count, len(wrong)) == (1, 1)


def test_one_that_was_covered_by_the_end_of_a_later_one_is_torn(tmp_path: Path) -> None:
    for partition in range(2):
        _write(tmp_path, partition)
    _end(tmp_path, 0, MarkerType.COMMIT)
    _write(tmp_path, 1, epoch=EPOCH + 1)
    _end(tmp_path, 1, MarkerType.ABORT, epoch=EPOCH + 2)
    assert len(kill_files.torn(tmp_path, TOPIC)[1]) == 1


def test_one_without_an_end_is_torn(tmp_path: Path) -> None:
    _write(tmp_path, 0)
    assert len(kill_files.torn(tmp_path, TOPIC)[1]) == 1

"""Reading a coordinator's state back: what is damaged or unknown costs what it held, and no more."""

from __future__ import annotations

import errno
import itertools
import logging

import pytest

from ottla.coordinators.groups import records
from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.loading import PIECE_RECORDS, WARNINGS_MAX, Loading
from ottla.coordinators.runtime_shard import RETRY_MS_MIN
from ottla.errors import CoordinatorNotAvailable
from ottla.records.batch import peek, walk
from ottla.records.builder import build_batch
from ottla.records.control import MarkerType
from tests.coordinators.ledger_stage import Stage
from tests.storage.workbench import NOW_MS, marker

LOG = "/data/state-0/00000000000000000000.log"


def append(stage: Stage, *rows: tuple[bytes | None, bytes | None]) -> None:
    """Append records as they are, right or wrong."""
    batch = build_batch([(key, value, NOW_MS, ()) for key, value in rows])
    stage.partition(0).append(batch, peek(batch))


def record(name: str, amount: int) -> tuple[bytes, bytes]:
    return records.encode_key(OffsetCommitKey(group=name)), records.encode_value(OffsetCommitValue(offset=amount))


def reload(stage: Stage) -> dict[str, int]:
    """What a new life reads from the disk."""
    stage.scheduler.advance(10)
    for partition in stage.partitions.values():
        partition.close()
    stage.start()
    return stage.ledger.amounts


def overwrite(stage: Stage, position: int, data: bytes) -> None:
    """Bytes that rotted on the disk."""
    whole = bytearray(stage.disk.files()[LOG])
    whole[position : position + len(data)] = data
    file = stage.disk.open(LOG)
    file.truncate(0)
    file.append([bytes(whole)])
    file.sync()


def positions(stage: Stage) -> list[int]:
    """Where each batch begins."""
    return [position for position, _ in walk(stage.disk.files()[LOG])]


def filled(count: int) -> Stage:
    """A log with a batch for each name, closed in order."""
    stage = Stage()
    for number in range(count):
        append(stage, record(f"name {number}", number))
    stage.scheduler.advance(10)
    for partition in stage.partitions.values():
        partition.close()
    return stage


def test_a_record_of_an_unknown_type_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    append(stage, record("a", 1), (b"\x00\x63unknown", b"\x00\x00what"), record("b", 2))
    with caplog.at_level(logging.WARNING):
        assert reload(stage) == {"a": 1, "b": 2}
    assert "type 99" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x04"),
        (b"", b""),
        (b"\x00", b"\x00"),
        (b"\x00\x01", b"\x00\x04"),
        (records.encode_key(OffsetCommitKey(group="x")), b"\x00\x63whatever"),
        (records.encode_key(OffsetCommitKey(group="x")), b"\x00\x04\x00"),
        (records.encode_key(OffsetCommitKey(group="x")) + b"more", None),
    ],
    ids=["no key", "empty", "one byte", "no fields", "a version of the future", "cut short", "too long"],
)
def test_bytes_that_are_no_record_are_passed_over(
    key: bytes | None, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    append(stage, record("a", 1), (key, value), record("b", 2))
    with caplog.at_level(logging.WARNING):
        assert reload(stage) == {"a": 1, "b": 2}
    assert "passed over" in caplog.text


def test_a_record_that_makes_no_sense_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    append(stage, record("a", 1), record("debt", -1), record("b", 2))
    with caplog.at_level(logging.WARNING):
        assert reload(stage) == {"a": 1, "b": 2}
    assert "cannot be replayed" in caplog.text


def test_control_batches_are_passed_over_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    append(stage, record("a", 1))
    control = marker(7, MarkerType.COMMIT)
    stage.partition(0).append(control, peek(control))
    append(stage, record("b", 2))
    with caplog.at_level(logging.WARNING):
        assert reload(stage) == {"a": 1, "b": 2}
    assert caplog.text == ""


def test_a_batch_with_a_flipped_bit_costs_that_batch(caplog: pytest.LogCaptureFixture) -> None:
    stage = filled(5)
    overwrite(stage, positions(stage)[3] - 1, b"\xff")
    with caplog.at_level(logging.WARNING):
        stage.start()
    assert stage.ledger.amounts == {"name 0": 0, "name 1": 1, "name 3": 3, "name 4": 4}
    assert "batch at offset 2 is damaged" in caplog.text


def test_where_batches_no_longer_follow_each_other_the_index_leads_on() -> None:
    stage = filled(2_000)
    lost = positions(stage)[1_000]
    overwrite(stage, lost, bytes(range(1, 201)))
    stage.start()
    amounts = stage.ledger.amounts
    assert {f"name {number}" for number in range(1_000)} <= amounts.keys()
    assert "name 1999" in amounts
    assert len(amounts) > 1_700


def test_a_log_of_random_bytes_leaves_an_empty_coordinator_that_works(caplog: pytest.LogCaptureFixture) -> None:
    stage = filled(2_000)
    size = len(stage.disk.files()[LOG])
    overwrite(stage, 0, bytes((number * 167 + number // 251) % 256 for number in range(size)))
    with caplog.at_level(logging.WARNING):
        stage.start()
    assert stage.ledger.amounts == {}
    assert len(caplog.records) <= WARNINGS_MAX + 2
    # The log finds out by the first append, and is cut to what is whole when it is opened anew.
    stage.put("a", 5)
    stage.scheduler.advance(RETRY_MS_MIN)
    replies = stage.put("a", 5)
    stage.scheduler.run()
    assert replies.amount == 5


def test_a_disk_that_does_not_answer_is_asked_again() -> None:
    stage = filled(5)
    stage.disk.fail_next("read", ".log", errno.EIO, times=2)
    stage.start()
    assert stage.look("name 1").refusal is CoordinatorNotAvailable
    stage.disk.heal()
    stage.scheduler.advance(RETRY_MS_MIN)
    assert stage.look("name 1").amount == 1


def test_a_large_batch_is_replayed_in_pieces() -> None:
    count = 2 * PIECE_RECORDS + 1
    stage = Stage()
    append(stage, record("before", 1))
    append(stage, *(record(f"name {number}", number) for number in range(count)))
    append(stage, record("after", 2))
    loading = Loading(stage.partition(0).log, records.decode, lambda key, value: None)
    replayed = [0]
    while not loading.step():
        replayed.append(loading.records)
    assert max(after - before for before, after in itertools.pairwise(replayed)) <= PIECE_RECORDS
    assert loading.records == count + 2


def test_many_small_batches_are_replayed_in_pieces() -> None:
    stage = Stage()
    for number in range(3 * PIECE_RECORDS):
        append(stage, record("a", number))
    loading = Loading(stage.partition(0).log, records.decode, lambda key, value: None)
    assert not loading.step()
    assert loading.records == PIECE_RECORDS


def test_what_a_large_batch_holds_is_there() -> None:
    stage = Stage()
    append(stage, *(record(f"name {number}", number) for number in range(2 * PIECE_RECORDS)))
    append(stage, record("name 0", 7))
    amounts = reload(stage)
    assert len(amounts) == 2 * PIECE_RECORDS
    assert (amounts["name 0"], amounts["name 199"]) == (7, 199)

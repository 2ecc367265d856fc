"""Transaction markers, and control records of other kinds."""

from __future__ import annotations

import pytest

from ottla.errors import CorruptBatch, InvalidBatch
from ottla.records.batch import peek
from ottla.records.builder import build_batch
from ottla.records.control import Marker, MarkerType, build_marker, parse_marker
from ottla.records.filter import filter_batch
from ottla.records.reader import read_batch
from tests.records.samples import NOW_MS, TYPICAL

COMMIT_VALUE = b"\x00\x00\x00\x00\x00\x05"


def control(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([(key, value, NOW_MS, ())], producer_id=1, producer_epoch=2, transactional=True, control=True)


@pytest.mark.parametrize("marker_type", MarkerType)
def test_a_marker_comes_back(marker_type: MarkerType) -> None:
    batch = build_marker(
        marker_type, producer_id=2**40, producer_epoch=9, coordinator_epoch=77, timestamp_ms=NOW_MS, base_offset=5
    )
    assert parse_marker(batch) == Marker(marker_type, 2**40, 9, 77)


def test_a_marker_is_a_transactional_control_batch_of_one_record() -> None:
    batch = build_marker(
        MarkerType.COMMIT,
        producer_id=1,
        producer_epoch=2,
        coordinator_epoch=3,
        timestamp_ms=NOW_MS,
        base_offset=5,
        leader_epoch=6,
    )
    header = peek(batch)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.base_offset, header.leader_epoch, header.base_sequence) == (5, 6, -1)
    assert read_batch(batch)[0].key == b"\x00\x00\x00\x01"
    assert read_batch(batch)[0].value == b"\x00\x00\x00\x00\x00\x03"


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 32_767])
def test_a_control_record_of_an_unknown_kind_is_let_through(kind: int) -> None:
    assert parse_marker(control(b"\x00\x00" + kind.to_bytes(2, "big"), b"whatever")) is None


def test_a_later_version_with_more_fields_is_read() -> None:
    marker = parse_marker(control(b"\x00\x01\x00\x00more", b"\x00\x01\x00\x00\x00\x05more"))
    assert marker == Marker(MarkerType.ABORT, 1, 2, 5)


def test_an_emptied_control_batch_is_no_marker() -> None:
    assert parse_marker(filter_batch(control(b"\x00\x00\x00\x01", COMMIT_VALUE), lambda *_: False)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, COMMIT_VALUE),
        (b"\x00\x00\x00", COMMIT_VALUE),
        (b"\xff\xff\x00\x01", COMMIT_VALUE),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", COMMIT_VALUE[:-1]),
        (b"\x00\x00\x00\x01", b"\xff\xff" + COMMIT_VALUE[2:]),
    ],
)
def test_a_malformed_marker_is_invalid(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        parse_marker(control(key, value))


def test_a_batch_of_data_is_no_marker() -> None:
    with pytest.raises(InvalidBatch, match="not a control batch"):
        parse_marker(build_batch(TYPICAL))


def test_a_marker_with_a_wrong_checksum_is_corrupt() -> None:
    batch = control(b"\x00\x00\x00\x01", COMMIT_VALUE)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        parse_marker(batch)

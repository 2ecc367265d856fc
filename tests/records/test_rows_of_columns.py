"""The kernel's way from columns to batches: which rows go where, and that their bytes are those of plain records."""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.routing import murmur2_partition
from ottla.errors import InvalidRecord
from ottla.records import kernel, packing
from ottla.records.arrow import HEADERS_TYPE, bytes_buffers, header_buffers, timestamp_buffers
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import RECORDS_BYTES_MAX
from tests.records.samples import NOW_MS, header_lists, maybe_bytes, timestamps

pytestmark = pytest.mark.usefixtures("kernel_implementation")

rows_of_columns = st.lists(st.tuples(maybe_bytes, maybe_bytes, st.none() | timestamps, header_lists), max_size=30)


def kernel_columns(rows: list[tuple[Any, Any, Any, Any]], *, skipped: int = 0) -> Any:
    """The rows as the kernel takes them; `skipped` rows stand before them in every column, as in a slice."""
    assert kernel.compiled is not None
    padding = [(b"skipped", b"skipped", 7, [("skipped", b"")])] * skipped
    keys, values, times, headers = zip(*padding, *rows, strict=True) if rows or padding else ((), (), (), ())
    arrays = (
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(times, pa.int64()),
        pa.array([[{"key": name, "value": content} for name, content in each] for each in headers], HEADERS_TYPE),
    )
    key, value, time, header = (each.slice(skipped) for each in arrays)
    return kernel.compiled.PackedColumns(
        len(rows), bytes_buffers(key), bytes_buffers(value), timestamp_buffers(time), header_buffers(header)
    )


def numbers(*values: int) -> bytes:
    return array("i", values).tobytes()


def plain(rows: list[tuple[Any, Any, Any, Any]]) -> packing.Packed:
    return packing.pack_records([(k, v, NOW_MS if t is None else t, h) for k, v, t, h in rows], RECORDS_BYTES_MAX)


@given(rows=rows_of_columns, skipped=st.integers(0, 9), data=st.data())
def test_selected_rows_are_packed_as_the_same_records_would_be(
    rows: list[tuple[Any, Any, Any, Any]], skipped: int, data: st.DataObject
) -> None:
    if not rows:
        return
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=40))
    packed, at = kernel_columns(rows, skipped=skipped).pack(
        numbers(*chosen), 0, len(chosen), 0, RECORDS_BYTES_MAX, NOW_MS
    )
    assert packed == plain([rows[each] for each in chosen])
    assert at == len(chosen)


@given(rows=rows_of_columns, cut_bytes=st.integers(1, 2_000))
def test_batches_are_cut_where_the_next_record_would_not_fit_and_nothing_falls_between_them(
    rows: list[tuple[Any, Any, Any, Any]], cut_bytes: int
) -> None:
    columns = kernel_columns(rows)
    at = 0
    while at < len(rows):
        packed, end = columns.pack(numbers(*range(len(rows))), at, len(rows), cut_bytes, RECORDS_BYTES_MAX, NOW_MS)
        assert packed == plain(rows[at:end])
        assert end > at
        assert len(packed[0]) <= cut_bytes or end == at + 1
        if end < len(rows):
            assert len(plain(rows[at : end + 1])[0]) > cut_bytes
        at = end


@pytest.mark.parametrize("row", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    columns = kernel_columns([(b"k", b"v", None, [])] * 3)
    with pytest.raises(InvalidRecord, match="place 1"):
        columns.pack(numbers(0, row), 0, 2, 0, RECORDS_BYTES_MAX, NOW_MS)


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (0, 3), (2, 2), (2, 1), (3, 4)])
def test_places_that_are_not_there_are_refused(start: int, end: int) -> None:
    columns = kernel_columns([(b"k", b"v", None, [])] * 9)
    with pytest.raises(InvalidRecord):
        columns.pack(numbers(0, 1), start, end, 0, RECORDS_BYTES_MAX, NOW_MS)


@pytest.mark.parametrize(
    "broken", [(0, None, None, b"x"), (0, None, numbers(0, 9), b"abc"), (1, None, numbers(0, 1), b"a")]
)
def test_columns_that_do_not_hold_what_they_claim_are_refused(broken: Any) -> None:
    assert kernel.compiled is not None
    with pytest.raises(InvalidRecord):
        kernel.compiled.PackedColumns(1, broken, None, None, None).pack(None, 0, 1, 0, RECORDS_BYTES_MAX, NOW_MS)


@pytest.mark.parametrize("data", [b"", b"1234567", b"12345678"])
def test_offsets_do_not_make_up_for_values_of_a_fixed_width(data: bytes) -> None:
    assert kernel.compiled is not None
    given = (0, None, numbers(0, 0), data)
    with pytest.raises(InvalidRecord, match="timestamps has no use for offsets"):
        kernel.compiled.PackedColumns(1, None, None, given, None)
    with pytest.raises(InvalidRecord, match="partitions has no use for offsets"):
        kernel.compiled.route_rows(1, None, None, given, 1, range(1), 0, 0, 1)


def route(keys: list[bytes | None], partition_count: int, **more: Any) -> tuple[list[int], Any]:
    """The partition of each row, and whose turn is next."""
    assert kernel.compiled is not None
    key = pa.array([b"before", *keys], pa.binary()).slice(1)
    chosen = more.get("chosen")
    column = None if chosen is None else pa.array([0, *chosen], pa.int32()).slice(1)
    order, found, *turn = kernel.compiled.route_rows(
        len(keys),
        bytes_buffers(key),
        bytes_buffers(more["values"]) if "values" in more else None,
        None if column is None else (column.offset, column.buffers()[0], None, column.buffers()[1]),
        partition_count,
        more.get("spread", range(partition_count)),
        more.get("turn", 0),
        more.get("turn_bytes", 0),
        more.get("turn_bytes_max", 10**9),
    )
    routed = [-1] * len(keys)
    places = array("i")
    places.frombytes(bytes(order))
    for partition, start, end in found:
        assert list(places[start:end]) == sorted(places[start:end]), "each partition's rows keep their order"
        for row in places[start:end]:
            assert routed[row] == -1
            routed[row] = partition
    return routed, turn


@given(keys=st.lists(st.binary(max_size=70), max_size=40), partition_count=st.integers(1, 1_000))
def test_keys_go_where_every_kafka_client_puts_them(keys: list[bytes], partition_count: int) -> None:
    routed, _ = route(list(keys), partition_count)
    assert routed == [murmur2_partition(key, partition_count) for key in keys]


def test_rows_without_a_key_go_to_one_partition_until_its_turn_is_over() -> None:
    values = pa.array([b"x" * 29] * 7, pa.binary())
    routed, turn = route([None] * 7, 5, values=values, spread=[4, 1, 2], turn=1, turn_bytes_max=100)
    assert routed == [1, 1, 2, 2, 4, 4, 1]
    assert turn == [1, 50]


def test_a_chosen_partition_comes_before_the_key() -> None:
    routed, _ = route([b"a", b"b", None], 8, chosen=[7, None, 0])
    assert routed == [7, murmur2_partition(b"b", 8), 0]


@pytest.mark.parametrize("partition", [-1, 8, 2**31 - 1])
def test_a_chosen_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(InvalidRecord, match="record 1: there is no such partition"):
        route([b"a", b"b"], 8, chosen=[7, partition])


@pytest.mark.parametrize("more", [{"spread": []}, {"spread": [8]}, {"spread": [-1]}, {"turn": 8}, {"turn": -1}])
def test_turns_among_partitions_that_are_not_there_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        route([None], 8, **more)


def test_a_batch_has_room_for_its_header() -> None:
    (packed, *_), _ = kernel_columns([(None, b"", None, [])]).pack(None, 0, 1, 0, RECORDS_BYTES_MAX, NOW_MS)
    assert packed[:HEADER_SIZE] == bytes(HEADER_SIZE)

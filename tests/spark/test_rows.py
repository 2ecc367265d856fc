"""Rows of Arrow columns on their way to batches, with the kernel and without it."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ottla.client.routing import murmur2_partition
from ottla.client.topology import NO_LEADER, PartitionView, TopicView
from ottla.client.values import TopicPartition
from ottla.clock import ManualClock
from ottla.errors import InvalidRecord, PartitionNotFound
from ottla.protocol.schema import NO_UUID
from ottla.records import kernel
from ottla.records.arrow import HEADERS_TYPE
from ottla.records.batch import (
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TimestampType,
)
from ottla.records.builder import build_batch, finish_batch
from ottla.records.packing import Packed
from ottla.records.reader import Record, read_batch
from ottla.spark.errors import InvalidSchema
from ottla.spark.row_sender import GATHERED_BYTES_MAX, InvalidRow, RowSender
from ottla.spark.rows import KernelRows, PackableRows, PlainRows, Share, Shares, Turns, packable
from ottla.spark.sink_columns import check_columns

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 1_000

keys = st.none() | st.binary(max_size=40)
table_rows = st.lists(
    st.tuples(keys, st.none() | st.binary(max_size=300), st.lists(st.tuples(st.text(max_size=9), keys), max_size=3)),
    min_size=1,
    max_size=60,
)


def table(rows: list[tuple[Any, Any, Any]]) -> pa.RecordBatch:
    found = {
        "key": pa.array([key for key, _, _ in rows], pa.binary()),
        "value": pa.array([value for _, value, _ in rows], pa.binary()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in headers] for _, _, headers in rows], HEADERS_TYPE),
    }
    return pa.record_batch(found)


def batches(rows: PackableRows, shares: Shares, batch_bytes: int) -> list[tuple[int, Packed]]:
    made = []
    for partition, start, end in shares.found:
        at = start
        while at < end:
            packed, at = rows.pack(shares.order, start=at, end=end, batch_bytes=batch_bytes, timestamp_ms=NOW_MS)
            made.append((partition, packed))
    return made


@pytest.mark.skipif(kernel.compiled is None, reason="the compiled kernel is not in use")
@given(
    rows=table_rows,
    partition_count=st.integers(1, 9),
    turn_bytes=st.integers(1, 900),
    batch_bytes=st.integers(80, 900),
    data=st.data(),
)
def test_the_kernel_and_plain_python_share_out_and_pack_alike(
    rows: list[tuple[Any, Any, Any]], partition_count: int, turn_bytes: int, batch_bytes: int, data: st.DataObject
) -> None:
    numbers = st.none() | st.integers(0, partition_count - 1)
    chosen = data.draw(st.none() | st.lists(numbers, min_size=len(rows), max_size=len(rows)))
    spread = data.draw(st.lists(st.integers(0, partition_count - 1), min_size=1, max_size=5))
    results = []
    for kind in (KernelRows, PlainRows):
        turns = Turns(turn_bytes, at=data.draw(st.just(len(rows))))
        packing: PackableRows = kind(table(rows))
        column = None if chosen is None else pa.array(chosen, pa.int32())
        shares = packing.shared_out(partition_count=partition_count, spread=spread, turns=turns, chosen=column)
        results.append((shares, turns, batches(packing, shares, batch_bytes)))
    assert results[0] == results[1]


@pytest.fixture(params=[KernelRows, PlainRows], ids=["kernel", "plain"])
def make_rows(request: pytest.FixtureRequest) -> type[KernelRows] | type[PlainRows]:
    if request.param is KernelRows and kernel.compiled is None:
        pytest.skip("the compiled kernel is not in use")
    kind: type[KernelRows] | type[PlainRows] = request.param
    return kind


def test_strings_are_written_as_their_bytes(make_rows: type[KernelRows] | type[PlainRows]) -> None:
    rows = make_rows(pa.record_batch({"key": pa.array(["schlüssel"]), "value": pa.array(["wert"])}))
    shares = rows.shared_out(partition_count=7, spread=range(7), turns=Turns(100))
    assert shares.found == [Share(murmur2_partition("schlüssel".encode(), 7), 0, 1)]
    packed, _ = rows.pack(shares.order, start=0, end=1, batch_bytes=1_000, timestamp_ms=NOW_MS)
    batch = build_batch([("schlüssel".encode(), b"wert", NOW_MS, ())])
    assert packed[0][HEADER_SIZE:] == batch[HEADER_SIZE:]


def test_a_header_without_a_name_is_refused(make_rows: type[KernelRows] | type[PlainRows]) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    unnamed = pa.array([[{"key": None, "value": b"x"}]], kind)
    rows = make_rows(pa.record_batch({"value": pa.array([b"v"]), "headers": unnamed}))
    with pytest.raises(InvalidRecord):
        rows.pack(bytearray(4), start=0, end=1, batch_bytes=1_000, timestamp_ms=NOW_MS)


def test_a_turn_goes_on_where_partitions_have_gone(make_rows: type[KernelRows] | type[PlainRows]) -> None:
    rows = make_rows(pa.record_batch({"value": pa.array([b"v"])}))
    turns = Turns(100, at=5, bytes_sent=99)
    assert rows.shared_out(partition_count=9, spread=[3, 4, 8], turns=turns).found == [Share(8, 0, 1)]


# --- the sender ----------------------------------------------------------------------------------------


class Outbox:
    """A producer that keeps what it is given."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics = partition_counts
        self.without_leader: frozenset[int] = frozenset()
        self.sent: list[tuple[str, int, Packed]] = []

    def topic(self, name: str, partition: int | None = None) -> TopicView:
        count = self.topics[name]
        if partition is not None and partition >= count:
            raise PartitionNotFound(name, partition)
        return TopicView(
            name,
            NO_UUID,
            is_internal=False,
            partitions=tuple(PartitionView(each, NO_LEADER, 0, (), ()) for each in range(count)),
            keys=tuple(TopicPartition(name, each) for each in range(count)),
            available=tuple(each for each in range(count) if each not in self.without_leader),
            learned_ms=0,
        )

    def submit_packed(self, topic: str, partition: int, packed: Packed) -> None:
        self.sent.append((topic, partition, packed))

    def records(self, topic: str, partition: int) -> list[Record]:
        found: list[Record] = []
        for name, number, packed in self.sent:
            if (name, number) == (topic, partition):
                found += read_batch(finished(packed))
        return found

    def values(self, topic: str) -> list[bytes | None]:
        return [each.value for partition in range(self.topics[topic]) for each in self.records(topic, partition)]


def finished(packed: Packed) -> bytearray:
    return finish_batch(
        packed,
        codec=0,
        base_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        transactional=False,
        control=False,
        timestamp_type=TimestampType.CREATE_TIME,
        level=None,
    )


def sender(outbox: Outbox, *, topic: str | None = "t", batch_bytes: int = BATCH_BYTES) -> RowSender:
    return RowSender(outbox, topic=topic, batch_bytes=batch_bytes, clock=ManualClock(NOW_MS), chance=Random(7))


def test_rows_of_a_key_keep_their_order_over_many_arrow_batches() -> None:
    outbox = Outbox(t=4)
    sending = sender(outbox)
    for first in range(0, 3_000, 500):
        numbers = range(first, first + 500)
        sending.take(
            pa.record_batch(
                {
                    "key": pa.array([b"%d" % (each % 13) for each in numbers]),
                    "value": pa.array([b"%d" % each for each in numbers]),
                }
            )
        )
    sending.finish()
    assert sending.rows_taken == 3_000
    for partition in range(4):
        records = outbox.records("t", partition)
        assert [int(each.value or b"") for each in records] == sorted(int(each.value or b"") for each in records)
        assert all(murmur2_partition(each.key or b"", 4) == partition for each in records)
    assert sorted(int(value or b"") for value in outbox.values("t")) == list(range(3_000))


def test_no_batch_is_larger_than_asked_for() -> None:
    outbox = Outbox(t=2)
    sending = sender(outbox)
    sending.take(pa.record_batch({"value": pa.array([b"x" * 90] * 100)}))
    sending.finish()
    assert max(len(packed[0]) for _, _, packed in outbox.sent) <= BATCH_BYTES
    assert len(outbox.sent) < 15


def test_keyless_rows_are_spread_over_the_partitions_that_have_a_leader() -> None:
    outbox = Outbox(t=5)
    outbox.without_leader = frozenset({1, 3})
    sending = sender(outbox)
    sending.take(pa.record_batch({"value": pa.array([b"x" * 100] * 300)}))
    sending.finish()
    counts = [len(outbox.records("t", partition)) for partition in range(5)]
    assert counts[1] == counts[3] == 0
    assert min(counts[0], counts[2], counts[4]) > 80


def test_each_row_goes_to_the_topic_that_it_names() -> None:
    outbox = Outbox(a=1, b=2)
    sending = sender(outbox, topic=None)
    sending.take(pa.record_batch({"value": pa.array([b"1", b"2", b"3"]), "topic": pa.array(["a", "b", "a"])}))
    sending.finish()
    assert outbox.values("a") == [b"1", b"3"]
    assert outbox.values("b") == [b"2"]


def test_the_option_topic_comes_before_the_column() -> None:
    outbox = Outbox(t=1)
    sending = sender(outbox)
    sending.take(pa.record_batch({"value": pa.array([b"1"]), "topic": pa.array(["elsewhere"])}))
    sending.finish()
    assert outbox.values("t") == [b"1"]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(InvalidRow, match=r"null for its topic.*option topic"):
        sender(Outbox(a=1), topic=None).take(
            pa.record_batch({"value": pa.array([b"1", b"2"]), "topic": pa.array(["a", None])})
        )


def test_a_row_goes_to_the_partition_that_it_names() -> None:
    outbox = Outbox(t=3)
    sending = sender(outbox)
    sending.take(pa.record_batch({"value": pa.array([b"1", b"2"]), "partition": pa.array([2, 0], pa.int32())}))
    sending.finish()
    assert [each.value for each in outbox.records("t", 2)] == [b"1"]
    assert [each.value for each in outbox.records("t", 0)] == [b"2"]


@pytest.mark.parametrize(("partition", "said"), [(3, "topic 't' has 3"), (-1, "count from 0")])
def test_a_partition_that_is_not_there_is_refused_with_the_fix(partition: int, said: str) -> None:
    sending = sender(Outbox(t=3))
    sending.take(pa.record_batch({"value": pa.array([b"1"]), "partition": pa.array([partition], pa.int32())}))
    with pytest.raises(InvalidRow, match=said):
        sending.finish()


def test_records_have_the_time_at_which_they_were_packed_and_nulls_stay_nulls() -> None:
    outbox = Outbox(t=1)
    sending = sender(outbox)
    sending.take(pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([None], pa.binary())}))
    sending.finish()
    assert outbox.records("t", 0) == [Record(0, NOW_MS, b"k", None, ())]


def test_what_is_gathered_is_bounded_however_many_topics_there_are() -> None:
    outbox = Outbox(**{f"t{number}": 1_000 for number in range(40)})
    sending = sender(outbox, topic=None, batch_bytes=10**6)
    rows = 200
    for first in range(40):
        value = pa.array([b"x" * 5_000] * rows)
        sending.take(pa.record_batch({"value": value, "topic": pa.array([f"t{first}"] * rows)}))
    assert len(outbox.sent) >= 40 * rows * 5_000 // GATHERED_BYTES_MAX


def test_empty_batches_are_passed_over() -> None:
    outbox = Outbox(t=1)
    sending = sender(outbox)
    sending.take(pa.record_batch({"value": pa.array([], pa.binary())}))
    sending.finish()
    assert not outbox.sent


def test_the_quicker_way_is_taken_where_it_is_there() -> None:
    kind = PlainRows if kernel.compiled is None else KernelRows
    assert isinstance(packable(pa.record_batch({"value": pa.array([b"v"])})), kind)


# --- the columns ---------------------------------------------------------------------------------------

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_a_frame_that_was_read_from_a_topic_may_be_written_as_it_is() -> None:
    check_columns(
        schema(
            key=BinaryType(), value=StringType(), topic=StringType(), partition=IntegerType(), offset=LongType(),
            headers=HEADERS,
        ),
        topic=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"key": StringType()}, "no column named value"),
        ({"value": LongType()}, r"value is bigint and must be string or binary.*CAST\(value AS STRING\)"),
        ({"value": StringType(), "key": IntegerType()}, "key is int and must be string or binary"),
        ({"value": StringType(), "partition": LongType()}, r"partition is bigint and must be int.*CAST"),
        ({"value": StringType(), "headers": StringType()}, "headers is string and must be array<struct"),
        ({"value": StringType(), "headers": ArrayType(StringType())}, "headers is array<string>"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_with_the_fix(types: dict[str, DataType], said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        check_columns(schema(**types), topic="t")


def test_without_the_option_topic_there_must_be_a_column() -> None:
    with pytest.raises(InvalidSchema, match="Set the option topic, or add a column"):
        check_columns(schema(value=StringType()), topic=None)


def test_a_topic_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="topic is int and must be string"):
        check_columns(schema(value=StringType(), topic=IntegerType()), topic=None)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = StructType([StructField("value", StringType()), StructField("value", StringType())])
    with pytest.raises(InvalidSchema, match="two columns named value"):
        check_columns(twice, topic="t")

"""The column of the sink that gives records their own time."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

from ottla.clock import ManualClock
from ottla.records import kernel
from ottla.records.batch import TimestampType as BatchTimes
from ottla.records.builder import finish_batch
from ottla.records.packing import Packed
from ottla.records.reader import read_batch
from ottla.spark.errors import InvalidSchema
from ottla.spark.row_sender import RowSender
from ottla.spark.rows import KernelRows, PackableRows, PlainRows, Turns
from ottla.spark.sink_columns import check_columns
from tests.spark.test_rows import NOW_MS, Outbox, batches

times = st.none() | st.integers(-(2**40), 2**41) | st.integers(NOW_MS - 100, NOW_MS + 100)


def schema(kind: TimestampType | LongType) -> StructType:
    return StructType([StructField("value", BinaryType()), StructField("recordTimestamp", kind)])


def test_a_time_is_a_timestamp_and_nothing_else() -> None:
    check_columns(schema(TimestampType()), topic="t")
    with pytest.raises(InvalidSchema, match="recordTimestamp is bigint and must be timestamp"):
        check_columns(schema(LongType()), topic="t")


def written(packed: Packed) -> list[int]:
    """The times in a batch."""
    batch = finish_batch(
        packed,
        codec=0,
        base_offset=0,
        leader_epoch=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=False,
        control=False,
        timestamp_type=BatchTimes.CREATE_TIME,
        level=None,
    )
    return [record.timestamp_ms for record in read_batch(batch)]


def test_records_get_their_own_times_and_those_without_one_the_time_of_writing() -> None:
    outbox = Outbox(t=1)
    sender = RowSender(outbox, topic="t", batch_bytes=10_000, clock=ManualClock(NOW_MS), chance=Random(0))
    own = pa.array([5_000, None, -1_000, 7_999], pa.timestamp("us", tz="UTC"))
    sender.take(pa.record_batch({"value": pa.array([b"a", b"b", b"c", b"d"]), "recordTimestamp": own}))
    sender.finish()
    assert [time for _, _, packed in outbox.sent for time in written(packed)] == [5, NOW_MS, -1, 7]


def test_the_time_at_which_a_record_was_read_elsewhere_is_not_its_own() -> None:
    outbox = Outbox(t=1)
    sender = RowSender(outbox, topic="t", batch_bytes=10_000, clock=ManualClock(NOW_MS), chance=Random(0))
    sender.take(pa.record_batch({"value": pa.array([b"a"]), "timestamp": pa.array([5], pa.timestamp("us", tz="UTC"))}))
    sender.finish()
    assert [time for _, _, packed in outbox.sent for time in written(packed)] == [NOW_MS]


@pytest.mark.skipif(kernel.compiled is None, reason="the compiled kernel is not in use")
@given(st.lists(times, min_size=1, max_size=60), st.integers(80, 400))
def test_the_kernel_and_plain_python_pack_times_alike(own: list[int | None], batch_bytes: int) -> None:
    rows = pa.record_batch({"value": pa.array([b"v"] * len(own)), "timestamp": pa.array(own, pa.int64())})
    made = []
    for kind in (KernelRows, PlainRows):
        packing: PackableRows = kind(rows)
        shares = packing.shared_out(partition_count=1, spread=[0], turns=Turns(100))
        made.append(batches(packing, shares, batch_bytes))
    assert made[0] == made[1]
    found = [time for _, packed in made[0] for time in written(packed)]
    assert found == [NOW_MS if time is None else time for time in own]

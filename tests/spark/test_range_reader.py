"""Ranges as Arrow record batches, read from real brokers: what comes out is what was written, in Spark's own schema."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import ottla
from ottla.client.values import NewRecord
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType, build_marker
from ottla.spark import range_reader
from ottla.spark.errors import DataLost
from ottla.spark.fetching import ReadTimedOut, UnreadableBatch
from ottla.spark.options import ReadOptions, read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.range_cursor import Piece, hop
from ottla.spark.range_reader import decoded, gathered, read_ranges
from ottla.spark.schema import ALL_COLUMNS, DEFAULT_COLUMNS, spark_schema
from ottla.testing.server_thread import ServerThread
from tests.spark.brokers import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_790_000_000_000
TINY = {"kafka.fetch.max.bytes": 1, "kafka.max.partition.fetch.bytes": 1}
COMPACT = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
COMPACTION_SECONDS_MAX = 60


def options_of(bootstrap: str, **more: object) -> ReadOptions:
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in more.items()}
    return read_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "any", **words}, streaming=False)


def read(
    broker: Broker,
    ranges: Sequence[OffsetRange],
    columns: Sequence[str] = ALL_COLUMNS,
    *,
    options: Mapping[str, object] | None = None,
) -> list[dict[str, Any]]:
    batches = read_ranges(ranges, options_of(broker.bootstrap, **(options or {})), columns)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row.get("topic", ""), row.get("partition", 0)))


def whole(broker: Broker, topic: str) -> list[OffsetRange]:
    starts = broker.starts(topic)
    return [OffsetRange(topic, partition, starts[partition], end) for partition, end in broker.ends(topic).items()]


def moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def records(count: int, *, partition: int = 0) -> list[NewRecord]:
    return [
        NewRecord(
            None if number % 11 == 5 else b"value %d" % number * 3,
            None if number % 3 == 0 else b"key %d" % (number % 7),
            [("h", b"%d" % number), ("none", None)][: number % 4],
            timestamp_ms=NOW_MS + number,
            partition=partition,
        )
        for number in range(count)
    ]


def expected(topic: str, written: Sequence[NewRecord]) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": record.partition,
            "offset": offset,
            "timestamp": moment(record.timestamp_ms or 0),
            "timestampType": 0,
            # Spark's connector gives null, not an empty list.
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for offset, record in enumerate(written)
    ]


# --- against brokers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [{}, TINY], ids=["default sizes", "tiny fetches"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_it_was_written(broker: Broker, codec: str, sizes: Mapping[str, object]) -> None:
    topic = broker.topic()
    broker.produce(topic, records(500), compression=codec, batch_records_max=90)

    assert read(broker, whole(broker, topic), options=sizes) == expected(topic, records(500))


def test_several_partitions_of_several_topics_are_read_in_one_task(broker: Broker) -> None:
    topics = sorted([broker.topic(3), broker.topic(2)])
    written = {
        (topic, partition): records(100 + 10 * partition, partition=partition)
        for topic, count in zip(topics, (broker.ends(topic) for topic in topics), strict=True)
        for partition in count
    }
    for (topic, _), each in written.items():
        broker.produce(topic, each)

    found = read(broker, [each for topic in topics for each in whole(broker, topic)])

    assert found == [row for (topic, _), each in sorted(written.items()) for row in expected(topic, each)]


@pytest.mark.parametrize(("start", "end"), [(0, 300), (1, 299), (99, 101), (150, 151), (120, 120)])
def test_a_range_is_cut_out_exactly(broker: Broker, start: int, end: int) -> None:
    topic = broker.topic()
    broker.produce(topic, records(300), compression="zstd", batch_records_max=100)

    assert read(broker, [OffsetRange(topic, 0, start, end)]) == expected(topic, records(300))[start:end]


@pytest.mark.parametrize("columns", [DEFAULT_COLUMNS, ("offset",), ("topic", "partition"), ("value", "headers", "key")])
def test_the_schema_is_the_one_that_spark_makes_of_these_columns(broker: Broker, columns: tuple[str, ...]) -> None:
    topic = broker.topic()
    broker.produce(topic, records(50))

    batches = list(read_ranges(whole(broker, topic), options_of(broker.bootstrap), columns))

    assert batches[0].schema.equals(to_arrow_schema(spark_schema(columns=columns), timezone="UTC"), check_metadata=True)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{name: row[name] for name in columns} for row in expected(topic, records(50))]
    for batch in batches:
        batch.validate(full=True)


def test_aborted_transactions_and_markers_are_left_out(broker: Broker) -> None:
    topic = broker.topic()
    for turn in range(6):
        broker.produce_in_transaction(
            topic, [b"%d-%d" % (turn, n) for n in range(20)], commit=turn % 2 == 0, partition=0
        )
        broker.produce(topic, [b"plain %d" % turn], partition=0)
    committed = {"kafka.isolation.level": "read_committed"}

    for sizes in ({}, TINY):
        found = read(broker, whole(broker, topic), ("value",), options={**committed, **sizes})
        assert [row["value"] for row in found] == broker.values(topic)
    everything = read(broker, whole(broker, topic), ("value",))
    assert [row["value"] for row in everything] == broker.values(topic, committed=False)
    assert len(everything) == 6 * 21 > len(broker.values(topic)) == 3 * 20 + 6


def test_a_range_of_nothing_but_markers_and_aborted_records_ends(broker: Broker) -> None:
    topic = broker.topic()
    broker.produce_in_transaction(topic, [b"x"] * 5, commit=False, partition=0)
    (end,) = broker.ends(topic).values()

    for start in range(end):
        found = read(
            broker, [OffsetRange(topic, 0, start, end)], ("value",), options={"kafka.isolation.level": "read_committed"}
        )
        assert found == []


def test_an_open_transaction_is_visible_only_to_those_who_want_it(broker: Broker) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"before"], partition=0)
    committed = {"kafka.isolation.level": "read_committed", "kafkaConsumer.pollTimeoutMs": 300}
    with broker.client.producer(transactional_id=f"open-{topic}") as producer:
        producer.begin()
        producer.send_batch(topic, [NewRecord(b"open", partition=0)])

        assert [row["value"] for row in read(broker, [OffsetRange(topic, 0, 0, 2)])] == [b"before", b"open"]
        assert [row["value"] for row in read(broker, [OffsetRange(topic, 0, 0, 1)], options=committed)] == [b"before"]
        with pytest.raises(ReadTimedOut, match="where a transaction is open"):
            read(broker, [OffsetRange(topic, 0, 0, 2)], options=committed)
        producer.abort()


def test_deleted_records_fail_or_are_passed_over(broker: Broker) -> None:
    topic = broker.topic()
    broker.produce(topic, records(100), batch_records_max=30)
    broker.delete_before(topic, 0, offset=45)

    with pytest.raises(DataLost, match=f"{topic}-0: offsets 10 to 44 are gone"):
        read(broker, [OffsetRange(topic, 0, 10, 100)])
    found = read(broker, [OffsetRange(topic, 0, 10, 100)], options={"failOnDataLoss": False})
    assert found == expected(topic, records(100))[45:]
    assert read(broker, [OffsetRange(topic, 0, 10, 40)], options={"failOnDataLoss": False}) == []


@pytest.mark.parametrize("anew", [False, True], ids=["gone", "created anew, with less in it"])
def test_a_topic_that_is_gone_fails_or_ends_the_range(broker: Broker, anew: bool) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10, partition=0)
    broker.client.admin().delete_topic(topic)
    if anew:
        broker.client.admin().create_topic(topic, partitions=1)
    # Half of it is how long a broker is given to remember.
    patience = {"kafkaConsumer.pollTimeoutMs": 2_000}

    with pytest.raises(DataLost, match=f"{topic}-0: offsets 4 to 9 are gone"):
        read(broker, [OffsetRange(topic, 0, 4, 10)], options=patience)
    assert read(broker, [OffsetRange(topic, 0, 4, 10)], options={"failOnDataLoss": False, **patience}) == []


def test_batches_far_larger_than_the_fetch_size_come_through(broker: Broker) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.produce(
            topic, [bytes([65 + number]) * 700_000 for number in range(5)], partition=partition, batch_records_max=1
        )

    found = read(broker, whole(broker, topic), ("partition", "value"), options={"kafka.fetch.max.bytes": 50_000})

    assert [(row["partition"], row["value"][:1], len(row["value"])) for row in found] == [
        (partition, bytes([65 + number]), 700_000) for partition in range(2) for number in range(5)
    ]


def test_a_reader_that_is_closed_early_leaves_connections_that_work(broker: Broker) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"%d" % n + bytes(3_000) for n in range(2_000)], partition=0, batch_records_max=20)
    options = options_of(broker.bootstrap, **{"kafka.fetch.max.bytes": 300_000})

    for _ in range(3):
        reading = read_ranges(whole(broker, topic), options, ("offset",))
        assert next(reading).num_rows > 0
        reading.close()  # type: ignore[attr-defined]

    rows = sum(batch.num_rows for batch in read_ranges(whole(broker, topic), options, ("offset",)))
    assert rows == 2_000


# --- a broker of its own ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_broker_killed_and_started_again_in_between_costs_nothing(own_ottla: Broker) -> None:
    topic = own_ottla.topic(2)
    for partition in range(2):
        own_ottla.produce(topic, [b"%d" % n for n in range(3_000)], partition=partition, batch_records_max=50)
    assert own_ottla.server is not None
    found: dict[int, list[bytes]] = {0: [], 1: []}

    # Merged to 2,000 rows, so that the broker dies while requests are under way.
    batches = read_ranges(whole(own_ottla, topic), options_of(own_ottla.bootstrap, **TINY), ("partition", "value"))
    for batch in batches:
        for row in batch.to_pylist():
            found[row["partition"]].append(row["value"])
        own_ottla.server.kill()
        own_ottla.server.start()

    assert found == {partition: [b"%d" % n for n in range(3_000)] for partition in range(2)}


def test_an_address_where_nobody_answers_is_given_up_in_time() -> None:
    options = options_of("127.0.0.1:1", **{"kafkaConsumer.pollTimeoutMs": 300})

    with pytest.raises(ReadTimedOut, match=r"127\.0\.0\.1:1"):
        list(read_ranges([OffsetRange("t", 0, 0, 10)], options, ("value",)))


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[Broker]:
    server = ServerThread(str(tmp_path), {"log.cleaner.backoff.ms": "20"})
    server.start()
    made = Broker(server.bootstrap, kind="ottla")
    yield made
    made.close()
    server.stop()


def test_what_compaction_took_is_no_loss(compacting: Broker) -> None:
    topic = compacting.topic(configs=COMPACT)
    for turn in range(40):
        compacting.produce(topic, [NewRecord(b"%d" % turn, b"key %d" % (n % 3), partition=0) for n in range(30)])
    (end,) = compacting.ends(topic).values()
    wait_for(lambda: len(compacting.records(topic)) < end // 2)

    left = [record.offset for record in compacting.records(topic)]
    for start, stop in ((0, end), (0, end // 2), (left[0] + 1, end - 1)):
        found = read(compacting, [OffsetRange(topic, 0, start, stop)], ("offset",))
        # Compaction may go on meanwhile, so that only what is still there afterwards must have come.
        offsets = [row["offset"] for row in found]
        still = [record.offset for record in compacting.records(topic) if start <= record.offset < stop]
        assert set(still) <= set(offsets) <= set(range(start, stop))


def wait_for(condition: Callable[[], bool]) -> None:
    never = threading.Event()
    for _ in range(COMPACTION_SECONDS_MAX * 20):
        if condition():
            return
        never.wait(0.05)
    pytest.fail("it did not come about in time")


# --- rows from bytes ---------------------------------------------------------------------------------------


def piece_of(
    *batches: bytes | bytearray, start: int = 0, end: int = 2**62, aborted: Sequence[tuple[int, int]] = ()
) -> Piece:
    view = memoryview(b"".join(batches))
    run = hop(view, end_offset=end)
    assert run is not None
    return Piece("t", 3, start, end, view[: run.size], run.cuts, aborted)


def rows_of(*pieces: Piece, columns: tuple[str, ...] = ("offset", "value")) -> list[pa.RecordBatch]:
    return list(gathered(decoded(iter(pieces), columns, check_crcs=True)))


def batch_of(count: int, base_offset: int, value: bytes = b"v", **more: Any) -> bytearray:
    return build_batch([(None, value, NOW_MS, ())] * count, base_offset=base_offset, **more)


def test_no_record_batch_has_more_rows_than_spark_works_on_at_once() -> None:
    found = rows_of(piece_of(batch_of(25_000, 0), batch_of(7, 25_000)))

    assert [batch.num_rows for batch in found] == [10_000, 10_000, 5_007]


def test_large_values_make_record_batches_of_fewer_rows() -> None:
    found = rows_of(piece_of(batch_of(6, 0, bytes(1_500_000))))

    assert [row["offset"] for batch in found for row in batch.to_pylist()] == list(range(6))
    assert max(batch.nbytes for batch in found) <= range_reader.BYTES_MAX


def test_small_pieces_are_put_together_in_order() -> None:
    pieces = [piece_of(batch_of(100, 100 * number)) for number in range(64)]

    found = rows_of(*pieces, columns=("topic", "partition", "offset"))

    assert [batch.num_rows for batch in found] == [2_000, 2_000, 2_000, 400]
    assert [row["offset"] for batch in found for row in batch.to_pylist()] == list(range(6_400))
    assert {(row["topic"], row["partition"]) for batch in found for row in batch.to_pylist()} == {("t", 3)}


def test_a_small_piece_before_a_large_one_stays_before_it() -> None:
    found = rows_of(piece_of(batch_of(5, 0)), piece_of(batch_of(3_000, 5)), piece_of(batch_of(5, 3_005)))

    assert [row["offset"] for batch in found for row in batch.to_pylist()] == list(range(3_010))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_aborted_transactions_are_followed_over_all_portions(codec: Codec) -> None:
    """The same producer aborts, then commits: what it commits must not be hidden because an earlier portion is over."""
    value = bytes(700_000)
    producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True, "codec": codec}
    batches: list[bytes | bytearray] = []
    offset = 0
    for marker in (MarkerType.ABORT, MarkerType.COMMIT, MarkerType.ABORT):
        for _ in range(5):
            batches.append(batch_of(1, offset, value, **producer, base_sequence=offset))
            offset += 1
        batches.append(
            build_marker(
                marker, base_offset=offset, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS, coordinator_epoch=0
            )
        )
        offset += 1

    found = rows_of(piece_of(*batches, aborted=[(7, 0), (7, 12)]), columns=("offset",))

    assert [row["offset"] for batch in found for row in batch.to_pylist()] == list(range(6, 11))


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63), -1])
def test_a_time_beyond_what_spark_can_hold_costs_no_record(timestamp_ms: int) -> None:
    batch = build_batch([(None, b"odd", timestamp_ms, ()), (None, b"good", NOW_MS, ())])

    (found,) = rows_of(piece_of(batch), columns=("value", "timestamp"))

    assert found.column("value").to_pylist() == [b"odd", b"good"]
    times = found.column("timestamp").view(pa.int64()).to_pylist()
    limit_ms = (2**63 - 1) // 1000
    assert times == [max(-limit_ms, min(limit_ms, timestamp_ms)) * 1000, NOW_MS * 1000]


def test_a_damaged_batch_is_named_by_its_place() -> None:
    batches = [batch_of(10, 10 * number) for number in range(4)]
    batches[2][-1] ^= 1

    with pytest.raises(UnreadableBatch, match="t-3: the record batch at offset 20 cannot be read: checksum"):
        rows_of(piece_of(*batches))


def test_checksums_are_looked_at_only_where_that_is_wanted() -> None:
    batch = batch_of(10, 0)
    batch[-2] ^= 1

    (found,) = decoded(iter([piece_of(batch)]), ("offset",), check_crcs=False)

    assert found.column("offset").to_pylist() == list(range(10))


def test_portions_end_between_batches_and_hold_everything() -> None:
    view = memoryview(b"".join(batch_of(1, number, bytes(300_000)) for number in range(20)))

    run = hop(view, end_offset=100)

    assert run is not None
    assert (run.first_offset, run.next_offset, run.size) == (0, 20, len(view))
    assert all(after - before <= 2 << 20 for before, after in pairwise([0, *run.cuts]))


def test_batches_that_grow_without_bound_are_decoded_a_few_at_a_time() -> None:
    """How much a compressed batch grows cannot be seen: a thousand that look small may be a gigabyte together."""
    batches = [batch_of(1, number, bytes(100_000), codec=Codec.ZSTD) for number in range(200)]
    view = memoryview(b"".join(batches))
    assert len(view) < 512 << 10

    run = hop(view, end_offset=200)

    assert run is not None
    assert (run.next_offset, run.size) == (200, len(view))
    ends = [sum(map(len, batches[:count])) for count in (64, 128, 192, 200)]
    assert list(run.cuts) == ends


def test_the_client_and_the_reader_agree(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [NewRecord(b"%d" % n, b"%d" % (n % 5)) for n in range(1_000)])

    found = read(broker, whole(broker, topic), ("partition", "offset", "value"))

    with ottla.connect(broker.bootstrap) as client, client.consumer() as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        seen = {(record.partition, record.offset): record.value for record in consumer.records(idle_ms=500)}
    assert {(row["partition"], row["offset"]): row["value"] for row in found} == seen

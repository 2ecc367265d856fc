"""The options of source and sink: what they come to, what is refused, and what the refusal says."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ottla.client.settings import Address, ClientSettings
from ottla.client.values import TopicPartition
from ottla.spark.errors import InvalidOption
from ottla.spark.offsets import (
    ByTimestamp,
    Earliest,
    Exactly,
    Latest,
    OffsetSpecification,
    RelativeRecords,
    RelativeTime,
)
from ottla.spark.options import (
    Assigned,
    FetchSettings,
    Pattern,
    ReadOptions,
    Subscribed,
    Topics,
    WriteOptions,
    read_options,
    write_options,
)
from ottla.spark.schema import ALL_COLUMNS, DEFAULT_COLUMNS

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
SERVERS = {"kafka.bootstrap.servers": "host:9093"}


def stream(**options: object) -> ReadOptions:
    return read_options(SERVERS | {"subscribe": "a"} | dotted(options), streaming=True)


def batch(**options: object) -> ReadOptions:
    return read_options(SERVERS | {"subscribe": "a"} | dotted(options), streaming=False)


def sink(**options: object) -> WriteOptions:
    return write_options(SERVERS | dotted(options), streaming=True)


def dotted(options: dict[str, Any]) -> dict[str, Any]:
    """Python's keywords cannot have dots."""
    return {name.replace("__", "."): value for name, value in options.items()}


# --- what the defaults are -------------------------------------------------------------------------------


def test_a_stream_that_says_nothing_reads_from_the_end_on() -> None:
    options = stream()

    assert (options.start, options.end) == (Latest(), Latest())
    assert options.connection.bootstrap == (Address("host", 9093),)
    assert options.connection.client == ClientSettings()
    assert options.connection.fetch == FetchSettings()
    assert options.connection.isolation == "read_uncommitted"
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.column_names == DEFAULT_COLUMNS
    assert options.trigger_delay_max_ms == 15 * 60_000
    assert (options.poll_timeout_ms, options.fetch_retries, options.fetch_retry_interval_ms) == (120_000, 3, 10)


def test_what_is_not_limited_says_so() -> None:
    options = stream()

    limits = (
        options.records_per_trigger_max,
        options.records_per_trigger_min,
        options.bytes_per_trigger_max,
        options.min_partitions,
        options.records_per_partition_max,
        options.tasks,
        options.group_id,
        options.columns,
    )
    assert limits == (None,) * 8


def test_a_batch_that_says_nothing_reads_everything() -> None:
    options = batch()

    assert (options.start, options.end) == (Earliest(), Latest())


def test_a_sink_that_says_nothing_takes_topics_from_the_rows() -> None:
    options = sink()

    assert options.topic is None
    assert options.guarantee == "auto"
    assert not options.include_headers
    assert options.producer.is_idempotent
    assert options.transaction_timeout_ms == 60_000
    assert (options.application_id, options.application_version) == (None, None)


def test_names_are_found_in_any_case() -> None:
    options = read_options(
        {"KAFKA.Bootstrap.Servers": "host", "SUBSCRIBE": "a", "failondataloss": "FALSE"}, streaming=True
    )

    assert not options.fail_on_data_loss


def test_python_values_count_as_the_texts_that_spark_makes_of_them() -> None:
    options = stream(includeHeaders=True, maxOffsetsPerTrigger=5, minPartitions=None)

    assert (options.include_headers, options.records_per_trigger_max, options.min_partitions) == (True, 5, None)


@pytest.mark.parametrize("options", [stream(startingOffsets='{"a":{"0":1}}'), sink(topic="t")])
def test_options_travel_between_processes(options: ReadOptions | WriteOptions) -> None:
    assert pickle.loads(pickle.dumps(options)) == options


def test_equal_connections_are_one_key() -> None:
    assert {stream().connection: 1} == {batch().connection: 1} != {stream(kafka__client__id="x").connection: 1}


# --- which topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("subscribe", "a", Subscribed(("a",))),
        ("subscribe", " b , a,,b", Subscribed(("b", "a"))),
        ("subscribePattern", " orders-.* ", Pattern("orders-.*")),
        ("assign", '{"a": [1, 0]}', Assigned((A0, A1))),
    ],
)
def test_topics_are_named_in_three_ways(option: str, text: str, expected: Topics) -> None:
    assert read_options(SERVERS | {option: text}, streaming=True).topics == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Set one of subscribe, subscribePattern and assign"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe: only one of them can be set"),
        ({"subscribe": "a", "subscribePattern": "a"}, "only one"),
        ({"subscribe": " , "}, "subscribe: it names no topic"),
        ({"subscribePattern": " "}, "subscribePattern: the pattern is empty"),
        ({"assign": "a"}, "assign: 'a' is not JSON"),
        ({"assign": "{}"}, "assign: it names no partition"),
    ],
)
def test_topics_must_be_named_in_exactly_one_way(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_options(SERVERS | given, streaming=True)


# --- start and end ---------------------------------------------------------------------------------------

STARTS: list[tuple[dict[str, str], OffsetSpecification]] = [
    ({"startingOffsets": "earliest"}, Earliest()),
    ({"startingOffsets": " EARLIEST "}, Earliest()),
    ({"startingOffsets": '{"a":{"0":5,"1":-2}}'}, Exactly({A0: 5, A1: -2})),
    ({"startingOffsets": "-10m"}, RelativeTime(600_000)),
    ({"startingOffsets": "-1000 records"}, RelativeRecords(1000)),
    ({"startingOffsets": "-1000"}, RelativeRecords(1000)),
    ({"startingTimestamp": "1700"}, ByTimestamp(1700, "error", "startingTimestamp")),
    ({"startingOffsetsByTimestamp": '{"a":{"0":5}}'}, ByTimestamp({A0: 5})),
    (
        {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "Latest"},
        ByTimestamp(1, "latest", "startingTimestamp"),
    ),
    (
        {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "startingOffsets": "earliest"},
        ByTimestamp({A0: 5}),
    ),
    (
        {"startingTimestamp": "1", "startingOffsetsByTimestamp": "nonsense", "startingOffsets": "earliest"},
        ByTimestamp(1, "error", "startingTimestamp"),
    ),
]


@pytest.mark.parametrize(("given", "expected"), STARTS)
def test_a_stream_starts_where_the_strongest_option_says(given: dict[str, str], expected: OffsetSpecification) -> None:
    assert stream(**given).start == expected


@pytest.mark.parametrize(("given", "expected"), STARTS)
def test_a_batch_starts_where_the_strongest_option_says(given: dict[str, str], expected: OffsetSpecification) -> None:
    assert batch(**given).start == expected


def test_a_stream_may_start_at_the_end() -> None:
    assert stream(startingOffsets="latest").start == Latest()
    assert stream(startingOffsets='{"a":{"0":-1}}').start == Exactly({A0: -1})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endingOffsets": "latest"}, Latest()),
        ({"endingOffsets": '{"a":{"0":5,"1":-1}}'}, Exactly({A0: 5, A1: -1}, "endingOffsets")),
        ({"endingTimestamp": "1700"}, ByTimestamp(1700, "error", "endingTimestamp")),
        ({"endingOffsetsByTimestamp": '{"a":{"0":5}}'}, ByTimestamp({A0: 5}, "error", "endingOffsetsByTimestamp")),
        (
            {"endingTimestamp": "1", "endingOffsetsByTimestamp": "x", "endingOffsets": "earliest"},
            ByTimestamp(1, "error", "endingTimestamp"),
        ),
    ],
)
def test_a_batch_ends_where_the_strongest_option_says(given: dict[str, str], expected: OffsetSpecification) -> None:
    assert batch(**given).end == expected


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name}: a stream has no end"):
        stream(**{name: "latest"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: a batch cannot start at latest"),
        ({"startingOffsets": '{"a":{"0":1,"1":-1}}'}, r"startingOffsets: a-1: a batch cannot start at latest \(-1\)"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch cannot end at earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, r"endingOffsets: a-0: a batch cannot end at earliest \(-2\)"),
        ({"endingOffsets": "-5"}, "endingOffsets: '-5' says nothing"),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":5}}'},
            "endingOffsets: a-0 ends at 5, before its start at 9",
        ),
        (
            {"startingOffsets": '{"a":{"0":1}}', "endingOffsets": '{"a":{"1":5}}'},
            "a-0, a-1 is not in both startingOffsets and endingOffsets",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "5"}, "endingTimestamp: 5 is before startingTimestamp"),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":9}}', "endingOffsetsByTimestamp": '{"a":{"0":5}}'},
            "endingOffsetsByTimestamp: a-0 ends at 5",
        ),
    ],
)
def test_a_batch_with_nothing_between_start_and_end_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        batch(**given)


def test_ends_that_are_known_only_later_pass() -> None:
    batch(startingOffsets='{"a":{"0":9}}', endingOffsets='{"a":{"0":-1}}')
    batch(startingOffsets='{"a":{"0":9}}', endingTimestamp="5")
    batch(startingTimestamp="9", endingOffsetsByTimestamp='{"a":{"0":5}}')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", ""),
        ("startingOffsets", "newest"),
        ("startingOffsets", "5"),
        ("startingOffsets", "-1"),
        ("startingOffsets", "-2"),
        ("startingOffsets", '{"a":5}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingTimestamp", "1.5"),
        ("startingOffsetsByTimestamp", '{"a":{"0":-1}}'),
        ("startingOffsetsByTimestamp", "5"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
    ],
)
def test_a_start_that_cannot_be_read_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"^{name}:"):
        stream(**{name: text})


# --- numbers, switches and columns -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "field", "expected"),
    [
        ("maxOffsetsPerTrigger", "1", "records_per_trigger_max", 1),
        ("maxOffsetsPerTrigger", "9223372036854775807", "records_per_trigger_max", 2**63 - 1),
        ("minOffsetsPerTrigger", "7", "records_per_trigger_min", 7),
        ("maxTriggerDelay", "15 minutes", "trigger_delay_max_ms", 900_000),
        ("maxTriggerDelay", "90s", "trigger_delay_max_ms", 90_000),
        ("maxTriggerDelay", "500", "trigger_delay_max_ms", 500),
        ("maxBytesPerTrigger", "1000", "bytes_per_trigger_max", 1000),
        ("maxBytesPerTrigger", "64m", "bytes_per_trigger_max", 64 * 2**20),
        ("maxBytesPerTrigger", "1 GB", "bytes_per_trigger_max", 2**30),
        ("minPartitions", "8", "min_partitions", 8),
        ("maxRecordsPerPartition", "100", "records_per_partition_max", 100),
        ("tasks", "4", "tasks", 4),
        ("kafkaConsumer.pollTimeoutMs", "500", "poll_timeout_ms", 500),
        ("fetchOffset.numRetries", "0", "fetch_retries", 0),
        ("fetchOffset.retryIntervalMs", "0", "fetch_retry_interval_ms", 0),
        ("kafka.group.id", "g", "group_id", "g"),
        ("includeHeaders", "True", "include_headers", True),
        ("failOnDataLoss", " false ", "fail_on_data_loss", False),
        ("groupIdPrefix", "p", "ignored", ()),
    ],
)
def test_each_option_arrives_in_its_field(name: str, text: str, field: str, expected: object) -> None:
    assert getattr(stream(**{name: text}), field) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-5"),
        ("maxOffsetsPerTrigger", "many"),
        ("maxOffsetsPerTrigger", "9223372036854775808"),
        ("maxOffsetsPerTrigger", "1_000"),
        ("maxOffsetsPerTrigger", "٣"),
        ("minOffsetsPerTrigger", "-1"),
        ("maxTriggerDelay", "soon"),
        ("maxTriggerDelay", "-15m"),
        ("maxTriggerDelay", "15 parsecs"),
        ("maxTriggerDelay", "9" * 18 + "d"),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "m"),
        ("maxBytesPerTrigger", "5mm"),
        ("maxBytesPerTrigger", "9" * 5_000),
        ("maxBytesPerTrigger", "9999999999g"),
        ("maxTriggerDelay", "9" * 5_000),
        ("startingOffsets", "-" + "9" * 5_000),
        ("minPartitions", "0"),
        ("minPartitions", "2147483648"),
        ("minPartitions", ""),
        ("maxRecordsPerPartition", "0"),
        ("tasks", "0"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("fetchOffset.numRetries", "-1"),
        ("fetchOffset.retryIntervalMs", "1s"),
        ("failOnDataLoss", "yes"),
        ("failOnDataLoss", "1"),
        ("includeHeaders", ""),
        ("columns", ""),
        ("columns", "value,nothing"),
        ("columns", "value,Value"),
        ("kafka.group.id", ""),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_in_the_documentation(name: str, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"^{name}:"):
        stream(**{name.lower(): text})


def test_the_least_of_a_batch_is_not_above_its_most() -> None:
    stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    with pytest.raises(InvalidOption, match="minOffsetsPerTrigger: 6 is above maxOffsetsPerTrigger, which is 5"):
        stream(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


def test_a_group_has_no_effect_in_a_batch_and_is_named() -> None:
    assert batch(**{"kafka.group.id": "g"}).ignored == ("kafka.group.id",)
    assert stream(**{"kafka.group.id": "g"}).ignored == ()


def test_limits_of_streams_have_no_effect_in_a_batch_and_are_named() -> None:
    options = batch(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2", maxBytesPerTrigger="9")

    assert options.ignored == ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger")
    assert options.records_per_trigger_max is None
    assert options.records_per_trigger_min is None
    assert options.bytes_per_trigger_max is None


def test_headers_come_when_they_are_asked_for() -> None:
    assert stream(includeHeaders="true").column_names == ALL_COLUMNS
    assert stream(columns="value,headers").column_names == ("value", "headers")


def test_columns_keep_their_order_and_may_be_in_any_case() -> None:
    assert stream(columns="OFFSET, value,timestamptype").column_names == ("offset", "value", "timestampType")


@pytest.mark.parametrize(("columns", "include"), [("value", "true"), ("value,headers", "false")])
def test_columns_and_headers_must_not_contradict_each_other(columns: str, include: str) -> None:
    with pytest.raises(InvalidOption, match=r"columns: .*Leave out includeHeaders"):
        stream(columns=columns, includeHeaders=include)


# --- names that are not ours -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("startingOffset", "startingoffset: there is no such option. Is startingOffsets meant"),
        ("maxOffsetPerTrigger", "Is maxOffsetsPerTrigger meant"),
        ("minOffsetPerTrigger", "Is minOffsetsPerTrigger meant"),
        ("failOnDataLos", "Is failOnDataLoss meant"),
        ("includeHeader", "Is includeHeaders meant"),
        ("subscribePatern", "Is subscribePattern meant"),
        ("deliveryGarantee", "Is deliveryGuarantee meant"),
        ("group.id", "Write kafka.group.id"),
        ("isolation.level", "Write kafka.isolation.level"),
        ("security.protocol", "Write kafka.security.protocol"),
    ],
)
def test_a_misspelt_name_is_refused_with_what_was_meant(name: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        stream(**{name: "1"})


@pytest.mark.parametrize(
    "name", ["path", "checkpointLocation", "queryName", "mergeSchema", "header", "batch", "kafka", "rowsPerSecond"]
)
def test_a_name_that_is_somebody_elses_is_left_alone(name: str) -> None:
    assert stream(**{name: "1"}) == stream()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "^kafka.bootstrap.servers: is missing. Set it to the brokers"),
        ({"kafka.bootstrap.servers": " "}, "^kafka.bootstrap.servers: is missing"),
        ({"kafka.bootstrap.server": "a:1"}, "Is kafka.bootstrap.servers meant"),
        ({"bootstrap.servers": "a:1"}, "Write kafka.bootstrap.servers"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_the_brokers_must_be_named(given: dict[str, str], message: str, streaming: bool) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_options(given | {"subscribe": "a"}, streaming=streaming)
    with pytest.raises(InvalidOption, match=message):
        write_options(given, streaming=streaming)


# --- the sink --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "field", "expected"),
    [
        ("topic", " t ", "topic", "t"),
        ("includeHeaders", "true", "include_headers", True),
        ("deliveryGuarantee", "Exactly-Once", "guarantee", "exactly-once"),
        ("deliveryGuarantee", "at-least-once", "guarantee", "at-least-once"),
        ("kafka.transaction.timeout.ms", "5000", "transaction_timeout_ms", 5_000),
        ("kafka.acks", "1", "guarantee", "at-least-once"),
        ("kafka.enable.idempotence", "false", "guarantee", "at-least-once"),
        ("kafka.some.thing", "x", "ignored", ("kafka.some.thing",)),
    ],
)
def test_each_option_of_the_sink_arrives_in_its_field(name: str, text: str, field: str, expected: object) -> None:
    assert getattr(sink(**{name: text}), field) == expected


@pytest.mark.parametrize("name", ["kafka.acks", "kafka.enable.idempotence"])
def test_exactly_once_is_not_promised_without_what_it_needs(name: str) -> None:
    with pytest.raises(InvalidOption, match="deliveryGuarantee: exactly-once needs"):
        sink(**{name: "0" if name == "kafka.acks" else "false", "deliveryGuarantee": "exactly-once"})


@pytest.mark.parametrize(
    ("name", "text"), [("deliveryGuarantee", "at-most-once"), ("topic", ""), ("includeHeaders", "maybe")]
)
def test_a_value_of_the_sink_that_cannot_be_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"^{name}:"):
        sink(**{name: text})


def test_a_batch_can_be_known_by_an_application_and_a_version() -> None:
    options = write_options(SERVERS | {"txnAppId": "app", "txnVersion": "0"}, streaming=False)

    assert (options.application_id, options.application_version) == ("app", 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"txnAppId": "app"}, "txnVersion: is missing"), ({"txnVersion": "7"}, "txnAppId: is missing")],
)
def test_an_application_without_a_version_or_the_reverse_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        write_options(SERVERS | given, streaming=False)


def test_a_stream_is_known_by_its_checkpoint_alone() -> None:
    with pytest.raises(InvalidOption, match="txnAppId: is for batches"):
        sink(txnAppId="app", txnVersion="7")


def test_options_of_the_source_are_no_mistake_in_a_sink() -> None:
    assert sink(startingOffsets="earliest", subscribe="a") == sink()

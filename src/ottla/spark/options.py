"""What users set on the source and the sink, by the names that Spark's own Kafka connector has.

Pure: reads a map of texts, refuses what cannot be, and gives plain values that can be pickled. Knows no broker, so
what depends on the partitions that there are is checked where they are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from ottla.client.settings import ProducerSettings
from ottla.client.values import TopicPartition
from ottla.spark import kafka_options
from ottla.spark.durations import duration_ms
from ottla.spark.errors import InvalidOption
from ottla.spark.kafka_options import Connection, FetchSettings
from ottla.spark.offset_options import end_of_batch, start_of_batch, start_of_stream
from ottla.spark.offsets import Latest, OffsetSpecification, partitions_from_json
from ottla.spark.option_names import Given, refuse_misspelt
from ottla.spark.schema import ALL_COLUMNS, DEFAULT_COLUMNS, HEADERS, columns_named
from ottla.spark.values import INT32_MAX, INT64_MAX

__all__ = [
    "Assigned",
    "Connection",
    "FetchSettings",
    "Guarantee",
    "Pattern",
    "ReadOptions",
    "Subscribed",
    "Topics",
    "WriteOptions",
    "read_options",
    "write_options",
]

Guarantee = Literal["auto", "exactly-once", "at-least-once"]

TRIGGER_DELAY_DEFAULT = "15m"
POLL_TIMEOUT_MS = 120_000
FETCH_RETRIES = 3
FETCH_RETRY_INTERVAL_MS = 10


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the topics in whose names the expression is found."""

    pattern: str


Topics = Assigned | Subscribed | Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read, from where to where, and in what portions."""

    connection: Connection
    topics: Topics
    start: OffsetSpecification
    end: OffsetSpecification
    """Of batches only; a stream has none and this says `Latest`."""
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...] | None
    """None: not said; `column_names` has what that means."""
    records_per_trigger_max: int | None
    records_per_trigger_min: int | None
    trigger_delay_max_ms: int
    bytes_per_trigger_max: int | None
    min_partitions: int | None
    records_per_partition_max: int | None
    tasks: int | None
    """How many tasks a batch is spread over; None: as many as there are cores, as far as that is known."""
    group_id: str | None
    poll_timeout_ms: int
    fetch_retries: int
    fetch_retry_interval_ms: int
    hold_file: str | None = None
    """While there is a file at this path on the driver, a stream has no news: its query comes to rest after a batch."""
    ignored: tuple[str, ...] = ()
    """What was set and has no effect, to be named in one warning."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that these options ask for."""
        return self.columns or (ALL_COLUMNS if self.include_headers else DEFAULT_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where rows go and what is promised about them."""

    connection: Connection
    topic: str | None
    """None: each row names its topic."""
    include_headers: bool
    guarantee: Guarantee
    producer: ProducerSettings
    transaction_timeout_ms: int
    application_id: str | None
    """With `application_version` what a batch is known by, in place of the query's id and the batch's number."""
    application_version: int | None
    ignored: tuple[str, ...] = ()


OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
"""Without effect in a batch, where everything is read at once."""


def read_options(given: Mapping[str, object], *, streaming: bool) -> ReadOptions:
    """The source's options; `given` may spell their names in any case."""
    options = Given(given)
    refuse_misspelt(options)
    kafka_options.refuse(options.kafka, kafka_options.REFUSED_READING)
    topics = _topics(options)
    start = start_of_stream(options) if streaming else start_of_batch(options)
    end = Latest() if streaming else end_of_batch(options, start)
    include_headers = options.switch("includeHeaders", default=False)
    minimum = options.number("minOffsetsPerTrigger", lowest=0)
    maximum = options.number("maxOffsetsPerTrigger", lowest=1)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidOption("minOffsetsPerTrigger", f"{minimum} is above maxOffsetsPerTrigger, which is {maximum}")
    delay = options.text("maxTriggerDelay") or TRIGGER_DELAY_DEFAULT
    return ReadOptions(
        connection=kafka_options.connection(options.kafka),
        topics=topics,
        start=start,
        end=end,
        fail_on_data_loss=options.switch("failOnDataLoss", default=True),
        include_headers=include_headers,
        columns=_columns(options, include_headers=include_headers),
        records_per_trigger_max=maximum if streaming else None,
        records_per_trigger_min=minimum if streaming else None,
        trigger_delay_max_ms=duration_ms(delay, option="maxTriggerDelay"),
        bytes_per_trigger_max=_byte_limit(options) if streaming else None,
        min_partitions=options.number("minPartitions", lowest=1, highest=INT32_MAX),
        records_per_partition_max=options.number("maxRecordsPerPartition", lowest=1),
        tasks=options.number("tasks", lowest=1, highest=INT32_MAX),
        group_id=kafka_options.group_id(options.kafka),
        poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", lowest=1) or POLL_TIMEOUT_MS,
        fetch_retries=_or(options.number("fetchOffset.numRetries", lowest=0, highest=INT32_MAX), FETCH_RETRIES),
        fetch_retry_interval_ms=_or(
            options.number("fetchOffset.retryIntervalMs", lowest=0, highest=INT32_MAX), FETCH_RETRY_INTERVAL_MS
        ),
        hold_file=(options.text("holdFile") or None) if streaming else None,
        ignored=kafka_options.without_effect(options.kafka)
        + tuple(name for name in OF_STREAMS if name in options and not streaming)
        + (("kafka.group.id",) if "group.id" in options.kafka and not streaming else ()),
    )


def write_options(given: Mapping[str, object], *, streaming: bool) -> WriteOptions:
    """The sink's options; `given` may spell their names in any case."""
    options = Given(given)
    refuse_misspelt(options)
    kafka_options.refuse(options.kafka, kafka_options.REFUSED_WRITING)
    producer = kafka_options.producer(options.kafka)
    words = ("auto", "exactly-once", "at-least-once")
    guarantee = cast(Guarantee, options.word("deliveryGuarantee", words, default="auto"))
    if not producer.is_idempotent:
        if guarantee == "exactly-once":
            raise InvalidOption(
                "deliveryGuarantee",
                "exactly-once needs kafka.acks=all and kafka.enable.idempotence=true",
                fix="Leave both of them out, or ask for at-least-once",
            )
        guarantee = "at-least-once"
    application_id, version = options.text("txnAppId"), options.number("txnVersion", lowest=0)
    if streaming and (application_id is not None or version is not None):
        raise InvalidOption(
            "txnAppId" if application_id is not None else "txnVersion",
            "is for batches: a streaming query is known by its checkpoint",
            fix="Leave it out, or write each batch in foreachBatch",
        )
    if (application_id is None) != (version is None):
        missing = "txnAppId" if application_id is None else "txnVersion"
        raise InvalidOption(missing, "is missing", fix="Set txnAppId and txnVersion together, or none of the two")
    if options.text("topic") == "":
        raise InvalidOption("topic", "it is empty", fix="Name a topic, or leave it out and give a column named topic")
    return WriteOptions(
        connection=kafka_options.connection(options.kafka),
        topic=options.text("topic"),
        include_headers=options.switch("includeHeaders", default=False),
        guarantee=guarantee,
        producer=producer,
        transaction_timeout_ms=producer.transaction_timeout_ms,
        application_id=application_id,
        application_version=version,
        ignored=kafka_options.without_effect(options.kafka),
    )


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _topics(options: Given) -> Topics:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if not ways:
        raise InvalidOption(
            "subscribe", "nothing says which topics to read", fix="Set one of subscribe, subscribePattern and assign"
        )
    if len(ways) > 1:
        raise InvalidOption(" and ".join(ways), "only one of them can be set", fix=f"Keep {ways[0]} or {ways[1]}")
    way, value = ways[0], (options.text(ways[0]) or "")
    if way == "assign":
        return Assigned(partitions_from_json(value, option=way))
    if way == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not names:
            raise InvalidOption(way, "it names no topic", fix="It looks like topicA,topicB")
        return Subscribed(names)
    if not value:
        raise InvalidOption(way, "the pattern is empty", fix="It looks like orders-.*")
    return Pattern(value)


def _columns(options: Given, *, include_headers: bool) -> tuple[str, ...] | None:
    text = options.text("columns")
    if text is None:
        return None
    names = columns_named(text.split(","), option="columns")
    if "includeHeaders" in options and include_headers != (HEADERS in names):
        problem = "leaves out headers, and includeHeaders is true" if include_headers else "has headers"
        raise InvalidOption("columns", f"it {problem}", fix="Leave out includeHeaders: columns says it already")
    return names


_SIZES = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}


def _byte_limit(options: Given) -> int | None:
    """Bytes, also as Spark's own file source has them: `10g`, `512m`."""
    text = options.text("maxBytesPerTrigger")
    if text is None:
        return None
    form = re.fullmatch(r"([0-9]{1,19})\s*([a-z]*)", text.lower())
    size = int(form[1]) * _SIZES.get(form[2], 0) if form else 0
    if not 0 < size <= INT64_MAX:
        raise InvalidOption("maxBytesPerTrigger", f"{text!r} is not a number of bytes", fix="It looks like 64m or 1g")
    return size

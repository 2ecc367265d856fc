"""A topic copied into a new one with another number of partitions, and the map from old offsets to new ones.

In a step each new partition is written by one task, sorted by old partition and old offset. So records of one key,
which come from one old partition, keep their order; and the n-th new record of a step is known to be the n-th old one,
so that the map needs nothing in the records themselves. Knows nothing of how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ottla.client.settings import Isolation
from ottla.pipelines.transfer import frames, topics
from ottla.pipelines.transfer.documents import Directory
from ottla.pipelines.transfer.errors import TotalsDiffer, TransferRefused
from ottla.pipelines.transfer.journal import JOURNAL, By, Journal, decoded, encoded
from ottla.pipelines.transfer.routing import new_partition
from ottla.pipelines.transfer.steps import Span, between, clipped, cut, total
from ottla.pipelines.transfer.topics import Topic, Wait
from ottla.spark.sink_columns import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.client.blocking.admin import Admin

MAP_SCHEMA = "old_partition INT, old_offset BIGINT, new_partition INT, new_offset BIGINT, step INT"


def opened(
    admin: Admin,
    old: Topic,
    new_name: str,
    directory: Directory,
    *,
    partition_count: int,
    by: By,
    isolation: Isolation,
) -> Journal:
    """The copy that was begun in a directory, or a new one, for which the new topic is made."""
    if old.name == new_name:
        raise TransferRefused(f"topic {new_name!r} cannot be copied into itself. Choose another name for the new one")
    document = directory.read(JOURNAL)
    new = topics.found(admin, new_name)
    if document is not None:
        journal = decoded(document, place=f"{directory}/{JOURNAL}")
        _refuse_other(journal, old, new, new_name, directory, partition_count=partition_count, by=by)
        return journal
    if not directory.is_empty():
        raise TransferRefused(
            f"{directory}: there is something in it. Choose a directory that is empty or not there yet"
        )
    if new is not None and (any(_ends(admin, new).values()) or new.partition_count != partition_count):
        raise TransferRefused(
            f"topic {new_name!r} is there already, with {new.partition_count} partitions, and no journal of a copy "
            f"into it is in {directory}. Choose another name, delete the topic, or name the directory of its copy with "
            "--map"
        )
    if new is None:
        admin.create_topic(new_name, partitions=partition_count, configs=topics.own_configs(admin, old.name))
        new = topics.existing(admin, new_name)
    journal = Journal(
        topic=old.name,
        topic_id=old.topic_id,
        new_topic=new.name,
        new_topic_id=new.topic_id,
        partition_count=partition_count,
        by=by,
        isolation=isolation,
    )
    directory.write(JOURNAL, encoded(journal))
    return journal


def _ends(admin: Admin, topic: Topic) -> dict[int, int]:
    return topics.ends(admin, topic.name, topic.partitions, isolation="read_uncommitted")


def _refuse_other(
    journal: Journal,
    old: Topic,
    new: Topic | None,
    new_name: str,
    directory: Directory,
    *,
    partition_count: int,
    by: By,
) -> None:
    asked = (old.name, new_name, partition_count, by)
    if asked != (journal.topic, journal.new_topic, journal.partition_count, journal.by):
        raise TransferRefused(
            f"{directory}: this is the copy of topic {journal.topic!r} into {journal.new_topic!r} with "
            f"{journal.partition_count} partitions by {journal.by}. Ask for the same, or choose another directory"
        )
    if old.topic_id != journal.topic_id:
        raise TransferRefused(f"topic {old.name!r} was made anew since the copy in {directory} began. Begin anew")
    if new is None or new.topic_id != journal.new_topic_id:
        raise TransferRefused(
            f"topic {journal.new_topic!r} is not the one that the copy in {directory} was writing to: it was deleted. "
            "Remove the directory and begin anew"
        )


class Copy:
    """A copy at work."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        admin: Admin,
        journal: Journal,
        directory: Directory,
        *,
        wait: Wait,
    ) -> None:
        self.journal = journal
        self._spark = spark
        self._bootstrap = bootstrap
        self._admin = admin
        self._directory = directory
        self._wait = wait
        self._isolation = cast(Isolation, journal.isolation)
        self._new = Topic(journal.new_topic, journal.new_topic_id, journal.partition_count)
        self._application = f"repartition-{journal.topic_id}-{journal.new_topic_id}"

    def behind(self) -> tuple[Span, ...]:
        """What of the old topic is not copied yet."""
        old = topics.existing(self._admin, self.journal.topic)
        if old.topic_id != self.journal.topic_id:
            raise TransferRefused(
                f"topic {old.name!r} was made anew while it was copied. Begin anew, under another name"
            )
        ends = topics.ends(self._admin, old.name, old.partitions, isolation=self._isolation)
        # What retention has deleted need not be copied any more.
        starts = topics.starts(self._admin, old.name, old.partitions)
        return clipped(between({**starts, **self.journal.copied}, ends), starts)

    def finish_step(self) -> int:
        """Take the step that was under way when the last run ended, if there was one; returns its offsets."""
        number = self.journal.under_way
        if number is None:
            return 0
        if not self._is_committed(number):
            # It may have ended because retention had deleted some of it; then it would never come to its end.
            spans = self.journal.steps[number].spans
            starts = topics.starts(self._admin, self.journal.topic, [span.partition for span in spans])
            self._note(self.journal.narrowed(clipped(spans, starts)))
        self._take(number)
        return total(self.journal.steps[number].spans)

    def round(self, spans: tuple[Span, ...], *, records_per_step: int, advance: Callable[[int], None]) -> None:
        """Copy these offsets."""
        for step in cut(spans, records_max=records_per_step):
            new_start = topics.settled_ends(self._admin, self._new, wait=self._wait)
            self._note(self.journal.begun(step, new_start))
            self._take(len(self.journal.steps) - 1)
            advance(total(step))

    def _note(self, journal: Journal) -> None:
        self._directory.write(JOURNAL, encoded(journal))
        self.journal = journal

    def _is_committed(self, number: int) -> bool:
        return frames.steps_committed(self._admin, self._new.name, self._application) > number

    def _take(self, number: int) -> None:
        if not self.journal.steps[number].spans:
            self._note(self.journal.finished(0))
            return
        if not self._is_committed(number):
            self._copy(number)
        self._note(self.journal.finished(self._map(number)))

    def _copy(self, number: int) -> None:
        journal = self.journal
        records = frames.of_topic(
            self._spark, self._bootstrap, journal.topic, journal.steps[number].spans, isolation=self._isolation
        )
        routed = records.withColumn("new", new_partition(partition_count=journal.partition_count, by=journal.by))
        shares = frames.by_task(routed, "new", values=journal.partition_count)
        options = frames.sink(self._bootstrap, self._new.name, application=self._application, step=number)
        (
            shares.sortWithinPartitions("new", "partition", "offset")
            .selectExpr("key", "value", "headers", "new AS partition", f"timestamp AS {TIMESTAMP}")
            .write.format("ottla")
            .options(**options)
            .mode("append")
            .save()
        )

    def _map(self, number: int) -> int:
        """Write the map of a step that is committed; returns its records."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as fn

        watching = Observation()
        paired = self._paired(number).observe(
            watching,
            fn.count(fn.lit(1)).alias("rows"),
            fn.count("old_offset").alias("old"),
            fn.count("new_offset").alias("new"),
        )
        paired.write.mode("overwrite").parquet(f"{self._directory.url}/step={number}")
        seen = watching.get
        if not seen["rows"] == seen["old"] == seen["new"]:
            raise TotalsDiffer(
                f"step {number}: {seen['old']} records were read from {self.journal.topic!r} and {seen['new']} are in "
                f"{self._new.name!r}: somebody else writes to the new topic, or the old one lost records meanwhile. "
                f"Delete {self._new.name!r} and {self._directory}, stop whoever writes to it, and begin anew"
            )
        return int(seen["rows"])

    def _paired(self, number: int) -> DataFrame:
        """Old and new places of a step's records, by their turn in each new partition."""
        from pyspark.sql import Window
        from pyspark.sql import functions as fn

        journal, step = self.journal, self.journal.steps[number]
        ends = topics.settled_ends(self._admin, self._new, wait=self._wait)
        spans = between({int(partition): offset for partition, offset in step.new_start.items()}, ends)
        columns = ("key", "partition", "offset")
        records = frames.of_topic(
            self._spark, self._bootstrap, journal.topic, step.spans, isolation=self._isolation, columns=columns
        )
        routed = records.withColumn(
            "new_partition", new_partition(partition_count=journal.partition_count, by=journal.by)
        )
        before = routed.select(
            "new_partition",
            fn.col("partition").alias("old_partition"),
            fn.col("offset").alias("old_offset"),
            fn.row_number().over(Window.partitionBy("new_partition").orderBy("partition", "offset")).alias("turn"),
        )
        if not spans:
            return before.withColumn("new_offset", fn.lit(None).cast("bigint")).select(*_MAP_COLUMNS)
        written = frames.of_topic(
            self._spark,
            self._bootstrap,
            self._new.name,
            spans,
            isolation="read_committed",
            columns=("partition", "offset"),
        )
        after = written.select(
            fn.col("partition").alias("new_partition"),
            fn.col("offset").alias("new_offset"),
            fn.row_number().over(Window.partitionBy("partition").orderBy("offset")).alias("turn"),
        )
        return before.join(after, ["new_partition", "turn"], "full").select(*_MAP_COLUMNS)


_MAP_COLUMNS = ("old_partition", "old_offset", "new_partition", "new_offset")


def offset_map(spark: SparkSession, directory: Directory) -> DataFrame:
    """Where each record was, and where it is."""
    return spark.read.schema(MAP_SCHEMA).parquet(directory.url)

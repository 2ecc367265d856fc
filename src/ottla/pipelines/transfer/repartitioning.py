"""A topic copied into a new one with another number of partitions, and the map from old offsets to new ones.

The records of a step are first put aside in Parquet files: compaction and retention may take some of them from the old
topic at any moment, and the step and its map must be of the same ones. Each new partition is then written by one task,
in one transaction, sorted by old partition and old offset. So records of one key, which come from one old partition,
keep their order; and the last of them is the last in its new partition, with the others right before it, so that the
map needs nothing in the records themselves. Knows nothing of how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from ottla.client.settings import Isolation
from ottla.pipelines.transfer import frames, topics
from ottla.pipelines.transfer.documents import Directory, literal
from ottla.pipelines.transfer.errors import TotalsDiffer, TransferRefused
from ottla.pipelines.transfer.journal import JOURNAL, By, Journal, decoded, encoded
from ottla.pipelines.transfer.routing import new_partition
from ottla.pipelines.transfer.steps import Span, between, clipped, cut, total
from ottla.pipelines.transfer.topics import Topic, Wait
from ottla.spark.sink_columns import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.client.blocking.admin import Admin

ASIDE = "_aside"
"""The directory below that of the map for the records of the step that is under way. Readers pass over its name."""
ASIDE_SCHEMA = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT, `offset` BIGINT, "
    "timestamp TIMESTAMP, new INT"
)
TAIL_OFFSETS = 100
"""So far back the last record of a new partition is looked for; what is behind it are markers."""
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
            self._directory.remove_all(ASIDE)
            return 0
        assert self.journal.last is not None, "it is under way"
        spans = self.journal.last.spans
        if not self._is_committed(number):
            # Nobody has synced what was put aside, and what counts is what there is now.
            starts = topics.starts(self._admin, self.journal.topic, [span.partition for span in spans])
            left = clipped(spans, starts)
            if not left:
                self._note(self.journal.finished(0))
                return total(spans)
            self._put_aside(left)
        self._take(number)
        return total(spans)

    def round(
        self,
        spans: tuple[Span, ...],
        *,
        records_per_step: int,
        advance: Callable[[int], None],
        is_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        """Copy these offsets; or end before a step, if that is asked for."""
        for step in cut(spans, records_max=records_per_step):
            if is_to_end():
                return
            self._put_aside(step)
            new_start = topics.settled_ends(self._admin, self._new, wait=self._wait)
            self._note(self.journal.begun(step, new_start))
            self._take(self.journal.steps_before)
            advance(total(step))

    def _note(self, journal: Journal) -> None:
        self._directory.write(JOURNAL, encoded(journal))
        self.journal = journal

    def _is_committed(self, number: int) -> bool:
        return frames.steps_committed(self._admin, self._new.name, self._application) > number

    def _take(self, number: int) -> None:
        if not self._is_committed(number):
            self._copy(number)
        self._note(self.journal.finished(self._map(number)))
        self._directory.remove_all(ASIDE)

    # --- the records of one step ---------------------------------------------------------------------

    def _put_aside(self, spans: tuple[Span, ...]) -> None:
        """Read a step's records, once and for all, and choose where they go."""
        journal = self.journal
        records = frames.of_topic(self._spark, self._bootstrap, journal.topic, spans, isolation=self._isolation)
        routed = records.withColumn("new", new_partition(partition_count=journal.partition_count, by=journal.by))
        routed.drop("topic", "timestampType").write.mode("overwrite").parquet(self._aside_url)

    @property
    def _aside_url(self) -> str:
        return f"{self._directory.url}/{ASIDE}/records"

    def _aside(self) -> DataFrame:
        return self._spark.read.schema(ASIDE_SCHEMA).parquet(literal(self._aside_url))

    def _copy(self, number: int) -> None:
        shares = frames.by_task(self._aside(), "new", values=self.journal.partition_count)
        options = frames.sink(self._bootstrap, self._new.name, application=self._application, step=number)
        (
            shares.sortWithinPartitions("new", "partition", "offset")
            .selectExpr("key", "value", "headers", "new AS partition", f"timestamp AS {TIMESTAMP}")
            .write.format("ottla")
            .options(**options)
            .mode("append")
            .save()
        )

    # --- the map ---------------------------------------------------------------------------------------

    def _map(self, number: int) -> int:
        """Write the map of a step that is committed; returns its records."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as fn

        watching = Observation()
        paired = self._paired().observe(
            watching,
            fn.count(fn.lit(1)).alias("rows"),
            fn.count("old_offset").alias("old"),
            fn.count("is_there").alias("there"),
        )
        paired.select(*_MAP_COLUMNS).write.mode("overwrite").parquet(f"{self._directory.url}/step={number}")
        seen = watching.get
        if seen["rows"] != seen["old"] or (seen["there"] < seen["old"] and not self._loses_records()):
            raise TotalsDiffer(
                f"step {number}: {seen['old']} records of {self.journal.topic!r} were copied, and {seen['there']} are "
                f"in {self._new.name!r} or not where they belong: somebody else writes to the new topic. "
                f"Delete {self._new.name!r} and {self._directory}, stop whoever writes to it, and begin anew"
            )
        return int(seen["old"])

    def _loses_records(self) -> bool:
        """Whether the new topic's own compaction may have taken records since they were copied."""
        policy = self._admin.describe_configs(topic=self._new.name).get("cleanup.policy")
        return policy is not None and "compact" in (policy.value or "")

    def _paired(self) -> DataFrame:
        """Old and new places of the step's records, and what there is in the new topic since it began."""
        from pyspark.sql import Window
        from pyspark.sql import functions as fn

        assert self.journal.last is not None, "a step was taken"
        ends = topics.settled_ends(self._admin, self._new, wait=self._wait)
        kept = topics.starts(self._admin, self._new.name, self._new.partitions)
        of_one = Window.partitionBy("new")
        place = fn.expr("last - size + turn")
        copied = (
            self._aside()
            .select(
                "new",
                fn.col("partition").alias("old_partition"),
                fn.col("offset").alias("old_offset"),
                fn.row_number().over(of_one.orderBy("partition", "offset")).alias("turn"),
                fn.count(fn.lit(1)).over(of_one).alias("size"),
            )
            .join(fn.broadcast(self._edges(self._lasts(ends, kept), kept)), "new")
            .select(
                fn.col("new").alias("new_partition"), place.alias("new_offset"), "old_partition", "old_offset", "kept"
            )
        )
        spans = clipped(between({int(key): offset for key, offset in self.journal.last.new_start.items()}, ends), kept)
        if not spans:
            # What retention has taken already is not looked for.
            return copied.withColumn("is_there", fn.expr("IF(new_offset < kept, TRUE, NULL)"))
        there = self._there(spans).withColumn("is_read", fn.lit(True))
        found = copied.join(there, ["new_partition", "new_offset"], "full")
        return found.withColumn("is_there", fn.expr("IF(is_read OR new_offset < kept, TRUE, NULL)"))

    def _there(self, spans: tuple[Span, ...]) -> DataFrame:
        """The places of the records that are in these offsets of the new topic."""
        records = frames.of_topic(
            self._spark,
            self._bootstrap,
            self._new.name,
            spans,
            isolation="read_committed",
            columns=("partition", "offset"),
        )
        return records.selectExpr("partition AS new_partition", "offset AS new_offset")

    def _lasts(self, ends: Mapping[int, int], kept: Mapping[int, int]) -> dict[int, int]:
        """The last record of each new partition.

        Behind it is the marker of its transaction, or several: a broker that was killed writes it again. Compaction
        leaves the last record where it is; where retention has not, one marker is what there is as a rule.
        """
        tails = between({each: max(kept.get(each, 0), end - TAIL_OFFSETS) for each, end in ends.items()}, ends)
        lasts = {each: end - 2 for each, end in ends.items()}
        if tails:
            found = self._there(tails).groupBy("new_partition").max("new_offset").collect()
            lasts |= {row[0]: row[1] for row in found}
        return lasts

    def _edges(self, lasts: Mapping[int, int], kept: Mapping[int, int]) -> DataFrame:
        """Where the last record of each new partition is, and where what it has kept begins."""
        rows = ", ".join(f"({each}, BIGINT({last}), BIGINT({kept.get(each, 0)}))" for each, last in lasts.items())
        return self._spark.sql(f"SELECT * FROM VALUES {rows} AS edges(new, last, kept)")


_MAP_COLUMNS = ("old_partition", "old_offset", "new_partition", "new_offset")


def offset_map(spark: SparkSession, directory: Directory) -> DataFrame:
    """Where each record was, and where it is."""
    return spark.read.schema(MAP_SCHEMA).parquet(literal(directory.url))

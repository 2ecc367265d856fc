"""Every setting that a topic may have, with Kafka's names and defaults.

A topic that does not set one takes the broker's (`default_from`). What is not in the table is refused, and so
are values that Kafka knows but Ottla does not act on: a setting is honoured or refused, never ignored.
"""

from __future__ import annotations

from ottla.config import INT_MAX, LONG_MAX, Kind, Setting, Table, Value

ACKS_ALL_DISK = "disk"
ACKS_ALL_OS = "os"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
PRODUCER_COMPRESSION = "producer"
COMPACT = "compact"
DELETE = "delete"
WEEK_MS = 7 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
SEGMENT_BYTES_MIN = 14
"""Kafka 4 wants a megabyte; older ones, and tests that roll often, do not."""
INDEX_BYTES_MIN = 12
"""Room for one entry."""


def _only_false(value: Value) -> str | None:
    return "only false is possible: segments are never preallocated, it gains nothing here" if value else None


TOPIC_CONFIGS = Table(
    "topic config",
    (
        Setting(
            name="cleanup.policy",
            kind=Kind.LIST,
            default=(DELETE,),
            choices=(COMPACT, DELETE),
            default_from="log.cleanup.policy",
            help="What becomes of old records: delete drops whole segments by age or size, compact keeps the last "
            "record of each key; both together do both, and an empty list keeps everything.",
        ),
        Setting(
            name="compression.type",
            kind=Kind.STRING,
            default=PRODUCER_COMPRESSION,
            choices=(PRODUCER_COMPRESSION,),
            default_from="compression.type",
            help="How batches are stored: always as the producer compressed them, since the broker never unpacks one.",
        ),
        Setting(
            name="delete.retention.ms",
            kind=Kind.LONG,
            default=DAY_MS,
            at_least=0,
            default_from="log.cleaner.delete.retention.ms",
            help="How long compaction keeps a tombstone, so that slow readers still learn that the key is gone.",
        ),
        Setting(
            name="file.delete.delay.ms",
            kind=Kind.LONG,
            default=60_000,
            at_least=0,
            default_from="log.segment.delete.delay.ms",
            help="How long the files of a dropped segment stay on disk before they are removed.",
        ),
        Setting(
            name="flush.messages",
            kind=Kind.LONG,
            default=LONG_MAX,
            at_least=1,
            default_from="log.flush.interval.messages",
            help="After how many records a sync is forced even without acks=all; 1 makes acks=1 wait for the disk.",
        ),
        Setting(
            name="flush.ms",
            kind=Kind.LONG,
            default=LONG_MAX,
            at_least=0,
            default_from="log.flush.interval.ms",
            help="After how many milliseconds unsynced records are synced even without acks=all.",
        ),
        Setting(
            name="index.interval.bytes",
            kind=Kind.INT,
            default=4096,
            at_least=0,
            default_from="log.index.interval.bytes",
            help="How many bytes of records lie between two entries of the offset index.",
        ),
        Setting(
            name="max.compaction.lag.ms",
            kind=Kind.LONG,
            default=LONG_MAX,
            at_least=1,
            default_from="log.cleaner.max.compaction.lag.ms",
            help="How long a record may stay uncompacted, whatever the share of such records is.",
        ),
        Setting(
            name="max.message.bytes",
            kind=Kind.INT,
            default=1_048_588,
            at_least=0,
            default_from="message.max.bytes",
            help="The largest record batch that is accepted, after compression.",
        ),
        Setting(
            name="message.timestamp.after.max.ms",
            kind=Kind.LONG,
            default=HOUR_MS,
            at_least=0,
            default_from="log.message.timestamp.after.max.ms",
            help="How far a record's timestamp may lie ahead of the broker's clock; ignored with LogAppendTime.",
        ),
        Setting(
            name="message.timestamp.before.max.ms",
            kind=Kind.LONG,
            default=LONG_MAX,
            at_least=0,
            default_from="log.message.timestamp.before.max.ms",
            help="How far a record's timestamp may lie behind the broker's clock; ignored with LogAppendTime.",
        ),
        Setting(
            name="message.timestamp.type",
            kind=Kind.STRING,
            default=CREATE_TIME,
            choices=(CREATE_TIME, LOG_APPEND_TIME),
            default_from="log.message.timestamp.type",
            help="Whose clock stamps a record: the producer's (CreateTime) or the broker's (LogAppendTime).",
        ),
        Setting(
            name="min.cleanable.dirty.ratio",
            kind=Kind.DOUBLE,
            default=0.5,
            at_least=0,
            at_most=1,
            default_from="log.cleaner.min.cleanable.ratio",
            help="The share of the log that must be uncompacted before compaction starts.",
        ),
        Setting(
            name="min.compaction.lag.ms",
            kind=Kind.LONG,
            default=0,
            at_least=0,
            default_from="log.cleaner.min.compaction.lag.ms",
            help="How long a record stays safe from compaction.",
        ),
        Setting(
            name="min.insync.replicas",
            kind=Kind.INT,
            default=1,
            at_least=1,
            default_from="min.insync.replicas",
            help="How many replicas must be in sync for a write with acks=all to be accepted.",
        ),
        Setting(
            name="ottla.acks.all",
            kind=Kind.STRING,
            default=ACKS_ALL_DISK,
            choices=(ACKS_ALL_DISK, ACKS_ALL_OS),
            default_from="ottla.acks.all",
            help="What acks=all promises: disk waits for the sync, os trusts the page cache as Kafka does.",
        ),
        Setting(
            name="preallocate",
            kind=Kind.BOOLEAN,
            default=False,
            check=_only_false,
            default_from="log.preallocate",
            help="Whether new segments take their full size at once; never.",
        ),
        Setting(
            name="retention.bytes",
            kind=Kind.LONG,
            default=-1,
            at_least=-1,
            default_from="log.retention.bytes",
            help="How large a partition may grow before its oldest segments are deleted; -1 is no limit.",
        ),
        Setting(
            name="retention.ms",
            kind=Kind.LONG,
            default=WEEK_MS,
            at_least=-1,
            default_from="log.retention.ms",
            help="How old records may grow before their segment is deleted; -1 is no limit.",
        ),
        Setting(
            name="segment.bytes",
            kind=Kind.INT,
            default=1 << 30,
            at_least=SEGMENT_BYTES_MIN,
            at_most=INT_MAX,
            default_from="log.segment.bytes",
            help="The size at which a partition begins a new segment file.",
        ),
        Setting(
            name="segment.index.bytes",
            kind=Kind.INT,
            default=10 << 20,
            at_least=INDEX_BYTES_MIN,
            default_from="log.index.size.max.bytes",
            help="The size of its index at which a segment ends.",
        ),
        Setting(
            name="segment.jitter.ms",
            kind=Kind.LONG,
            default=0,
            at_least=0,
            default_from="log.roll.jitter.ms",
            help="By how much segment.ms is shortened at most, by chance, so that not all partitions roll at once.",
        ),
        Setting(
            name="segment.ms",
            kind=Kind.LONG,
            default=WEEK_MS,
            at_least=1,
            default_from="log.roll.ms",
            help="The age at which a segment ends even when it is not full, so that retention can reach it.",
        ),
        Setting(
            name="unclean.leader.election.enable",
            kind=Kind.BOOLEAN,
            default=False,
            default_from="unclean.leader.election.enable",
            help="Whether a replica that lags behind may lead when no other is left; with one replica there is no "
            "such choice.",
        ),
    ),
)

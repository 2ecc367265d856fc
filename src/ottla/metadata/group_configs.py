"""The broker's settings of groups and of the topic that keeps them, with Kafka's names and defaults.

All are read once, when the broker starts.
"""

from __future__ import annotations

from ottla.config import INT_MAX, Kind, Setting

MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
ASSIGNORS = ("uniform", "range")
PARTITIONS_MAX = 10_000
METADATA_BYTES_MAX = 8_000
"""Four bytes a character still fit into a string of the oldest record format."""


def _number(name: str, default: int, text: str, *, at_least: int = 1, at_most: int | None = None) -> Setting:
    return Setting(name=name, kind=Kind.INT, default=default, at_least=at_least, at_most=at_most, help=text)


GROUP_SETTINGS = (
    _number(
        "group.min.session.timeout.ms",
        6_000,
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    _number(
        "group.max.session.timeout.ms",
        1_800_000,
        "The longest session timeout that a member of a classic group may ask for.",
    ),
    _number("group.max.size", INT_MAX, "How many members a classic group may have."),
    _number(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long the first member of an empty classic group waits for others, so that one rebalance serves them all.",
        at_least=0,
    ),
    _number(
        "group.consumer.session.timeout.ms",
        45_000,
        "After how long without a heartbeat a member of a consumer group is taken to be gone.",
    ),
    _number("group.consumer.heartbeat.interval.ms", 5_000, "How often members of consumer groups are told to beat."),
    _number("group.consumer.max.size", INT_MAX, "How many members a consumer group may have."),
    Setting(
        name="group.consumer.assignors",
        kind=Kind.LIST,
        default=ASSIGNORS,
        choices=ASSIGNORS,
        check=lambda value: None if value else "at least one assignor is needed",
        help="How partitions can be shared out in consumer groups; the first one is used where members name none.",
    ),
    Setting(
        name="group.consumer.migration.policy",
        kind=Kind.STRING,
        default="bidirectional",
        choices=MIGRATION_POLICIES,
        help="Whether a classic group becomes a consumer group when a member of the new protocol joins (upgrade), and "
        "the reverse when the last one leaves (downgrade).",
    ),
    _number(
        "offset.metadata.max.bytes",
        4_096,
        "The longest note that may come with a committed offset.",
        at_least=0,
        at_most=METADATA_BYTES_MAX,
    ),
    _number(
        "offsets.retention.minutes",
        7 * 24 * 60,
        "How long committed offsets outlive the group's last member, or their commit where a group has no members.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        kind=Kind.LONG,
        default=600_000,
        at_least=1,
        help="How often offsets that have outlived their time are looked for.",
    ),
    _number(
        "offsets.topic.num.partitions",
        50,
        "How many partitions __consumer_offsets gets when it is made; groups are spread over them, so the number of "
        "an existing topic must not change.",
        at_most=PARTITIONS_MAX,
    ),
    _number(
        "offsets.topic.replication.factor",
        1,
        "How many copies __consumer_offsets gets when it is made.",
        at_most=2**15 - 1,
    ),
    _number(
        "offsets.topic.segment.bytes",
        100 << 20,
        "The size of a segment of __consumer_offsets: small ones are compacted sooner, and read back faster.",
        at_least=14,
    ),
)

"""The settings of groups, read once from the broker's configs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's own names and defaults."""

    session_timeout_ms_min: int = 6_000
    """`group.min.session.timeout.ms`: classic members may not ask for less."""
    session_timeout_ms_max: int = 1_800_000
    """`group.max.session.timeout.ms`"""
    members_max: int = 2**31 - 1
    """`group.max.size`"""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`"""
    consumer_session_timeout_ms: int = 45_000
    """`group.consumer.session.timeout.ms`"""
    consumer_heartbeat_interval_ms: int = 5_000
    """`group.consumer.heartbeat.interval.ms`"""
    consumer_members_max: int = 2**31 - 1
    """`group.consumer.max.size`"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`; the first one is used when the members name none."""
    consumer_migration_upgrade: bool = True
    consumer_migration_downgrade: bool = True
    """`group.consumer.migration.policy`: bidirectional, upgrade, downgrade or disabled."""
    offset_metadata_bytes_max: int = 4_096
    """`offset.metadata.max.bytes`"""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    """`offsets.retention.minutes`"""
    offsets_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`"""

"""Limits and delays of consumer groups, with Kafka's names and defaults.

Leaves reading them from files and flags to the broker's process.
Source: Kafka's broker configs group.*, group.consumer.* and offsets.*.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """Settings of all groups of a broker. All times are in milliseconds."""

    group_session_timeout_min_ms: int = 6_000
    group_session_timeout_max_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    """Time that a first rebalance waits for more members."""
    new_member_join_timeout_ms: int = 300_000
    """Time after which a member is removed if its first JoinGroup is still parked."""
    group_size_max: int = 2_147_483_647
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_group_size_max: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Offered server-side assignors; the first is the default."""

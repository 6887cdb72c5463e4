"""Says which offsets of a group have outlived their retention.

Leaves removing them to the shell.

Invariants: pure; what an open transaction will commit does not expire.
Source: KIP-211: offsets live while their group has members that read the topic, and for the
retention after that.
"""

from broker_layer.groups.offsets.offset_table import NO_EXPIRY, CommittedOffset, GroupOffsets, Place


def is_expired(committed: CommittedOffset, unused_ms: int, wall_ms: int, retention_ms: int) -> bool:
    """Whether an offset not in use since `unused_ms` (wall clock) is to go."""
    if committed.expires_ms != NO_EXPIRY:
        return wall_ms >= committed.expires_ms
    return wall_ms - unused_ms >= retention_ms


def expired_places(
    offsets: GroupOffsets,
    *,
    unused_ms: int | None,
    read_topics: tuple[str, ...],
    wall_ms: int,
    retention_ms: int,
) -> list[Place]:
    """Return what is to go of a group that reads `read_topics`.

    `unused_ms`: since when the group is without members; None when it has some or never had, so
    that each offset's own commit time counts.
    """
    return [
        (topic, partition)
        for topic, partition, committed in offsets.all()
        if topic not in read_topics
        and not offsets.is_pending((topic, partition))
        and is_expired(
            committed,
            committed.committed_ms if unused_ms is None else max(unused_ms, 0),
            wall_ms,
            retention_ms,
        )
    ]

"""Rules of the expiry of committed offsets.

Leaves removing them to the shell.

Invariants: pure; an offset does not expire while an open transaction will commit its partition.
Source: KIP-211: offsets are kept while their group has members that read the topic, and for the
retention time after that.
"""

from broker_layer.groups.offsets.offset_table import (
    NO_EXPIRY,
    CommittedOffset,
    GroupOffsets,
    OffsetPlace,
)


def is_expired(committed: CommittedOffset, unused_ms: int, wall_ms: int, retention_ms: int) -> bool:
    """Return whether an offset that is unused since `unused_ms` (wall clock) has expired."""
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
) -> list[OffsetPlace]:
    """Return the places of expired offsets of a group that reads `read_topics`.

    `unused_ms` is the time since which the group has no members. It is None if the group has some
    or never had any; then the commit time of each offset applies.
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

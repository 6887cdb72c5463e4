"""One checkpoint: the changes in memory move to the index, then the mark does.

Leaves when to make one to `bookie.storage.upkeep` and `bookie.storage.start_checkpoints`, and the
transactions to `bookie.index.index`.

Invariants: the mark is older than the changes. What becomes durable after the mark was read may be
stored and replayed too, but nothing below the mark is only in memory. A checkpoint that fails
leaves its changes to the next one.
Source: storage design, "Index".
"""

from collections.abc import Awaitable, Callable, Sequence

from bookie.index.index import Index
from bookie.index.stored_segments import Measured
from bookie.log.segments import Segments
from bookie.storage.ledgers import Ledgers


async def store_changes(
    mark_lsn: int,
    ledgers: Ledgers,
    index: Index,
    segments: Segments,
    removed: Sequence[int] = (),
    rest: Callable[[float], Awaitable[None]] | None = None,
) -> None:
    """Store what changed since the last checkpoint, and the mark: everything before `mark_lsn` was
    durable and applied when it was read, before this call.

    `removed`: segments that were removed. `rest`: see `Index.checkpoint`. Durable on return. Raises
    DiskFullError.
    """
    unsaved = ledgers.take_unsaved()
    try:
        await index.store_damaged(segments.damaged())
        await _store_measured(index, segments)
        await index.checkpoint(
            mark_lsn, unsaved, ledgers.encode, removed, ledgers.indexed_highest_of, rest
        )
    except BaseException:  # also when cancelled
        ledgers.mark_unsaved()
        raise
    ledgers.note_saved()
    for number, segment in segments.by_number.items():
        segment.live_bytes = index.live_bytes(number)


async def _store_measured(index: Index, segments: Segments) -> None:
    """Store what cleaning has measured since the last checkpoint."""
    new = [
        segment
        for segment in segments.by_number.values()
        if segment.record_count is not None
        and (segment.is_cleaned or segment.mean_run_bytes is not None)
        and not segment.is_measure_stored
    ]
    await index.store_measured(
        {each.number: Measured(each.record_count or 0, each.mean_run_bytes or 0) for each in new}
    )
    for segment in new:
        segment.is_measure_stored = True

"""One checkpoint: the changes in memory move to the index, then the mark does; and the checkpoints
of a start, with the decision on limbo that is stored with them.

Leaves when to make one to `bookie.storage.upkeep` and `bookie.storage.opening`, the transactions to
`bookie.index.index`, and reading the log to `bookie.log.recovery_scan`.

Invariants: the mark is older than the changes. What becomes durable after the mark was read may be
stored and replayed too, but nothing below the mark is only in memory. A checkpoint that fails
leaves its changes to the next one. Before a mark after a loss is stored, the flag that the start is
unfinished is stored, so a start that is interrupted there still ends in limbo; the flag is removed
after every ledger is stored in limbo.
Source: protocol rules 2.4 and 2.5; storage design, "Index".
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bookie.config import StorageConfig
from bookie.errors import DiskFullError
from bookie.index.index import Index
from bookie.index.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO, FLAG_UNFINISHED
from bookie.index.stored_runs import Measured
from bookie.log.recovery_scan import ReplayOutcome
from bookie.log.reserve import Reserve
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
        {file.number: Measured(file.record_count or 0, file.mean_run_bytes or 0) for file in new}
    )
    for segment in new:
        segment.is_measure_stored = True


class LimboVerdict:
    """Decision whether the storage is in limbo (rule 2.4), from the losses found so far."""

    def __init__(self, ledgers: Ledgers, index: Index, *, has_lost_data: bool) -> None:
        self.outcome = ReplayOutcome(end_lsn=0)
        """Outcome of the running replay."""
        self._ledgers = ledgers
        self._index = index
        meta = index.meta
        has_lost_mark = bool(meta.flags) and not meta.mark_lsn
        self._has_lost_data = has_lost_data
        self._is_lossy = has_lost_data or has_lost_mark or bool(meta.flags & FLAG_UNFINISHED)

    @property
    def flags(self) -> int | None:
        """Flags to store; None when nothing was lost."""
        flags, outcome = self._index.meta.flags & ~FLAG_UNFINISHED, self.outcome
        if outcome.corrupt:
            flags |= FLAG_LIMBO | FLAG_FENCES_LOST * outcome.may_have_lost_fences
        if self._has_lost_data:
            flags |= FLAG_LIMBO | FLAG_FENCES_LOST
        return flags if self._is_lossy or outcome.corrupt else None

    def note_lost_data(self) -> None:
        """Record that the disk lacks stored data."""
        self._has_lost_data = self._is_lossy = True

    async def note_loss(self) -> None:
        """Store the flag of a loss, if there is one, before a mark after the loss is stored. If
        this start is interrupted, the next one then puts every ledger into limbo.
        """
        flags = self.flags
        if flags is not None and self._index.meta.flags != flags | FLAG_UNFINISHED:
            await self._index.set_flags(flags | FLAG_UNFINISHED)

    async def put_in_limbo(self) -> None:
        """Put every ledger, in memory or stored, into limbo, if data was lost."""
        if self.flags is not None:
            is_fenced = bool(self.flags & FLAG_FENCES_LOST)
            self._ledgers.enter_limbo(fence=is_fenced)
            await self._index.put_in_limbo(fence=is_fenced)

    async def store(self) -> None:
        """Store the final flags."""
        if self.flags is not None:
            await self._index.set_flags(self.flags)


@dataclass(eq=False, repr=False)
class StartCheckpoints:
    """Checkpoints during the replay of the log, which limit the memory of a start."""

    _config: StorageConfig
    _reserve: Reserve
    _index: Index
    _segments: Segments
    _verdict: LimboVerdict

    async def store_if_due(self, ledgers: Ledgers, applied_lsn: int) -> None:
        """Make a checkpoint if enough is in memory. Everything below `applied_lsn` is applied and
        durable.
        """
        if (
            self._index.record_count >= self._config.checkpoint_records
            or ledgers.unsaved_count >= self._config.checkpoint_ledgers
        ):
            await self._verdict.note_loss()
            await self._store(ledgers, applied_lsn)

    async def finish(self, ledgers: Ledgers, end_lsn: int) -> None:
        """Store the decision. If a checkpoint passed a loss, store every ledger in limbo first."""
        await self._verdict.put_in_limbo()
        if self._index.meta.flags & FLAG_UNFINISHED:
            await self._store(ledgers, end_lsn)
            if self._index.meta.mark_lsn != end_lsn:
                return  # there was no room: the next start tries again
        await self._verdict.store()

    async def _store(self, ledgers: Ledgers, mark_lsn: int) -> None:
        try:
            await store_changes(mark_lsn, ledgers, self._index, self._segments)
        except DiskFullError:  # the next checkpoint may use the reserve's room
            await self._reserve.release()
            return
        ledgers.evict(2 * len(ledgers.states))

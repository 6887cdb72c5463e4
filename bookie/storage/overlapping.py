"""Comparison of batches with stored entries, for batches whose entries may be stored already.

Leaves batches beyond a ledger's highest entry id, which overlap nothing, to
`bookie.storage.bookie_storage`.

Invariants: one comparison per ledger runs at a time; the last comparison and the acceptance are in
one iteration of the event loop; a stored copy that cannot be read or fails its checksum counts as
missing, so that it is replaced; a good copy never is.
Source: protocol rules 4.3 and 9.12.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bookie.errors import BookieError
from bookie.index.index import Index
from bookie.index.index_runs import Lookup
from bookie.index.replica_state import ReplicaState
from bookie.log.log import Log
from bookie.storage.reading import LOOKUP_RUNS, StorageReader
from bookie.storage.recent import RecentEntries
from bookie.wire.batch import BatchView
from bookie.wire.messages import Status

COMPARISON_OVERHEAD_BYTES: Final = 4096
"""Memory of a running comparison besides its batch, counted against the queue's limit."""

Gaps = list[tuple[int, int]]


@dataclass(eq=False, repr=False, slots=True)
class QueuedAdd:
    """An accepted batch that waits for the log. `gaps` are the parts to index, None for the
    complete batch.
    """

    state: ReplicaState
    batch: BatchView
    gaps: Gaps | None
    done: Callable[[Status], None]


@dataclass(frozen=True, slots=True)
class OverlappingAdd:
    """A batch to compare. `refusal` is called again immediately before `accept`."""

    state: ReplicaState
    batch: BatchView
    done: Callable[[Status], None]
    refusal: Callable[[], Status | None]
    accept: Callable[[Gaps], None]


class OverlappingAdds:
    """The running comparisons."""

    def __init__(
        self,
        log: Log,
        index: Index,
        reader: StorageReader,
        recent: RecentEntries,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called after each decrease of the bytes that are compared."""
        self._queued = log.queued
        self._log = log
        self._index = index
        self._reader = reader
        self._recent = recent
        self._wake = wake
        self._locks: dict[int, asyncio.Lock] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._task_count = 0

    def add(self, add: OverlappingAdd) -> None:
        """Answer an exact repetition of a recent batch at once, unless its copy on the disk is
        damaged; compare any other batch in a task.
        """
        header = add.batch.header
        last = header.last_entry_id
        batches = self._recent.find(header.ledger_id, header.first_entry_id, last, 1, 1)
        is_repetition = bool(batches) and batches[0].data == add.batch.data
        if is_repetition and not self._is_bad(add):
            add.done(Status.OK)
            return
        number = self._task_count
        self._task_count += 1
        self._queued.compared_bytes += len(add.batch.data) + COMPARISON_OVERHEAD_BYTES
        add.state.use_count += 1
        self._tasks[number] = asyncio.create_task(self._run(number, add))

    async def settle(self) -> None:
        """Wait for the running comparisons."""
        while self._tasks:
            await asyncio.gather(*list(self._tasks.values()), return_exceptions=True)

    async def _run(self, number: int, add: OverlappingAdd) -> None:
        ledger_id = add.state.ledger_id
        lock = self._locks.setdefault(ledger_id, asyncio.Lock())
        try:
            async with lock:
                await self._decide(add)
        except Exception as error:
            add.done(Status.UNKNOWN)
            if not isinstance(error, BookieError):
                raise
        finally:
            self._queued.compared_bytes -= len(add.batch.data) + COMPARISON_OVERHEAD_BYTES
            add.state.use_count -= 1
            del self._tasks[number]
            if not self._tasks:
                self._locks.clear()
            self._wake()

    async def _decide(self, add: OverlappingAdd) -> None:
        state, header = add.state, add.batch.header
        while True:
            if self._log.failure is not None:
                raise self._log.failure
            if self._is_queued(add):
                await self._log.barrier()
                continue
            highest, release_count = state.accepted_highest, state.release_count
            gaps = await self._compare(state, add.batch)
            if header.last_entry_id > highest != state.accepted_highest or self._is_queued(add):
                continue  # other adds, which may overlap, were accepted during the comparison
            if release_count != state.release_count:
                continue  # the entries that were compared are gone
            refusal = add.refusal()
            if refusal is not None:
                add.done(refusal)
            elif gaps is None:
                add.done(Status.CONFLICT)
            elif not gaps:
                self._reader.bad.clear(state.ledger_id, header.first_entry_id, header.last_entry_id)
                add.done(Status.OK)
            else:
                add.accept(gaps)
            return

    def _is_bad(self, add: OverlappingAdd) -> bool:
        header = add.batch.header
        bad = self._reader.bad
        return bad.overlap(header.ledger_id, header.first_entry_id, header.last_entry_id)

    def _is_queued(self, add: OverlappingAdd) -> bool:
        if not add.state.queued_count:
            return False
        first, last = add.batch.header.first_entry_id, add.batch.header.last_entry_id
        for item in self._log.unanswered():
            context = item.context
            if isinstance(context, QueuedAdd) and context.state is add.state:
                header = context.batch.header
                if header.first_entry_id <= last and header.last_entry_id >= first:
                    return True
        return False

    async def _compare(self, state: ReplicaState, batch: BatchView) -> Gaps | None:
        """Return the ranges of the batch that are not stored; None when a stored entry differs."""
        entry_id, last = int(batch.header.first_entry_id), int(batch.header.last_entry_id)
        gaps: Gaps = []
        while entry_id <= last:
            result = await self._reader.read_or_raise(state, entry_id, last, len(batch.data))
            for buffer in result.batches:
                if not _is_same(BatchView(buffer), batch):
                    return None
            entry_id = result.next_entry_id
            if entry_id <= last and result.status is not Status.OK:
                lookup = await self._index.look_up(
                    state.ledger_id, entry_id, last, state.indexed_highest, LOOKUP_RUNS
                )
                stop = _end_of_gap(lookup, entry_id, last)
                gaps.append((entry_id, stop))
                entry_id = stop + 1
        return _joined(gaps)


def _is_same(stored: BatchView, batch: BatchView) -> bool:
    """Return whether the entries that both batches hold have equal lengths and digests."""
    ours, theirs = stored.header, batch.header
    first = max(ours.first_entry_id, theirs.first_entry_id)
    stop = min(ours.last_entry_id, theirs.last_entry_id) + 1
    mine = slice(first - ours.first_entry_id, stop - ours.first_entry_id)
    yours = slice(first - theirs.first_entry_id, stop - theirs.first_entry_id)
    return (
        stored.lengths[mine] == batch.lengths[yours]
        and stored.digests[mine] == batch.digests[yours]
    )


def _end_of_gap(lookup: Lookup, entry_id: int, last: int) -> int:
    """Return the last id of a range without readable entries. In a damaged run that is one
    entry.
    """
    if not lookup.runs:
        return last
    return entry_id if lookup.runs[0][1] == entry_id else lookup.runs[0][1] - 1


def _joined(gaps: Gaps) -> Gaps:
    joined: Gaps = []
    for first, last in gaps:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined

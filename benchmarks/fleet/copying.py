"""Model of catch-up: copies to members that missed entries, or that joined.

Leaves repair to `benchmarks.fleet.repairing`, and changes of the metadata to its transitions.

Invariants: a bookie catches up with one ledger at a time, the last one that began to wait first; a
copy counts only once it is complete; a queued copy that is no longer needed is not made.

Source: protocol rules 6.3, 11.2.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.fleet.ledgers import TOKEN, Ledger
from benchmarks.fleet.world import World
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata


@dataclass(frozen=True, slots=True)
class FillGaps:
    """Copy to the target the entries that it missed of fragments that name it."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Copy to the target every older fragment that does not name it (rule 11.2)."""

    ledger: Ledger


Job = FillGaps | CatchUp


class Copying:
    """All pending copies, in a queue per target."""

    def __init__(self, world: World, on_caught_up: Callable[[Ledger, BookieId], None]) -> None:
        """`on_caught_up` is called when a member of a ledger has caught up."""
        self._world = world
        self._queues: dict[BookieId, deque[Job]] = {}
        self._busy: dict[BookieId, None] = {}
        self._on_caught_up = on_caught_up

    # -- wanted copies ---------------------------------------------------------------------------

    def fill_gaps(self, ledger: Ledger, bookie_id: BookieId) -> None:
        """Queue the entries that a returned member lacks."""
        self._queue(bookie_id, FillGaps(ledger))

    def catch_up(self, ledger: Ledger, bookie_id: BookieId) -> None:
        """Queue the entries that a new member lacks."""
        self._queue(bookie_id, CatchUp(ledger))

    def _queue(self, target: BookieId, job: Job) -> None:
        self._queues.setdefault(target, deque()).appendleft(job)
        self._begin_next(target)

    # -- running copies --------------------------------------------------------------------------

    def _begin_next(self, target: BookieId) -> None:
        queue = self._queues.get(target)
        while queue and target not in self._busy:
            job = queue.popleft()
            if not self._is_wanted(job, target):
                continue
            entries = self._entries(job, target)
            size = entries * self._world.assumptions.entry_bytes
            self._busy[target] = None
            delay_s = size / self._world.assumptions.copy_bytes_per_s
            self._world.agenda.after(delay_s, partial(self._end, job, target, entries))

    def _end(self, job: Job, target: BookieId, entries: int) -> None:
        del self._busy[target]
        if self._is_wanted(job, target):
            self._world.alter(job.ledger, partial(self._apply, job, target))
            self._world.measures.copied(self._world.now, entries)
            self._world.measures.caught_up_entries += entries
            if isinstance(job, CatchUp):
                self._on_caught_up(job.ledger, target)
        self._begin_next(target)

    def _is_wanted(self, job: Job, target: BookieId) -> bool:
        if job.ledger.is_deleted:
            return False
        match job:
            case FillGaps():
                return target in job.ledger.gaps and self._world.bookies.answers(target)
            case CatchUp():
                ensemble = job.ledger.metadata.last_fragment.ensemble
                return target in ensemble and self._world.bookies.answers(target)

    def _entries(self, job: Job, target: BookieId) -> int:
        ledger, now = job.ledger, self._world.now
        match job:
            case FillGaps():
                end = ledger.end(now)
                gaps = ledger.gaps[target]
                return sum((end if gap.end is None else gap.end) - gap.first for gap in gaps)
            case CatchUp():
                older = ledger.ranges(now)[:-1]
                return sum(end - first for f, first, end in older if target not in f.ensemble)

    def _apply(self, job: Job, target: BookieId) -> None:
        metadata = job.ledger.metadata
        match job:
            case FillGaps():
                self._world.drop_gaps(job.ledger, target)
            case CatchUp():
                for index, old in enumerate(metadata.fragments[:-1]):
                    if target not in old.ensemble:
                        fuller = replace(old, ensemble=self._with_member(metadata, old, target))
                        metadata = metadata.with_fragment(index, fuller, TOKEN)
                self._world.store(job.ledger, metadata)

    def _with_member(
        self, metadata: LedgerMetadata, old: Fragment, target: BookieId
    ) -> tuple[BookieId, ...]:
        """Return an older fragment's ensemble with a bookie that caught up: in a free place, or in
        place of a former member.
        """
        if len(old.ensemble) < self._world.configuration.replica_count:
            return (*old.ensemble, target)
        members = metadata.last_fragment.ensemble
        gone = next(bookie for bookie in old.ensemble if bookie not in members)
        return tuple(target if bookie == gone else bookie for bookie in old.ensemble)

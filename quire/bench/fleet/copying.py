"""Model of repair and catch-up: which copies are made, on which bookie, and when they count.

Leaves the choice of targets to the product's placement policy, and the member swap to the
transition of the metadata.

Invariants: only closed fragments are repaired (9.1); a bookie writes one copy at a time, first the
entries that a member lacks, then repairs; a copy counts only once it is complete and swapped in; a
queued copy that is no longer needed is not made.

Source: protocol rules 6.3, 9.1, 11.2.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ledger_client.bookies.placement_policy import Shortage
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata
from quire.bench.fleet.bookies import Silence
from quire.bench.fleet.ledgers import TOKEN, Ledger
from quire.bench.fleet.world import World


@dataclass(frozen=True, slots=True)
class Repair:
    """Put the target into one closed fragment, in place of a bookie that is away for long."""

    ledger: Ledger
    first_entry_id: EntryId
    absent: BookieId | None
    """The member to replace; None if the fragment has too few members."""

    @property
    def key(self) -> tuple[LedgerId, EntryId, BookieId | None]:
        """Key of which at most one repair may be under way."""
        return self.ledger.number, self.first_entry_id, self.absent


@dataclass(frozen=True, slots=True)
class FillGaps:
    """Copy to the target the entries that it missed of fragments that name it."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Copy to the target every older fragment that does not name it (rule 11.2)."""

    ledger: Ledger


Job = Repair | FillGaps | CatchUp


class Copying:
    """All pending copies, in a queue per target."""

    def __init__(self, world: World, on_caught_up: Callable[[Ledger, BookieId], None]) -> None:
        """`on_caught_up` is called when a member of a ledger has caught up."""
        self._world = world
        self._queues: dict[BookieId, deque[Job]] = {}
        self._busy: dict[BookieId, None] = {}
        self._pending: dict[tuple[LedgerId, EntryId, BookieId | None], None] = {}
        self.overdue: dict[BookieId, None] = {}
        """Bookies that are away for so long that their copies are made again."""
        self._on_caught_up = on_caught_up

    # -- wanted copies ---------------------------------------------------------------------------

    def expect_back(self, bookie_id: BookieId, silence: Silence) -> None:
        """Schedule the repair of a bookie's copies in case it stays away."""
        delay_s = self._world.assumptions.repair_after_s
        self._world.agenda.after(delay_s, partial(self._repair_absent, bookie_id, silence))

    def _repair_absent(self, bookie_id: BookieId, silence: Silence) -> None:
        if self._world.bookies.silent.get(bookie_id) is not silence:
            return
        self.overdue[bookie_id] = None
        for ledger in list(self._world.held_by.get(bookie_id, {}).values()):
            self.make_up_for(ledger)

    def came_back(self, bookie_id: BookieId) -> None:
        """Stop the repair of a bookie's copies, because it is back."""
        self.overdue.pop(bookie_id, None)

    def make_up_for(self, ledger: Ledger) -> None:
        """Queue a repair for each closed fragment that lacks members."""
        is_closed = ledger.closed_s is not None
        fragments = ledger.metadata.fragments
        for fragment in fragments if is_closed else fragments[:-1]:
            for each in fragment.ensemble:
                if each in self.overdue:
                    self._queue_repair(Repair(ledger, fragment.first_entry_id, each))
            missing = self._world.configuration.replica_count - len(fragment.ensemble)
            if is_closed and missing > 0:
                self._queue_repair(Repair(ledger, fragment.first_entry_id, None))

    def fill_gaps(self, ledger: Ledger, bookie_id: BookieId) -> None:
        """Queue the entries that a returned member lacks."""
        self._queue(bookie_id, FillGaps(ledger), is_urgent=True)

    def catch_up(self, ledger: Ledger, bookie_id: BookieId) -> None:
        """Queue the entries that a new member lacks."""
        self._queue(bookie_id, CatchUp(ledger), is_urgent=True)

    def _queue_repair(self, repair: Repair) -> None:
        fragment = self._fragment(repair)
        if fragment is None or repair.key in self._pending or not self._needs(repair, fragment):
            return
        if repair.absent is None:
            ensemble = (*fragment.ensemble, BookieId("absent"))
            position = len(fragment.ensemble)
        else:
            ensemble = fragment.ensemble
            position = ensemble.index(repair.absent)
        quorum = repair.ledger.metadata.quorum.with_members(len(ensemble))
        chosen = self._world.bookies.replacements(quorum, ensemble, frozenset({position}))
        self._pending[repair.key] = None
        if isinstance(chosen, Shortage):
            self._try_later(repair)
        else:
            self._queue(chosen[position], repair, is_urgent=False)

    def _needs(self, repair: Repair, fragment: Fragment) -> bool:
        """Return whether a fragment still needs a repair."""
        if repair.absent is None:
            return len(fragment.ensemble) < self._world.configuration.replica_count
        return repair.absent in fragment.ensemble and repair.absent in self.overdue

    def _try_later(self, repair: Repair) -> None:
        def again() -> None:
            del self._pending[repair.key]
            self._queue_repair(repair)

        self._world.agenda.after(self._world.assumptions.repair_after_s, again)

    def _queue(self, target: BookieId, job: Job, *, is_urgent: bool) -> None:
        queue = self._queues.setdefault(target, deque())
        if is_urgent:
            queue.appendleft(job)
        else:
            queue.append(job)
        self._begin_next(target)

    # -- running copies --------------------------------------------------------------------------

    def _begin_next(self, target: BookieId) -> None:
        queue = self._queues.get(target)
        while queue and target not in self._busy:
            job = queue.popleft()
            if not self._is_wanted(job, target):
                if isinstance(job, Repair):
                    self._pending.pop(job.key, None)
                continue
            if isinstance(job, Repair) and not self._may_start(job, target):
                self._try_later(job)
                continue
            entries = self._entries(job, target)
            size = entries * self._world.assumptions.entry_bytes
            self._busy[target] = None
            delay_s = size / self._world.assumptions.copy_bytes_per_s
            self._world.agenda.after(delay_s, partial(self._end, job, target, entries))

    def _end(self, job: Job, target: BookieId, entries: int) -> None:
        del self._busy[target]
        if isinstance(job, Repair):
            self._pending.pop(job.key, None)
        if self._is_wanted(job, target) and self._world.bookies.answers(target):
            self._world.alter(job.ledger, partial(self._apply, job, target))
            self._count(job, entries)
            if isinstance(job, CatchUp):
                self._on_caught_up(job.ledger, target)
        elif isinstance(job, Repair) and self._is_wanted(job, target):
            self._queue_repair(job)
        self._begin_next(target)

    def _is_wanted(self, job: Job, target: BookieId) -> bool:
        if job.ledger.is_deleted:
            return False
        match job:
            case Repair():
                fragment = self._fragment(job)
                return fragment is not None and self._needs(job, fragment)
            case FillGaps():
                return target in job.ledger.gaps and self._world.bookies.answers(target)
            case CatchUp():
                ensemble = job.ledger.metadata.last_fragment.ensemble
                return target in ensemble and self._world.bookies.answers(target)

    def _may_start(self, job: Repair, target: BookieId) -> bool:
        """Return whether a source answers, and the target answers and is no member yet."""
        fragment = self._fragment(job)
        answers = self._world.bookies.answers
        if fragment is None or target in fragment.ensemble or not answers(target):
            return False
        return any(answers(each) for each in fragment.ensemble if each != job.absent)

    def _entries(self, job: Job, target: BookieId) -> int:
        ledger, now = job.ledger, self._world.now
        match job:
            case Repair(_, first_entry_id, _):
                ranges = ledger.ranges(now)
                return next(end - first for _, first, end in ranges if first == first_entry_id)
            case FillGaps():
                end = ledger.end(now)
                gaps = ledger.gaps[target]
                return sum((end if each.end is None else each.end) - each.first for each in gaps)
            case CatchUp():
                older = ledger.ranges(now)[:-1]
                return sum(end - first for f, first, end in older if target not in f.ensemble)

    def _apply(self, job: Job, target: BookieId) -> None:
        metadata = job.ledger.metadata
        match job:
            case Repair(_, first_entry_id, absent):
                index = metadata.fragment_index_of(first_entry_id)
                old = metadata.fragments[index]
                kept = tuple(target if each == absent else each for each in old.ensemble)
                ensemble = kept if absent is not None else (*kept, target)
                new = metadata.with_fragment(index, replace(old, ensemble=ensemble), TOKEN)
                self._world.store(job.ledger, new)
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
        gone = next(each for each in old.ensemble if each not in members)
        return tuple(target if each == gone else each for each in old.ensemble)

    def _count(self, job: Job, entries: int) -> None:
        measures = self._world.measures
        measures.copied(self._world.now, entries)
        if isinstance(job, Repair):
            measures.repaired_entries += entries
        else:
            measures.caught_up_entries += entries

    def _fragment(self, job: Repair) -> Fragment | None:
        """Return the fragment of a repair, if the ledger still has it."""
        if job.ledger.is_deleted:
            return None
        metadata = job.ledger.metadata
        fragment = metadata.fragment_of(job.first_entry_id)
        return fragment if fragment.first_entry_id == job.first_entry_id else None

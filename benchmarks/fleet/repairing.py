"""Model of repair as it is built: which ledgers are repaired, when, in which order, and by whom.

Leaves what a ledger needs and how urgent that is to the product's `quire.repair.needs`, the choice
of targets to its placement policy, the swap of members to the transition of the metadata, and the
speed of copies to `benchmarks.fleet.repair_worker`.

Invariants: only closed fragments are repaired (9.1); a bookie that is away counts as gone after
`lost_after_s`, and after `urgent_after_s` for fragments with one good copy left without it; of the
ledgers that wait, the most urgent class is first, then the smallest; one worker repairs a ledger,
one copy at a time; a copy counts once it is complete and swapped in; a copy under way is finished
although the absent bookie is back.

Source: protocol rules 6.3, 9.1 and 9.6; docs/repair.md.
"""

import heapq
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from benchmarks.fleet.bookies import Silence
from benchmarks.fleet.ledgers import TOKEN, Ledger
from benchmarks.fleet.repair_worker import Copy, RepairWorker
from benchmarks.fleet.world import World
from ledger_client.bookies.placement_policy import Shortage
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import Fragment
from quire.repair.needs import Need, RepairClass, class_with_absent, holders_of, needs_of
from quire.repair.standing import Standing, Standings
from quire.repair.worker import MORE_AT_ONCE


@dataclass(order=True, slots=True)
class _Waiting:
    urgency: int
    size: int
    order: int
    ledger: Ledger = field(compare=False)


class Repairing:
    """All repair of one fleet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._workers: dict[int, RepairWorker] = {}
        self._worker_of: dict[LedgerId, int] = {}
        self._heap: list[_Waiting] = []
        self._waiting: dict[LedgerId, _Waiting] = {}
        self._blocked: dict[LedgerId, Ledger] = {}
        self._order = count()
        self._gone: dict[BookieId, None] = {}
        """Bookies that are away for so long that all their copies are made again."""
        self._urgent: dict[BookieId, None] = {}
        """Bookies that count as gone for fragments with one good copy left."""

    # -- departures ------------------------------------------------------------------------------

    def fell_silent(self, bookie_id: BookieId, silence: Silence) -> None:
        """Plan the repair of a bookie's copies in case it stays away, and stop what it took part
        in.
        """
        assumptions, agenda = self._world.assumptions, self._world.agenda
        for delay_s, known in (
            (assumptions.urgent_after_s, self._urgent),
            (assumptions.lost_after_s, self._gone),
        ):
            act = partial(self._count_as_gone, bookie_id, silence, known)
            agenda.after(assumptions.repair_detect_s + delay_s, act)
        for machine, worker in list(self._workers.items()):
            is_own = self._world.bookies.on_machine[machine] == bookie_id
            for copy in list(worker.copies):
                if copy.target == bookie_id or (is_own and not silence.keeps_what_was_sent):
                    self._begin_again(worker, copy)
                elif copy.source == bookie_id:
                    self._read_elsewhere(worker, copy)

    def _begin_again(self, worker: RepairWorker, copy: Copy) -> None:
        worker.stop(copy, self._worker_count)
        del self._worker_of[copy.ledger.number]
        self.look_at(copy.ledger)

    def _read_elsewhere(self, worker: RepairWorker, copy: Copy) -> None:
        fragment = self._fragment(copy.ledger, copy.first_entry_id)
        source = None if fragment is None else self._source(fragment, copy.absent)
        if source is None:
            self._begin_again(worker, copy)
        else:
            worker.read_elsewhere(copy, source, self._worker_count)

    def _count_as_gone(
        self, bookie_id: BookieId, silence: Silence, known: dict[BookieId, None]
    ) -> None:
        if self._world.bookies.silent.get(bookie_id) is silence:
            known[bookie_id] = None
            for ledger in list(self._world.held_by.get(bookie_id, {}).values()):
                self.look_at(ledger)

    def came_back(self, bookie_id: BookieId) -> None:
        """Stop the repair of a bookie's copies that were not begun, because it is back."""
        self._gone.pop(bookie_id, None)
        self._urgent.pop(bookie_id, None)

    def retry(self) -> None:
        """Try again what could not be repaired, because the bookies changed."""
        blocked, self._blocked = list(self._blocked.values()), {}
        for ledger in blocked:
            self.look_at(ledger)
        self._assign()

    # -- the queue -------------------------------------------------------------------------------

    def look_at(self, ledger: Ledger) -> None:
        """Queue a ledger if it needs a repair."""
        if ledger.number in self._worker_of:
            return  # looked at again when its copy ends
        urgency, needs = self._needs(ledger)
        if not needs:
            return
        size = sum(self._entries(ledger, need) for need in needs)
        waiting = _Waiting(urgency, size, next(self._order), ledger)
        self._waiting[ledger.number] = waiting
        heapq.heappush(self._heap, waiting)
        self._assign()

    def _assign(self) -> None:
        """Give ledgers to workers that have room."""
        while self._heap:
            first = self._heap[0]
            if self._waiting.get(first.ledger.number) is not first:
                heapq.heappop(self._heap)  # queued again meanwhile
                continue
            machine = self._machine_with_room(first.urgency)
            if machine is None:
                return
            heapq.heappop(self._heap)
            del self._waiting[first.ledger.number]
            self._begin(first.ledger, machine)

    def _machine_with_room(self, urgency: int) -> int | None:
        """Return the machine whose worker has the fewest ledgers, if it may begin one more."""
        bookies, workers = self._world.bookies, self._workers
        loads = [
            (len(workers[machine].copies) if machine in workers else 0, machine)
            for machine, bookie_id in enumerate(bookies.on_machine)
            if bookies.answers(bookie_id)
        ]
        load, machine = min(loads, default=(0, -1))
        limit = self._world.assumptions.ledgers_per_worker + MORE_AT_ONCE.get(urgency, 0)
        return None if machine < 0 or load >= limit else machine

    @property
    def _worker_count(self) -> int:
        bookies = self._world.bookies
        return max(1, sum(map(bookies.answers, bookies.on_machine)))

    # -- copies ----------------------------------------------------------------------------------

    def _begin(self, ledger: Ledger, machine: int) -> None:
        """Begin the next copy of a ledger, if it still needs one."""
        _, needs = self._needs(ledger)
        if not needs:
            return
        copy = self._copy_for(ledger, needs[0])
        if copy is None:
            self._blocked[ledger.number] = ledger
            return
        worker = self._workers.get(machine)
        if worker is None:
            agenda, assumptions = self._world.agenda, self._world.assumptions
            worker = RepairWorker(agenda, assumptions, partial(self._end, machine))
            self._workers[machine] = worker
        self._worker_of[ledger.number] = machine
        worker.begin(copy, self._worker_count)

    def _copy_for(self, ledger: Ledger, need: Need) -> Copy | None:
        """Choose the source and the target of a copy; None if one of them is missing."""
        world, fragment = self._world, ledger.metadata.fragment_of(need.first_entry_id)
        source = self._source(fragment, need.replaces)
        target = self._target(ledger, fragment, need.replaces)
        if source is None or target is None:
            return None
        entries = self._entries(ledger, need)
        return Copy(
            ledger,
            need.first_entry_id,
            need.replaces,
            source,
            target,
            entries,
            float(entries * world.assumptions.entry_bytes),
            world.now + world.assumptions.repair_ledger_s,
        )

    def _source(self, fragment: Fragment, absent: BookieId | None) -> BookieId | None:
        answers = self._world.bookies.answers
        return next((id_ for id_ in fragment.ensemble if id_ != absent and answers(id_)), None)

    def _target(
        self, ledger: Ledger, fragment: Fragment, absent: BookieId | None
    ) -> BookieId | None:
        ensemble = fragment.ensemble
        if absent is None:
            ensemble = (*ensemble, BookieId("absent"))
        position = len(ensemble) - 1 if absent is None else ensemble.index(absent)
        quorum = ledger.metadata.quorum.with_members(len(ensemble))
        chosen = self._world.bookies.replacements(quorum, ensemble, frozenset({position}))
        return None if isinstance(chosen, Shortage) else chosen[position]

    def _end(self, machine: int, copy: Copy) -> None:
        """Count a copy that is complete, and continue with the ledger."""
        ledger, world = copy.ledger, self._world
        fragment = self._fragment(ledger, copy.first_entry_id)
        if fragment is not None and _may_swap(fragment, copy, world.configuration.replica_count):
            world.alter(ledger, partial(self._swap, copy))
            world.measures.copied(world.now, copy.entries)
            world.measures.repaired_entries += copy.entries
        del self._worker_of[ledger.number]
        self._begin(ledger, machine)
        self._assign()

    def _swap(self, copy: Copy) -> None:
        metadata = copy.ledger.metadata
        index = metadata.fragment_index_of(copy.first_entry_id)
        old = metadata.fragments[index]
        kept = tuple(copy.target if bookie == copy.absent else bookie for bookie in old.ensemble)
        ensemble = kept if copy.absent is not None else (*kept, copy.target)
        new = metadata.with_fragment(index, replace(old, ensemble=ensemble), TOKEN)
        self._world.store(copy.ledger, new)

    # -- needs -----------------------------------------------------------------------------------

    def _needs(self, ledger: Ledger) -> tuple[int, list[Need]]:
        """Return what a ledger needs and can get, and how urgent that is."""
        nothing: tuple[int, list[Need]] = RepairClass.LOST, []
        if ledger.is_deleted or not (self._gone or self._urgent or self._may_be_short(ledger)):
            return nothing
        metadata = ledger.metadata
        known = Standings(dict.fromkeys(self._gone, Standing.GONE))
        absent = known.with_gone(self._urgent) if self._urgent else None
        urgency, standings = class_with_absent(holders_of(metadata), metadata.quorum, known, absent)
        if urgency is None:
            return nothing
        return urgency, [need for need in needs_of(metadata, standings) if not need.is_lost]

    def _may_be_short(self, ledger: Ledger) -> bool:
        wanted = self._world.configuration.replica_count
        return any(len(fragment.ensemble) < wanted for fragment in ledger.metadata.fragments)

    def _entries(self, ledger: Ledger, need: Need) -> int:
        """Return the number of entries of the fragment that needs a copy."""
        return next(
            end - first
            for _, first, end in ledger.ranges(self._world.now)
            if first == need.first_entry_id
        )

    def _fragment(self, ledger: Ledger, first_entry_id: EntryId) -> Fragment | None:
        """Return the fragment that begins at an entry, if the ledger still has it."""
        if ledger.is_deleted:
            return None
        fragment = ledger.metadata.fragment_of(first_entry_id)
        return fragment if fragment.first_entry_id == first_entry_id else None


def _may_swap(fragment: Fragment, copy: Copy, wanted: int) -> bool:
    if copy.target in fragment.ensemble:
        return False
    if copy.absent is None:
        return len(fragment.ensemble) < wanted
    return copy.absent in fragment.ensemble

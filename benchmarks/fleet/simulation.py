"""Simulation of one history of faults on one fleet under one configuration.

Leaves the reactions to `appending`, `recovering`, `copying` and `repairing`.

Invariants: the same configuration, assumptions and seed give the same measures; the faults are
those of `history`, whatever the configuration.
"""

from functools import partial

from benchmarks.fleet.appending import Appending
from benchmarks.fleet.assumptions import HOUR_S, Assumptions
from benchmarks.fleet.bookies import Silence
from benchmarks.fleet.configurations import Configuration
from benchmarks.fleet.history import Fault, FaultKind, draw_history
from benchmarks.fleet.ledgers import Hold
from benchmarks.fleet.recovering import Recovering
from benchmarks.fleet.world import World
from metadata.ids import BookieId


class Simulation:
    """One run; `world` holds its results."""

    def __init__(
        self,
        configuration: Configuration,
        assumptions: Assumptions,
        seed: int,
        history: list[Fault] | None = None,
    ) -> None:
        self.world = World(configuration, assumptions, seed)
        self._appending = Appending(self.world)
        self._recovering = Recovering(self.world, self._appending)
        self._outage_count = 0  # of ZooKeeper, under way
        self._plan_seats()
        for fault in draw_history(assumptions, seed) if history is None else history:
            self.world.agenda.at(fault.at_s, partial(self._begin_fault, fault))

    def run(self) -> World:
        """Run to the end of the measured time."""
        world, end_s = self.world, self.world.assumptions.end_s
        world.agenda.run_until(end_s)
        for seat in world.seats:
            if seat.stopped_s is not None:
                world.measures.outage(seat, seat.stopped_s, end_s)
            if seat.undecided_s is not None:
                world.measures.undecided(seat.undecided_s, end_s)
            if seat.slow_since_s is not None:
                world.measures.slow(seat.slow_since_s, end_s)
        kept = {id(copy): copy for held in world.held_by.values() for copy in held.values()}
        for ledger in kept.values():
            world.existing.before(ledger, end_s)
            world.readable.before(ledger, end_s)
            world.measures.stored(ledger, end_s)
        return world

    def _plan_seats(self) -> None:
        """Spread the starts of ledgers evenly over one ledger's life, so that they do not all end
        at once.
        """
        assumptions, begin_s = self.world.assumptions, self.world.now
        interval_s = assumptions.ledger_hours * HOUR_S / assumptions.ledgers
        for number in range(assumptions.ledgers):
            action = partial(self._appending.take_seat, number, number % assumptions.clients)
            self.world.agenda.at(begin_s + number * interval_s, action)

    # -- faults ----------------------------------------------------------------------------------

    def _begin_fault(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CRASH | FaultKind.PAUSE:
                self._silence([fault.subject], fault)
            case FaultKind.RACK:
                racks, count = self.world.assumptions.racks, self.world.assumptions.bookies
                self._silence(list(range(fault.subject, count, racks)), fault)
            case FaultKind.DISK_LOSS:
                self._lose_disk(fault)
            case FaultKind.SLOW:
                self._change_pace(fault.subject, 1)
                self.world.agenda.at(fault.end_s, partial(self._change_pace, fault.subject, -1))
            case FaultKind.ZOOKEEPER:
                self._outage_count += 1
                self.world.metadata_store.is_up = False
                self.world.agenda.at(fault.end_s, self._end_outage)
            case FaultKind.CLIENT_CRASH:
                self._recovering.client_died(fault.subject)

    def _silence(self, machines: list[int], fault: Fault) -> None:
        # All become silent before any detection, and come back one after the other.
        fallen: list[tuple[BookieId, Silence]] = []
        self._settle_reads()
        for machine in machines:
            silence = Silence(keeps_what_was_sent=fault.kind is FaultKind.PAUSE)
            bookie_id = self.world.bookies.begin_silence(machine, silence)
            if bookie_id is not None:
                fallen.append((bookie_id, silence))
            self.world.agenda.at(fault.end_s, partial(self._end_silence, machine))
        for bookie_id, silence in fallen:
            self._appending.fell_silent(bookie_id, silence)
            self._appending.repairing.fell_silent(bookie_id, silence)
        for bookie_id, _ in fallen:
            self._judge_reads(bookie_id)

    def _end_silence(self, machine: int) -> None:
        world = self.world
        self._settle_reads()
        back = world.bookies.end_silence(machine)
        is_suspect = back is not None and back[1].keeps_what_was_sent
        if is_suspect:
            world.agenda.after(world.assumptions.quarantine_s, partial(self._offer, machine))
        else:
            world.bookies.offer(machine)  # a new bookie, if its disk was lost
        if back is not None:
            bookie_id, silence = back
            self._appending.repairing.came_back(bookie_id)
            self._judge_reads(bookie_id)
            self._appending.came_back(bookie_id, silence)
        self._appending.retry()
        self._recovering.retry()
        self._appending.repairing.retry()

    def _offer(self, machine: int) -> None:
        self.world.bookies.offer(machine)
        self._appending.retry()
        self._appending.repairing.retry()

    def _lose_disk(self, fault: Fault) -> None:
        world = self.world
        bookie_id = world.bookies.on_machine[fault.subject]
        held = list(world.held_by.get(bookie_id, {}).values())
        for ledger in held:
            world.existing.before(ledger, world.now)
        world.bookies.lost[bookie_id] = None
        for ledger in held:
            world.existing.after(ledger, world.now)
        self._silence([fault.subject], fault)
        if world.configuration.is_fixed:
            delay_s = world.assumptions.operator_hours * HOUR_S
            world.agenda.after(delay_s, partial(self._replace_by_hand, bookie_id))

    def _replace_by_hand(self, bookie_id: BookieId) -> None:
        seats = list(self.world.written_by.get(bookie_id, {}).values())
        if not self.world.metadata_store.is_up:
            delay_s = self.world.assumptions.zookeeper_outage_s
            self.world.agenda.after(delay_s, partial(self._replace_by_hand, bookie_id))
            return
        for seat in seats:
            if seat.hold is Hold.NONE:
                self._appending.replace_by_hand(seat, bookie_id)

    def _end_outage(self) -> None:
        self._outage_count -= 1
        if not self._outage_count:
            self.world.metadata_store.is_up = True
            self._appending.retry()
            self._recovering.retry()

    def _change_pace(self, machine: int, difference: int) -> None:
        bookie_id = self.world.bookies.change_slowness(machine, difference)
        if bookie_id is not None:
            for seat in list(self.world.written_by.get(bookie_id, {}).values()):
                self._appending.judge_pace(seat)

    def _settle_reads(self) -> None:
        """Count what could not be read until now, before the set of responding bookies changes."""
        for ledger in self.world.readable.deviating():
            self.world.readable.before(ledger, self.world.now)

    def _judge_reads(self, bookie_id: BookieId) -> None:
        """Find ledgers with entries that have no copy on a responding bookie, after a bookie's
        state changed.
        """
        world = self.world
        are_several_away = len(world.bookies.silent) > 1
        for ledger in list(world.held_by.get(bookie_id, {}).values()):
            if are_several_away or ledger.gaps or world.readable.has(ledger):
                world.readable.after(ledger, world.now)

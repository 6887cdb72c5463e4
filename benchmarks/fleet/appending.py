"""Model of the writers: members fail, the ensemble changes, appends stop and continue.

Leaves decisions about failed members to the product's `Membership` and `EnsembleHealth`, the
choice of bookies to its placement policy, copies to `copying` and `repairing`, and dead writers to
`recovering`.

Invariants: a seat appends exactly when its ledger is open, the seat is not on hold, and an ack
quorum of its fragment's members responds; a change begins a fragment at LAC + 1 (5.1), nothing is
confirmed while it is under way (5.2), and without ZooKeeper it waits.

Source: protocol rules 4.5, 5.1-5.7, 11.1-11.4.
"""

from functools import partial

from benchmarks.fleet.assumptions import HOUR_S
from benchmarks.fleet.bookies import Silence
from benchmarks.fleet.copying import Copying
from benchmarks.fleet.gaps import Gaps
from benchmarks.fleet.ledgers import TOKEN, Hold, Ledger, Seat, new_ledger
from benchmarks.fleet.repairing import Repairing
from benchmarks.fleet.world import World
from ledger_client.bookies.placement_policy import Shortage
from ledger_client.protocol.append_events import FailureKind
from ledger_client.protocol.ensemble import EnsembleHealth
from ledger_client.protocol.membership import Replace, Shrink
from metadata.ids import BookieId, EntryId


class FleetTooSmallError(Exception):
    """The fleet has fewer bookies than an ensemble needs."""


class Appending:
    """The writers of all seats."""

    def __init__(self, world: World) -> None:
        self.copying = Copying(world, self._caught_up)
        self.repairing = Repairing(world)
        self._world = world
        self._gaps = Gaps(world, self.copying)
        self._membership = world.configuration.membership
        self._waiting: dict[int, Seat] = {}
        """Seats that wait for ZooKeeper or for more bookies."""
        self._away: dict[BookieId, dict[int, Seat]] = {}
        """In-sync mode: seats whose ledgers a bookie left, and to which it may return."""

    # -- bookies ---------------------------------------------------------------------------------

    def fell_silent(self, bookie_id: BookieId, silence: Silence) -> None:
        """Continue without the responses of a bookie where possible."""
        for seat in list(self._world.written_by.get(bookie_id, {}).values()):
            self.judge(seat)
            if seat.ledger.running_since is not None:
                self._gaps.begin(seat.ledger, bookie_id)
        assumptions = self._world.assumptions
        is_pause = silence.keeps_what_was_sent
        delay_s = assumptions.detect_pause_s if is_pause else assumptions.detect_crash_s
        self._world.agenda.after(delay_s, partial(self._detect, bookie_id, silence))

    def _detect(self, bookie_id: BookieId, silence: Silence) -> None:
        if self._world.bookies.silent.get(bookie_id) is not silence:
            return  # it is back already, or a worse fault is detected separately
        self._world.bookies.withdraw(bookie_id)
        for seat in list(self._world.written_by.get(bookie_id, {}).values()):
            if seat.hold is Hold.NONE and self._fail(seat, bookie_id, silence):
                self._decide(seat)

    def _fail(self, seat: Seat, bookie_id: BookieId, silence: Silence) -> bool:
        if not silence.keeps_what_was_sent:
            seat.health.fail(bookie_id, FailureKind.GONE, "connection refused")
        elif self._membership.may_suspect(bookie_id, _in_sync(seat), has_spare=True):
            seat.health.fail(bookie_id, FailureKind.SUSPECTED, "silent")
        return seat.health.has_failed

    def came_back(self, bookie_id: BookieId, silence: Silence) -> None:
        """Use a bookie that responds again; entries that it lacks arrive, or are copied to it."""
        for seat in list(self._world.written_by.get(bookie_id, {}).values()):
            if seat.hold is not Hold.CHANGING:  # a change that has begun is not abandoned (1.3)
                seat.health.forgive(bookie_id)
            self._decide_again(seat)
            self.judge(seat)
        self._gaps.end_with_silence(bookie_id, silence)

    def retry(self) -> None:
        """Continue the seats that waited for ZooKeeper or for bookies."""
        if not self._world.metadata_store.is_up:
            return
        waiting, self._waiting = self._waiting, {}
        for seat in waiting.values():
            if seat.hold is Hold.NO_LEDGER:
                self.open_ledger(seat)
            elif seat.hold is Hold.CHANGING:
                seat.hold = Hold.NONE
                self._decide(seat)
                self._revisit(seat)
            elif seat.hold is Hold.NONE and seat.roll_is_due:
                self.roll(seat, seat.ledger)
        for bookie_id in [bookie for bookie in self._away if self._world.bookies.answers(bookie)]:
            for seat in self._away.pop(bookie_id).values():
                rejoin = partial(self._rejoin, seat, seat.ledger, bookie_id)
                self._world.agenda.after(self._world.assumptions.rejoin_s, rejoin)

    # -- ensemble changes ------------------------------------------------------------------------

    def _decide(self, seat: Seat) -> None:
        """Apply the product's decision about the failed members."""
        ensemble = seat.ensemble
        decision = self._membership.decide(ensemble, _in_sync(seat), seat.health)
        if not isinstance(decision, Replace | Shrink):
            seat.health.park_all()
            self._plan_spare(seat)
            self.judge(seat)
            return
        if not self._world.metadata_store.is_up:
            seat.hold = Hold.CHANGING
            self._waiting[seat.number] = seat
            self.judge(seat)
            return
        if isinstance(decision, Shrink):
            for bookie in ensemble:
                if bookie not in decision.ensemble:
                    self._away.setdefault(bookie, {})[seat.number] = seat
            self.change(seat, decision.ensemble)
            self._plan_spare(seat)
            return
        chosen = self._world.bookies.replacements(
            seat.ledger.metadata.quorum, ensemble, frozenset(decision.positions)
        )
        if isinstance(chosen, Shortage):
            self._continue_without(seat)
            return
        self.change(seat, tuple(chosen.get(p, b) for p, b in enumerate(ensemble)))

    def _continue_without(self, seat: Seat) -> None:
        """Apply rule 5.5: clear the suspects; close the ledger if members are gone."""
        if seat.health.gone():
            self.close(seat)
            self.open_ledger(seat)
            return
        seat.health.park(seat.ensemble)
        self.judge(seat)

    def change(self, seat: Seat, ensemble: tuple[BookieId, ...]) -> None:
        """Begin a fragment with this ensemble at LAC + 1."""
        world, ledger = self._world, seat.ledger
        done_s = world.metadata_store.write() + world.assumptions.change_s
        self._stop(seat)
        if world.is_measuring:
            world.measures.change_count += 1
        metadata = ledger.metadata.with_ensemble_change(EntryId(ledger.base), ensemble, TOKEN)

        def apply() -> None:
            self._gaps.end_with_fragment(ledger)
            world.store(ledger, metadata)

        world.unseat(seat)
        world.alter(ledger, apply)
        world.seat_at(seat, ensemble)
        seat.health.keep_only(ensemble)
        self.repairing.look_at(ledger)
        self.judge(seat, done_s)
        self._revisit(seat)

    def replace_by_hand(self, seat: Seat, bookie_id: BookieId) -> None:
        """Replace a bookie that lost its disk, as an operator would."""
        ensemble = seat.ensemble
        position = ensemble.index(bookie_id)
        chosen = self._world.bookies.replacements(
            seat.ledger.metadata.quorum, ensemble, frozenset({position})
        )
        if not isinstance(chosen, Shortage):
            self.change(seat, tuple(chosen.get(p, b) for p, b in enumerate(ensemble)))

    def _revisit(self, seat: Seat) -> None:
        """Detect members that are silent already."""
        for bookie in seat.ensemble:
            silence = self._world.bookies.silent.get(bookie)
            if silence is None or seat.health.is_out(bookie) or seat.hold is not Hold.NONE:
                continue
            detect = partial(self._detect_late, seat, seat.ledger, bookie, silence)
            self._world.agenda.after(self._world.assumptions.detect_crash_s, detect)

    def _detect_late(
        self, seat: Seat, ledger: Ledger, bookie_id: BookieId, silence: Silence
    ) -> None:
        is_silent = self._world.bookies.silent.get(bookie_id) is silence
        concerns = seat.ledger is ledger and bookie_id in seat.ensemble
        if not (is_silent and concerns) or seat.hold is not Hold.NONE:
            return
        if not seat.health.is_out(bookie_id) and self._fail(seat, bookie_id, silence):
            self._decide(seat)

    # -- in-sync mode ----------------------------------------------------------------------------

    def _plan_spare(self, seat: Seat) -> None:
        if self._world.configuration.quorum.is_in_sync:
            delay_s = self._world.assumptions.spare_after_s
            self._world.agenda.after(delay_s, partial(self._take_spare, seat, seat.ledger))

    def _take_spare(self, seat: Seat, ledger: Ledger) -> None:
        """Replace a member that left, or that could not leave, by a spare."""
        quorum, ensemble = self._world.configuration.quorum, seat.ensemble
        parked = [bookie for bookie in ensemble if bookie in seat.health.parked]
        is_full = len(ensemble) >= quorum.ensemble_size
        if seat.ledger is not ledger or ledger.closed_s is not None or (is_full and not parked):
            return
        if seat.hold is not Hold.NONE or not self._world.metadata_store.is_up:
            self._plan_spare(seat)
            return
        position = ensemble.index(parked[0]) if is_full else len(ensemble)
        places = ensemble if is_full else (*ensemble, BookieId("absent"))
        chosen = self._world.bookies.replacements(quorum, places, frozenset({position}))
        if isinstance(chosen, Shortage):
            self._plan_spare(seat)
            return
        self._take_in(seat, tuple(chosen.get(p, b) for p, b in enumerate(places)), position)

    def _rejoin(self, seat: Seat, ledger: Ledger, bookie_id: BookieId) -> None:
        """Add a member again that is back, if it is still missing."""
        is_full = len(seat.ensemble) >= self._world.configuration.replica_count
        is_other = seat.ledger is not ledger or ledger.closed_s is not None
        if is_other or is_full or bookie_id in seat.ensemble:
            return
        if seat.hold is Hold.NONE and self._world.metadata_store.is_up:
            self._take_in(seat, (*seat.ensemble, bookie_id), len(seat.ensemble))
        else:
            self._away.setdefault(bookie_id, {})[seat.number] = seat

    def _take_in(self, seat: Seat, ensemble: tuple[BookieId, ...], position: int) -> None:
        """Begin a fragment with one more member, which catches up (rule 11.2)."""
        self.change(seat, ensemble)
        self.copying.catch_up(seat.ledger, ensemble[position])
        self._plan_spare(seat)  # for the next free place, if there is one

    def _caught_up(self, ledger: Ledger, _bookie_id: BookieId) -> None:
        """Decide again: another member now holds every entry."""
        seat = self._world.seats[ledger.seat]
        if seat.ledger is ledger:
            self._decide_again(seat)

    def _decide_again(self, seat: Seat) -> None:
        """Remove failed members that were needed until now."""
        is_in_sync = self._world.configuration.quorum.is_in_sync
        if is_in_sync and seat.hold is Hold.NONE and seat.health.parked:
            seat.health.unpark_all()
            self._decide(seat)

    # -- running and stopping --------------------------------------------------------------------

    def judge(self, seat: Seat, from_s: float | None = None) -> None:
        """Stop a seat that cannot append; run one that can, from `from_s` on."""
        if not self._can_append(seat):
            self._stop(seat)
        elif seat.stopped_s is not None:
            world, ledger = self._world, seat.ledger
            begin_s = world.now if from_s is None else from_s
            world.measures.outage(seat, seat.stopped_s, begin_s)
            seat.stopped_s, ledger.running_since = None, begin_s
            for bookie in seat.ensemble:
                if not world.bookies.answers(bookie):
                    self._gaps.begin(ledger, bookie)
            if seat.roll_is_due:
                self.roll(seat, ledger)
        self.judge_pace(seat)

    def _can_append(self, seat: Seat) -> bool:
        if seat.hold is not Hold.NONE or seat.ledger.closed_s is not None:
            return False
        metadata, answers = seat.ledger.metadata, self._world.bookies.answers
        quorum = metadata.quorum_of(metadata.last_fragment)
        return sum(map(answers, seat.ensemble)) >= quorum.ack_quorum

    def _stop(self, seat: Seat) -> None:
        if seat.stopped_s is None:
            seat.ledger.stop(self._world.now)
            seat.stopped_s = self._world.now

    def judge_pace(self, seat: Seat) -> None:
        """Record whether appends wait for a slow bookie."""
        slow = self._world.bookies.slow
        if not slow and seat.slow_since_s is None:
            return
        metadata = seat.ledger.metadata
        quorum = metadata.quorum_of(metadata.last_fragment)
        prompt = sum(self._world.bookies.is_prompt(bookie) for bookie in seat.ensemble)
        is_slow = seat.stopped_s is None and prompt < quorum.ack_quorum
        if is_slow and seat.slow_since_s is None:
            seat.slow_since_s = self._world.now
        elif not is_slow and seat.slow_since_s is not None:
            self._world.measures.slow(seat.slow_since_s, self._world.now)
            seat.slow_since_s = None

    # -- one ledger after another ----------------------------------------------------------------

    def roll(self, seat: Seat, ledger: Ledger) -> None:
        """Close a ledger that is old enough, and continue in a new one."""
        if seat.ledger is not ledger or ledger.closed_s is not None:
            return
        seat.roll_is_due = True
        if seat.stopped_s is not None or seat.hold is not Hold.NONE:
            return
        if not self._world.metadata_store.is_up:
            self._waiting[seat.number] = seat
            return
        self.close(seat)
        self.open_ledger(seat)

    def close(self, seat: Seat) -> None:
        """Close a seat's ledger at its LAC."""
        ledger, world = seat.ledger, self._world
        self._stop(seat)
        world.unseat(seat)
        last, length = EntryId(ledger.base - 1), ledger.base * world.assumptions.entry_bytes
        if seat.hold is Hold.RECOVERING:
            begun = ledger.metadata.with_recovery_begun(TOKEN)
            metadata = begun.with_recovered((), last, length, TOKEN)
        else:
            metadata = ledger.metadata.with_closed(last, length, TOKEN)

        def apply() -> None:
            self._gaps.end_with_fragment(ledger)
            ledger.closed_s = world.now
            world.store(ledger, metadata)

        world.alter(ledger, apply)
        world.delete_later(ledger)
        self.repairing.look_at(ledger)

    def open_ledger(self, seat: Seat, from_s: float | None = None) -> None:
        """Open a seat's next ledger once enough bookies and ZooKeeper are up."""
        world, quorum = self._world, self._world.configuration.quorum
        ensemble = world.bookies.new_ensemble(quorum) if world.metadata_store.is_up else None
        if ensemble is None or isinstance(ensemble, Shortage):
            seat.hold = Hold.NO_LEDGER
            self._waiting[seat.number] = seat
            return
        seat.hold, seat.roll_is_due = Hold.NONE, False
        seat.health = EnsembleHealth(quorum)
        self._begin(seat, self._next_ledger(seat.number, seat.client, ensemble), from_s)

    def take_seat(self, number: int, client: int) -> None:
        """Open the first ledger of a seat, before any failure. Raises FleetTooSmallError."""
        quorum = self._world.configuration.quorum
        ensemble = self._world.bookies.new_ensemble(quorum)
        if isinstance(ensemble, Shortage):
            needed = f"{ensemble.needed} bookies are needed, but the fleet has {ensemble.seen}"
            raise FleetTooSmallError(f"{self._world.configuration.name}: {needed}")
        ledger = self._next_ledger(number, client, ensemble)
        seat = Seat(number, client, ledger, EnsembleHealth(quorum), stopped_s=self._world.now)
        self._world.seats.append(seat)
        self._begin(seat, ledger, None)

    def _next_ledger(self, seat: int, client: int, ensemble: tuple[BookieId, ...]) -> Ledger:
        """Create the metadata of a seat's next ledger."""
        world, measures = self._world, self._world.measures
        metadata = new_ledger(
            measures.ledgers_created, world.configuration.quorum, ensemble, client
        )
        measures.ledgers_created += 1
        return Ledger(metadata, seat, world.now, world.assumptions.write_rate)

    def _begin(self, seat: Seat, ledger: Ledger, from_s: float | None) -> None:
        seat.ledger = ledger
        self._world.enter(ledger)
        self._world.seat_at(seat, seat.ensemble)
        life_s = self._world.assumptions.ledger_hours * HOUR_S
        self._world.agenda.after(life_s, partial(self.roll, seat, ledger))
        self.judge(seat, from_s)
        self._revisit(seat)


def _in_sync(seat: Seat) -> tuple[BookieId, ...]:
    members = seat.ledger.metadata.in_sync_members
    return tuple(b for b in members if not seat.health.is_out(b))

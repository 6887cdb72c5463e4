"""Model of dead writers: another process recovers their ledgers and continues in new ones.

Leaves to the product's `covers` whether a recovery can decide the end of a ledger. Leaves closing
and opening ledgers to `appending`.

Invariants: a dead writer's seat appends nothing until its ledger is closed; a recovery without
coverage waits, and is abandoned only if no return of a bookie could give coverage.

Source: protocol rules 3.2, 7.1-7.5, 9.2, 11.5.
"""

from collections.abc import Callable
from functools import partial

from benchmarks.fleet.appending import Appending
from benchmarks.fleet.assumptions import HOUR_S
from benchmarks.fleet.ledgers import Hold, Ledger, Seat
from benchmarks.fleet.world import World
from metadata.ids import BookieId
from metadata.ledgers.copies import covers

RECOVERY_WRITES = 3
"""Metadata writes of a takeover: recovery begun, ledger closed, next ledger created."""


class Recovering:
    """Dead writers, and the processes that take over."""

    def __init__(self, world: World, appending: Appending) -> None:
        self._world = world
        self._appending = appending
        self._undecided: dict[int, Seat] = {}
        self._unattended: dict[int, Seat] = {}

    def client_died(self, client: int) -> None:
        """Begin the takeover of all ledgers of a dead process."""
        delay_s = self._world.assumptions.takeover_s
        for seat in self._world.seats:
            if seat.client == client and seat.hold in (Hold.NONE, Hold.CHANGING):
                seat.hold = Hold.RECOVERING
                self._appending.judge(seat)
                self._world.agenda.after(delay_s, partial(self._recover, seat, seat.ledger))

    def retry(self) -> None:
        """Retry recoveries that waited for ZooKeeper or a bookie."""
        unattended, self._unattended = self._unattended, {}
        for seat in (*unattended.values(), *list(self._undecided.values())):
            self._recover(seat, seat.ledger)

    def _recover(self, seat: Seat, ledger: Ledger) -> None:
        if seat.ledger is not ledger or seat.hold is not Hold.RECOVERING:
            return
        if not self._world.metadata_store.is_up:
            self._unattended[seat.number] = seat
            return
        if not self._is_covered(seat, self._world.bookies.answers):
            self._wait(seat)
            return
        self._finish(seat)

    def _is_covered(self, seat: Seat, is_known: Callable[[BookieId], bool]) -> bool:
        metadata = seat.ledger.metadata
        quorum = metadata.quorum_of(metadata.last_fragment)
        return covers(quorum, [p for p, bookie in enumerate(seat.ensemble) if is_known(bookie)])

    def _wait(self, seat: Seat) -> None:
        if seat.undecided_s is None:
            seat.undecided_s = self._world.now
            self._world.measures.undecided_count += 1
            self._undecided[seat.number] = seat
            delay_s = self._world.assumptions.give_up_hours * HOUR_S
            self._world.agenda.after(delay_s, partial(self._abandon, seat, seat.ledger))

    def _abandon(self, seat: Seat, ledger: Ledger) -> None:
        if seat.ledger is not ledger or seat.undecided_s is None:
            return
        if self._is_covered(seat, self._world.bookies.is_intact) or (
            not self._world.metadata_store.is_up
        ):
            delay_s = self._world.assumptions.give_up_hours * HOUR_S
            self._world.agenda.after(delay_s, partial(self._abandon, seat, ledger))
            return
        self._world.measures.given_up_count += 1
        self._finish(seat)

    def _finish(self, seat: Seat) -> None:
        world = self._world
        if seat.undecided_s is not None:
            world.measures.undecided(seat.undecided_s, world.now)
            seat.undecided_s = None
            self._undecided.pop(seat.number, None)
        world.measures.recovery_count += 1
        done_s = world.metadata_store.write(RECOVERY_WRITES) + world.assumptions.recovery_s
        self._appending.close(seat)
        self._appending.open_ledger(seat, done_s)

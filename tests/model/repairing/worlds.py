"""Worlds of one scope of repair, for `tests.model.search`.

Leaves the steps to `worker_steps` and `other_steps`, and the rules to `rules`.
"""

from collections.abc import Iterator

from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.repair.lifecycle import Lifecycle
from tests.model.labels import Label
from tests.model.repairing import rules
from tests.model.repairing.other_steps import OtherSteps
from tests.model.repairing.words import Bookie, RepairScope, RepairWorld, Stored, mask_of
from tests.model.repairing.worker_steps import Step, WorkerSteps
from tests.model.words import NAMES


class RepairWorlds:
    """Start, steps and checks of a scope."""

    def __init__(self, scope: RepairScope) -> None:
        self._workers = WorkerSteps()
        self._others = OtherSteps(scope)
        self.label = Label("")
        self.start = _start(scope)

    def after(self, world: RepairWorld) -> Iterator[Step]:
        """Take every possible step of a world."""
        for steps in (self._workers.after(world), self._others.after(world)):
            for label, following in steps:
                self.label = label
                if following != world:
                    yield label, following

    def check(self, world: RepairWorld) -> None:
        """Raise ViolationError unless the rules are true in a world."""
        rules.check_world(world)

    def check_rest(self, world: RepairWorld) -> None:
        """Raise ViolationError unless everything that can be repaired is."""
        self.label = Label("then nothing more happens")
        rules.check_rest(world)

    def show(self, world: RepairWorld) -> str:
        """Format a world as one line."""
        return (
            f"{_shown(world.ledger)} | {' '.join(map(_shown_bookie, world.bookies, world.states))}"
        )


def _start(scope: RepairScope) -> RepairWorld:
    members = NAMES[: scope.quorum.ensemble_size]
    fragments = [Fragment(EntryId(0), members)]
    last = -1 if scope.is_empty else scope.entries - 1
    if scope.is_open:
        fragments.append(Fragment(EntryId(scope.entries), members))
    state = LedgerState.OPEN if scope.is_open else LedgerState.CLOSED
    stored = Stored(scope.quorum, state, tuple(fragments), None if scope.is_open else last)
    bookies = [Bookie(0) for _ in range(scope.bookies)]
    for position, _ in enumerate(members):
        held = sum(
            mask_of(number, number)
            for number in range(last + 1)
            if (position - number) % scope.quorum.ensemble_size < scope.quorum.write_quorum
        )
        bookies[position] = Bookie(held)
    return RepairWorld(
        stored=stored,
        bookies=tuple(bookies),
        states=(Lifecycle.ACTIVE,) * scope.bookies,
        workers=(None,) * scope.workers,
        passed=0,
        proven=0,
        budget=scope.budget,
    )


def _shown(stored: LedgerMetadata | None) -> str:
    if stored is None:
        return "deleted"
    parts = [
        f"{f.first_entry_id}:{','.join(f.ensemble)}{''.join(f'+{b}' for b in f.incoming)}"
        for f in stored.fragments
    ]
    return f"{stored.state} {' '.join(parts)}"


def _shown_bookie(bookie: Bookie, state: Lifecycle) -> str:
    held = "".join(str(e) for e in range(8) if bookie.held >> e & 1) or "-"
    marks = "X" if bookie.is_dead else "" if bookie.is_up else "down"
    away = "" if bookie.is_registered or bookie.is_dead else "away"
    return f"{held}{marks}{away}/{state}"

"""Steps of the workers: one need after the other, each in the order mark, copy, read back, swap.

Leaves what a ledger needs to `quire.repair.needs`, and what a change stores to
`ledger_client.protocol.copy`: both are the production code. The order of the steps is that of
`ledger_client.copying` and `quire.repair.ledger_repair`, which this module repeats. Claims
keep two workers from one ledger, but no rule depends on them: here they work on it at once.

Source: protocol rules 9.1, 9.6 and 9.7.
"""

from collections.abc import Iterator

from ledger_client.protocol.copy import CopyPlan, CopyState, IncomingMark, is_mark_unbroken
from metadata.ids import Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from quire.repair.needs import RepairClass, class_of, holders_of, needs_of
from tests.model.labels import Label
from tests.model.repairing.rules import check_change
from tests.model.repairing.words import (
    CHANGES_MAX,
    TOKEN,
    RepairWorld,
    Worker,
    number_of,
    stored_as,
)
from tests.model.repairing.worker_choices import (
    accepts,
    copy_target,
    is_possible,
    readable,
    standings_from,
    stored_standings,
    wanted,
)

Step = tuple[Label, RepairWorld]
ONE_LOOK = Version(1)


def spent(world: RepairWorld, fault: int) -> tuple[int, ...]:
    """Return the budget without one fault."""
    left = world.budget
    return (*left[:fault], left[fault] - 1, *left[fault + 1 :])


def with_worker(world: RepairWorld, number: int, worker: Worker | None) -> RepairWorld:
    """Return the world with another state of a worker."""
    workers = world.workers
    return world._replace(workers=(*workers[:number], worker, *workers[number + 1 :]))


def with_ledger(
    world: RepairWorld, ledger: LedgerMetadata | None, by: int | None = None
) -> RepairWorld:
    """Store the ledger's metadata, and count the change for every worker but the one that did it.

    Raises ViolationError if the change breaks a rule.
    """
    workers = tuple(
        worker
        if worker is None or number == by
        else worker._replace(changes=min(CHANGES_MAX, worker.changes + 1))
        for number, worker in enumerate(world.workers)
    )
    after = world._replace(stored=stored_as(ledger), workers=workers)
    check_change(world, after)
    return after


class WorkerSteps:
    """Steps of every worker."""

    def after(self, world: RepairWorld) -> Iterator[Step]:
        """Take every step that is possible."""
        for number, worker in enumerate(world.workers):
            if worker is None:
                yield from self._begin(world, number)
                continue
            yield from self._go_on(world, number, worker)
            if world.budget[3]:
                dead = with_worker(world, number, None)._replace(budget=spent(world, 3))
                yield Label("worker {} is killed", (number,), is_fault=True), dead
            if worker.phase in ("copy", "name") and world.budget[4]:
                after = with_worker(world, number, worker._replace(phase="unmark"))
                after = after._replace(budget=spent(world, 4))
                yield Label("worker {} gives the copy up", (number,), is_fault=True), after

    def _begin(self, world: RepairWorld, number: int) -> Iterator[Step]:
        """Take the job, if the ledger needs something that can be done."""
        ledger = world.ledger
        if ledger is None:
            return
        found = stored_standings(world)
        for needs_registered in (False, True):
            standings = standings_from(found, world, needs_registered=needs_registered)
            urgency = class_of(holders_of(ledger), ledger.quorum, standings)
            if needs_registered and urgency is not RepairClass.LAST_COPY:
                continue
            needs = needs_of(ledger, standings)
            has_marks = any(fragment.incoming for fragment in ledger.fragments)
            if needs:
                plan = copy_target(world, needs[0], standings)
                if plan is None or not is_possible(world, plan):
                    continue
            elif not has_marks:
                continue
            worker = Worker(found, needs_registered, "next")
            label = Label("worker {} begins{}", (number, ", urgent" * needs_registered))
            yield label, with_worker(world, number, worker)

    def _go_on(self, world: RepairWorld, number: int, worker: Worker) -> Iterator[Step]:
        match worker.phase:
            case "next":
                yield self._next(world, number, worker)
            case "mark":
                yield self._mark(world, number, worker)
            case "copy":
                yield from self._copy(world, number, worker)
            case "name":
                yield self._name(world, number, worker)
            case "check":
                yield self._check(world, number, worker)
            case "swap":
                yield self._swap(world, number, worker)
            case "unmark":
                yield self._unmark(world, number, worker)
            case _:
                yield self._clean(world, number, worker)

    def _next(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        """Read the metadata; plan the copy for the first need."""
        ledger = world.ledger
        if ledger is None:
            return Label("worker {} ends: deleted", (number,)), with_worker(world, number, None)
        standings = standings_from(
            worker.standings, world, needs_registered=worker.needs_registered
        )
        needs = needs_of(ledger, standings)
        if not needs:
            is_closed = ledger.state is LedgerState.CLOSED
            cleaner = worker._replace(phase="clean", changes=0, plan=None) if is_closed else None
            return Label("worker {} needs nothing more", (number,)), with_worker(
                world, number, cleaner
            )
        plan = copy_target(world, needs[0], standings)
        if plan is None or not is_possible(world, plan):
            return Label("worker {} is blocked", (number,)), with_worker(world, number, None)
        label = Label("worker {} plans to copy to {}", (number, plan.target))
        return label, with_worker(
            world, number, worker._replace(phase="mark", plan=plan, copied=0, changes=0)
        )

    def _mark(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        plan, ledger = _plan(worker), world.ledger
        standing = None if ledger is None else plan.standing(ledger)
        if ledger is None or standing in (CopyState.GONE, CopyState.CHANGED):
            return self._fails(world, number, worker, "cannot mark")
        if standing is CopyState.NAMED:
            return Label("worker {} finds it named", (number,)), with_worker(
                world, number, worker._replace(phase="next", plan=None)
            )
        copier = worker._replace(phase="copy", copied=0, changes=0)
        if standing is CopyState.MARKED:
            return Label("worker {} finds {} marked", (number, plan.target)), with_worker(
                world, number, copier
            )
        after = with_ledger(world, plan.marked(ledger, TOKEN), number)
        label = Label("worker {} marks {}", (number, plan.target))
        return label, with_worker(after, number, copier)

    def _copy(self, world: RepairWorld, number: int, worker: Worker) -> Iterator[Step]:
        """Copy the next entry, and read it back."""
        plan = _plan(worker)
        left = wanted(plan) & ~worker.copied
        if not left:
            label = Label("worker {} has copied all", (number,))
            yield label, with_worker(world, number, worker._replace(phase="name"))
            return
        target = number_of(plan.target)
        if world.bookies[target].is_releasing and accepts(world, plan.target):
            return  # the add waits
        if not is_possible(world, plan, worker.copied):
            yield self._fails(world, number, worker, "cannot copy")
            return
        entry = left & -left
        assert readable(world, plan) & entry
        bookies = world.bookies
        stored = bookies[target]._replace(held=bookies[target].held | entry)
        after = world._replace(bookies=(*bookies[:target], stored, *bookies[target + 1 :]))
        label = Label("worker {} copies entry {}", (number, entry.bit_length() - 1))
        yield (
            label,
            with_worker(after, number, worker._replace(copied=worker.copied | entry)),
        )

    def _name(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        """Look at the mark again, unless nothing has changed since."""
        plan, ledger = _plan(worker), world.ledger
        standing = None if ledger is None else plan.standing(ledger)
        if ledger is not None and standing is CopyState.NAMED:
            return Label("worker {} finds it named", (number,)), with_worker(
                world, number, worker._replace(phase="next", plan=None)
            )
        if ledger is None or standing is not CopyState.MARKED:
            return self._fails(world, number, worker, "cannot swap")
        now = Version(ONE_LOOK + worker.changes)
        phase = "check" if is_mark_unbroken(ONE_LOOK, ledger, now) else "copy"
        copied = worker.copied if phase == "check" else 0
        label = Label("worker {} looks at the mark: {}", (number, phase))
        return label, with_worker(
            world, number, worker._replace(phase=phase, copied=copied, changes=0)
        )

    def _check(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        """Read the target's state, after the look at the mark."""
        target = _plan(worker).target
        if not world.states[number_of(target)].may_store:
            return self._fails(world, number, worker, f"reads that {target} may not store")
        label = Label("worker {} reads that {} may store", (number, target))
        return label, with_worker(world, number, worker._replace(phase="swap"))

    def _swap(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        """Store the target as a member by compare-and-set, on the version that was looked at."""
        plan, ledger = _plan(worker), world.ledger
        if worker.changes or ledger is None:
            label = Label("worker {} meets a conflict", (number,))
            return label, with_worker(world, number, worker._replace(phase="name"))
        after = with_ledger(world, plan.named(ledger, TOKEN), number)
        label = Label("worker {} makes {} a member", (number, plan.target))
        return label, with_worker(after, number, worker._replace(phase="next", plan=None))

    def _unmark(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        """Remove the mark, and end."""
        plan = _plan(worker)
        changed = None if world.ledger is None else plan.unmarked(world.ledger, TOKEN)
        after = world if changed is None else with_ledger(world, changed, number)
        return Label("worker {} removes its mark", (number,)), with_worker(after, number, None)

    def _clean(self, world: RepairWorld, number: int, worker: Worker) -> Step:
        """Remove one mark that is left, unless the metadata changed since they were read."""
        ledger = world.ledger
        marks = () if ledger is None else _marks(ledger)
        if ledger is None or worker.changes or not marks:
            return Label("worker {} ends", (number,)), with_worker(world, number, None)
        changed = marks[0].removed(ledger, TOKEN)
        assert changed is not None
        label = Label("worker {} removes the mark of {}", (number, marks[0].target))
        return label, with_ledger(world, changed, number)

    def _fails(self, world: RepairWorld, number: int, worker: Worker, why: str) -> Step:
        label = Label("worker {} {}", (number, why))
        return label, with_worker(world, number, worker._replace(phase="unmark"))


def _plan(worker: Worker) -> CopyPlan:
    assert worker.plan is not None
    return worker.plan


def _marks(ledger: LedgerMetadata) -> tuple[IncomingMark, ...]:
    return tuple(
        IncomingMark(ledger.creation_token, fragment.first_entry_id, target)
        for fragment in ledger.fragments
        for target in fragment.incoming
    )

"""Seeded bugs of repair, as changes of production code or of the order of a worker's steps.

Leaves finding them to `tests.model.bugs`. Source: protocol rules 9.1, 9.5, 9.7, 9.8 and 10.1.
"""

from dataclasses import replace
from typing import Any

from ledger_client.protocol.copy import CopyPlan, CopyState
from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair import lifecycle
from metadata.repair.lifecycle import Lifecycle
from quire.repair import needs
from tests.model.labels import Label
from tests.model.patches import Patches
from tests.model.repairing import other_steps, worker_choices, worker_steps
from tests.model.repairing.worker_steps import WorkerSteps, with_worker


def the_swap_comes_before_the_copy(patches: Patches) -> None:
    original = WorkerSteps._copy

    def copy(self: Any, world: Any, number: int, worker: Any) -> Any:
        for label, _ in original(self, world, number, worker):
            yield label, with_worker(world, number, worker._replace(phase="name"))

    patches.set(WorkerSteps, "_copy", copy)


def a_mark_that_was_off_counts(patches: Patches) -> None:
    patches.set(worker_steps, "is_mark_unbroken", lambda *_: True)


def a_mark_protects_nothing(patches: Patches) -> None:
    def names(self: LedgerMetadata, bookie_id: Any) -> bool:
        return any(bookie_id in fragment.ensemble for fragment in self.fragments)

    patches.set(LedgerMetadata, "names", names)


def the_target_is_not_marked(patches: Patches) -> None:
    patches.set(CopyPlan, "marked", lambda _self, now, _token: now)
    original = CopyPlan.standing

    def standing(self: CopyPlan, now: LedgerMetadata) -> CopyState:
        found = original(self, now)
        return CopyState.MARKED if found is CopyState.UNMARKED else found

    patches.set(CopyPlan, "standing", standing)


def the_state_of_the_target_is_not_read(patches: Patches) -> None:
    def check(_self: Any, world: Any, number: int, worker: Any) -> Any:
        label = Label("worker {} reads no state", (number,))
        return label, with_worker(world, number, worker._replace(phase="swap"))

    patches.set(WorkerSteps, "_check", check)


def the_last_entry_is_not_copied(patches: Patches) -> None:
    original = worker_choices.wanted

    def wanted(plan: CopyPlan) -> int:
        last = plan.copies.last_entry_id
        return original(plan) & ~(1 << last if last is not None and last >= 0 else 0)

    patches.set(worker_steps, "wanted", wanted)


def an_empty_position_is_not_replaced(patches: Patches) -> None:
    original = needs.closed_fragments

    def closed_fragments(ledger: LedgerMetadata) -> Any:
        is_empty = ledger.last_entry_id is not None and ledger.last_entry_id < 0
        return () if is_empty else original(ledger)

    patches.set(needs, "closed_fragments", closed_fragments)


def a_draining_bookie_may_be_removed(patches: Patches) -> None:
    allowed = lifecycle._ALLOWED | {(Lifecycle.DRAINING, Lifecycle.REMOVED)}
    patches.set(lifecycle, "_ALLOWED", allowed)
    patches.set(other_steps.OtherSteps, "_names", lambda *_: False)


def a_swap_moves_the_end(patches: Patches) -> None:
    original = CopyPlan.named

    def named(self: CopyPlan, now: LedgerMetadata, token: Any) -> LedgerMetadata:
        changed = original(self, now, token)
        if changed.state is not LedgerState.CLOSED or not changed.length:
            return changed
        return replace(changed, last_entry_id=EntryId(-1), length=0)

    patches.set(CopyPlan, "named", named)

"""Holds the states of all ledgers, the ids of deleted ones, and who watches which LAC.

Leaves decisions to `bookie.ledger_state` and durability to `bookie.storage`.

Source: protocol rules 8.4, 10.2.
"""

import itertools
from collections.abc import Callable

from bookie import ledger_state
from bookie.ledger_state import LedgerState
from metadata.ids import NO_ENTRY, LedgerId


class Ledgers:
    """Every ledger that is held, fenced or deleted here."""

    def __init__(self) -> None:
        self.states: dict[int, LedgerState] = {}
        self.deleted: dict[int, bool] = {}
        """Deleted ids; True while runs of it are left in the index."""
        self.unsaved_deletions: dict[int, None] = {}
        self._watchers: dict[int, dict[int, Callable[[], None]]] = {}
        self._tokens = itertools.count()

    def get_or_make(self, ledger_id: LedgerId) -> LedgerState:
        """Return a ledger's state, a fresh one when it was never seen."""
        state = self.states.get(ledger_id)
        if state is None:
            state = self.states[ledger_id] = LedgerState(ledger_id)
        return state

    def delete(self, ledger_id: int, *, has_runs: bool) -> None:
        """Turn a ledger into a deleted id."""
        self.states.pop(ledger_id, None)
        self.deleted[ledger_id] = has_runs
        self.unsaved_deletions[ledger_id] = None

    def take_unsaved(self) -> list[int]:
        """List the ledgers whose stored state is out of date, and take them for saved: what changes
        from here on makes them unsaved again.
        """
        unsaved = [ledger_id for ledger_id, state in self.states.items() if state.is_dirty]
        for ledger_id in unsaved:
            self.states[ledger_id].is_dirty = False
        unsaved += self.unsaved_deletions
        self.unsaved_deletions.clear()
        return unsaved

    def encode(self, ledger_id: int, highest_moved: int) -> bytes | None:
        """Return a ledger's stored form, given the highest id that the running checkpoint moves."""
        if ledger_id in self.deleted:
            has_runs = self.deleted[ledger_id]
            return ledger_state.encode_deleted(LedgerId(ledger_id), has_runs=has_runs)
        state = self.states.get(ledger_id)
        return None if state is None else state.encode(max(state.indexed_highest, highest_moved))

    def unsave(self, ledger_ids: list[int]) -> None:
        """Take stored forms for out of date again: the checkpoint that was to write them failed."""
        for ledger_id in ledger_ids:
            if ledger_id in self.deleted:
                self.unsaved_deletions[ledger_id] = None
            elif (state := self.states.get(ledger_id)) is not None:
                state.is_dirty = True

    def note_indexed(self, moved: list[tuple[int, int]]) -> None:
        """Take note of the highest ids that a checkpoint moved to the index's store."""
        for ledger_id, highest in moved:
            state = self.states.get(ledger_id)
            if state is not None:
                state.indexed_highest = max(state.indexed_highest, highest)

    def indexed_highest_of(self, ledger_id: int) -> int:
        """Return the highest id that the index's store holds of a ledger."""
        state = self.states.get(ledger_id)
        return NO_ENTRY if state is None else state.indexed_highest

    def enter_limbo(self, *, fence: bool) -> None:
        """Take every ledger for one of which something was lost (rule 2.4)."""
        for state in self.states.values():
            state.limbo = state.is_dirty = True
            state.fenced = state.fenced or fence
            state.is_fence_durable = state.is_fence_durable or fence

    def watch(self, ledger_id: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for `notify`; return what removes it."""
        token = next(self._tokens)
        self._watchers.setdefault(ledger_id, {})[token] = callback

        def cancel() -> None:
            watchers = self._watchers.get(ledger_id)
            if watchers is not None:
                watchers.pop(token, None)
                if not watchers:
                    del self._watchers[ledger_id]

        return cancel

    def notify(self, ledger_id: int) -> None:
        """Call whoever watches a ledger."""
        watchers = self._watchers.get(ledger_id)
        if watchers:
            for callback in list(watchers.values()):
                callback()

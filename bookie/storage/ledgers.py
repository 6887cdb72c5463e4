"""Ledger states in memory, changes that are not stored yet, and LAC watches.

Leaves decisions to `bookie.index.replica_state`, durability to `bookie.storage.bookie_storage`, and
loading states from the index to `bookie.storage.cold_ledgers`.

A state is *hot* while it is in memory and *cold* while it is only in the index.
Invariants: a ledger has at most one `ReplicaState` at a time; a state is removed from memory only
when the index stores all of it and no request uses it; an id counts as never seen only if it is
above every id seen here, or if the index does not have it.

Source: protocol rules 8.4, 10.2-10.4.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from bookie.errors import DiskFailedError
from bookie.index import replica_state
from bookie.index.replica_state import ReplicaState, UnsavedLedgers
from metadata.ids import NO_ENTRY, LedgerId

RUNS_LEFT_MAX: Final = 100_000
"""Maximum number of deleted ledgers whose ids wait in memory for the removal of their runs; the
index has the rest of the list.
"""
NOTIFIED_AT_ONCE: Final = 1_000
"""Maximum number of watches of one ledger called in one iteration of the event loop."""
RECENT_TOMBSTONES_MAX: Final = 10_000
"""Maximum number of stored tombstones kept in memory, for writers that repeat their requests."""


def _none(_ledger_id: int) -> bool:
    return False


class Ledgers:
    """The ledgers in memory, and counts of all ledgers stored or deleted here."""

    def __init__(self, hot_max: int) -> None:
        """`hot_max`: approximate maximum number of unchanged states in memory."""
        self.states: dict[int, ReplicaState] = {}
        """States of the hot ledgers."""
        self.tombstones: dict[int, bool] = {}
        """Deleted ids that are not stored yet; True while runs of the ledger are in the index."""
        self.runs_left: dict[int, None] = {}
        """Deleted ids whose runs must be removed; incomplete if `has_more_runs_left`."""
        self.has_more_runs_left = False
        self.count = 0
        """Number of ledgers stored or fenced here, hot or cold."""
        self.tombstone_count = 0
        """Number of deleted ids, stored or not."""
        self.highest_id = -1
        """Highest ledger id ever seen here."""
        self.horizon = -1
        """Tombstones of ledgers up to this id may have been trimmed (rule 10.3)."""
        self.is_named_deleted: Callable[[int], bool] = _none
        """Whether the deletion feed names a ledger, as last read (rule 10.4)."""
        self.unsaved = UnsavedLedgers()
        self._saving: dict[int, None] = {}
        self._hot_max = hot_max
        self._clock: deque[int] = deque()
        """Queue for eviction: every hot id once, or more often if it was evicted and loaded
        again.
        """
        self._recent_tombstones: dict[int, None] = {}
        self._watchers: dict[int, dict[int, Callable[[], None]]] = {}
        """Watches by ledger and token. This is not a `metadata.callbacks.Callbacks`, which calls
        all of its callbacks at once. A ledger may have as many watches as there are long polls, and
        `notify` runs within an add: more than NOTIFIED_AT_ONCE calls would delay other requests. A
        call in a later iteration finds its watch by the token, and skips a cancelled one.
        """
        self._tokens = itertools.count()

    @property
    def unsaved_count(self) -> int:
        """Number of ledgers whose stored form is out of date."""
        return len(self.unsaved.ledger_ids)

    @property
    def changed_count(self) -> int:
        """Number of ledgers that `changed_ids` returns; a ledger that changed again counts
        twice.
        """
        return len(self.unsaved.ledger_ids) + len(self._saving)

    def changed_ids(self) -> Iterator[int]:
        """Return the ledgers whose state in the index may be missing or out of date."""
        return itertools.chain(self.unsaved.ledger_ids, self._saving)

    def is_cold(self, ledger_id: int) -> bool:
        """Return whether the state of a ledger must be read from the index."""
        return (
            ledger_id not in self.states
            and (ledger_id <= self.highest_id or self.is_named_deleted(ledger_id))
            and not self.is_deleted(ledger_id)
        )

    def may_be_deleted(self, ledger_id: int) -> bool:
        """Return whether a ledger without a state may be deleted although no tombstone says so:
        the tombstone was trimmed (rule 10.3), or the deletion came first (10.4).
        """
        return ledger_id <= self.horizon or self.is_named_deleted(ledger_id)

    def is_deleted(self, ledger_id: int) -> bool:
        """Return whether a ledger that is not cold was deleted."""
        return ledger_id in self.tombstones or ledger_id in self._recent_tombstones

    def get_or_make(self, ledger_id: LedgerId) -> ReplicaState:
        """Return the state of a ledger; create it for a new ledger. A cold ledger must have been
        looked up in the index before.
        """
        state = self.states.get(ledger_id)
        if state is None:
            state = ReplicaState(ledger_id, self.unsaved)
            state.touch()
            self._keep(ledger_id, state)
            self.count += 1
        return state

    def hold(self, ledger_id: int) -> ReplicaState | None:
        """Return the state of a ledger that is not cold, with its use counted."""
        state = self.states.get(ledger_id)
        if state is not None:
            state.use_count += 1
        return state

    def load(self, ledger_id: int, value: bytes | None) -> None:
        """Load the stored form of a cold ledger; None: the index has none. Raises DiskFailedError
        when it is damaged: the next start then determines the loss.
        """
        if value is None or not self.is_cold(ledger_id):
            return
        state = replica_state.decode(LedgerId(ledger_id), value, self.unsaved)
        if state is None:
            raise DiskFailedError("index", f"the state of ledger {ledger_id} is damaged")
        if isinstance(state, ReplicaState):
            self._keep(ledger_id, state)
            return
        while len(self._recent_tombstones) >= RECENT_TOMBSTONES_MAX:
            del self._recent_tombstones[next(iter(self._recent_tombstones))]
        self._recent_tombstones[ledger_id] = None

    def delete(self, ledger_id: int, *, has_runs: bool) -> None:
        """Turn a ledger, which must not be cold, into a deleted id."""
        state = self.states.pop(ledger_id, None)
        if state is not None:
            state.is_deleted = True
            self.count -= 1
        if not self.is_deleted(ledger_id):
            self.tombstone_count += 1
        self.highest_id = max(self.highest_id, ledger_id)
        self._add_tombstone(ledger_id, has_runs=has_runs)
        if has_runs:
            self.note_runs_left(ledger_id)

    def raise_horizon(self, ledger_id: int) -> None:
        """Record that tombstones up to an id may be missing from now on."""
        self.horizon = max(self.horizon, ledger_id)
        self.highest_id = max(self.highest_id, ledger_id)

    def note_runs_left(self, ledger_id: int) -> None:
        """Record that runs of a deleted ledger are in the index."""
        if len(self.runs_left) < RUNS_LEFT_MAX:
            self.runs_left[ledger_id] = None
        else:
            self.has_more_runs_left = True

    def note_runs_gone(self, ledger_id: int) -> None:
        """Record that the index has no more runs of a deleted ledger."""
        self.runs_left.pop(ledger_id, None)
        self._add_tombstone(ledger_id, has_runs=False)

    def take_unsaved(self) -> dict[int, None]:
        """Return the ledgers whose stored form is out of date, for a checkpoint. They stay in
        memory until `note_saved` or `mark_unsaved`. Changes from now on are unsaved again.
        """
        assert not self._saving, "one checkpoint at a time"
        self._saving = self.unsaved.take()
        return self._saving

    def encode(self, ledger_id: int, highest_moved: int) -> bytes | None:
        """Return a ledger's stored form, and record that the index has its runs up to
        `highest_moved`. None when the ledger is not in memory.
        """
        has_runs = self.tombstones.get(ledger_id)
        if has_runs is not None:
            return replica_state.encode_deleted(LedgerId(ledger_id), has_runs=has_runs)
        state = self.states.get(ledger_id)
        if state is None:
            return None
        state.indexed_highest = max(state.indexed_highest, highest_moved)
        return state.encode(state.indexed_highest)

    def note_saved(self) -> None:
        """Record that a checkpoint stored the ledgers that it took."""
        saving, self._saving = self._saving, {}
        if self.tombstones:
            unsaved = self.unsaved.ledger_ids
            for ledger_id in [old for old in self.tombstones if old not in unsaved]:
                if ledger_id in saving:
                    del self.tombstones[ledger_id]

    def mark_unsaved(self) -> None:
        """Mark the ledgers that a checkpoint took as out of date again, because the checkpoint
        failed.
        """
        saving, self._saving = self._saving, {}
        for ledger_id in saving:
            state = self.states.get(ledger_id)
            if state is not None:
                state.touch()
            elif ledger_id in self.tombstones:
                self.unsaved.ledger_ids[ledger_id] = None

    def indexed_highest_of(self, ledger_id: int) -> int:
        """Return the highest entry id in the index's store of a ledger that is in memory."""
        state = self.states.get(ledger_id)
        return NO_ENTRY if state is None else state.indexed_highest

    def evict(self, checks_max: int) -> bool:
        """Drop states that are stored and not in use, while too many are in memory. Check at most
        `checks_max` states. Return whether there are still too many.
        """
        states, saving = self.states, self._saving
        if len(self._clock) > 2 * len(states) + self._hot_max:
            self._clock = deque(states)  # most of its ids are of ledgers that are no longer hot
        clock = self._clock
        for _ in range(min(checks_max, len(clock))):
            if len(states) <= self._hot_max:
                return False
            ledger_id = clock.popleft()
            state = states.get(ledger_id)
            if state is None:
                continue
            is_held = state.use_count or state.queued_count or state.is_dirty or ledger_id in saving
            if is_held or state.was_used:
                state.was_used = False
                clock.append(ledger_id)
            else:
                del states[ledger_id]
        return len(states) > self._hot_max

    def enter_limbo(self, *, fence: bool) -> None:
        """Put every hot ledger into limbo (rule 2.4)."""
        for state in self.states.values():
            replica_state.enter_limbo(state, fence=fence)

    def watch(self, ledger_id: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for `notify`; return a function that removes it."""
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
        """Call every watch of a ledger, at most NOTIFIED_AT_ONCE now and in each later iteration of
        the event loop. A watch that is cancelled before is not called.
        """
        watchers = self._watchers.get(ledger_id)
        if not watchers:
            return
        if len(watchers) > NOTIFIED_AT_ONCE:
            self._notify_some(ledger_id, deque(watchers))
            return
        for callback in list(watchers.values()):
            callback()

    def _notify_some(self, ledger_id: int, tokens: deque[int]) -> None:
        for _ in range(min(len(tokens), NOTIFIED_AT_ONCE)):
            callback = self._watchers.get(ledger_id, {}).get(tokens.popleft())
            if callback is not None:
                callback()
        if tokens:
            asyncio.get_running_loop().call_soon(self._notify_some, ledger_id, tokens)

    def _keep(self, ledger_id: int, state: ReplicaState) -> None:
        self.states[ledger_id] = state
        self._clock.append(ledger_id)
        self.highest_id = max(self.highest_id, ledger_id)

    def _add_tombstone(self, ledger_id: int, *, has_runs: bool) -> None:
        self._recent_tombstones.pop(ledger_id, None)
        self.tombstones[ledger_id] = has_runs
        self.unsaved.ledger_ids[ledger_id] = None

"""Changes of bookies that no ledger names: those that drained, and those that never started.

Leaves the pass over all ledgers that must confirm each change, and storing it, to
`quire.repair.auditor`.

Invariants: only a bookie that drains, or is in limbo, becomes drained, or one that is about to be
removed. Only a bookie that was formatted more than NEVER_STARTED_AFTER_MS ago, has not started
since and is lost, or drained, becomes removed: it holds nothing, and its format failed or was given
up.

Source: protocol rules 9.5, 9.8 and 9.13.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId
from metadata.registry.cookies import CookieStore
from metadata.repair.lifecycle import Lifecycle
from quire.repair.departures import StateChange
from quire.repair.ledger_index import LedgerIndex

EMPTIED: Final = (Lifecycle.DRAINING, Lifecycle.LIMBO)
"""States in which the copies of a bookie are moved while it may serve."""
NEVER_STARTED_AFTER_MS: Final = 24 * 3600 * 1000
"""Time after the format of a bookie, in ms, within which its first start is waited for."""


class UnnamedBookies:
    """Bookies that may be drained or removed because no known ledger names them."""

    def __init__(self, cookies: CookieStore, index: LedgerIndex) -> None:
        self._cookies = cookies
        self._index = index
        self._started: set[BookieId] = set()
        """Bookies that have started once."""

    async def changes(self, states: Mapping[BookieId, Lifecycle], now_ms: int) -> list[StateChange]:
        """Return the changes to make if another pass confirms that no ledger names the bookies.
        Raises MetadataError.
        """
        drained = [
            StateChange(each, state, Lifecycle.DRAINED, "no ledger names it")
            for each, state in states.items()
            if state in EMPTIED and not self._index.count_naming(each)
        ]
        removed = [
            StateChange(each, state, Lifecycle.REMOVED, "it was formatted, and never started")
            for each, state in states.items()
            if state in (Lifecycle.LOST, Lifecycle.DRAINED)
            and each not in self._index.named
            and await self._never_started(each, now_ms)
        ]
        return [*drained, *removed]

    async def confirmed(
        self, change: StateChange, now_ms: int, *, is_complete: bool
    ) -> StateChange | None:
        """Return the change to store after the pass; None if there is none. A bookie that is not
        removed after all is lost again. `is_complete`: the pass could read all ledgers. Raises
        MetadataError.
        """
        is_named = not is_complete or self._index.count_naming(change.bookie_id) > 0
        if change.to is not Lifecycle.REMOVED:
            return None if is_named else change
        if is_named or not await self._never_started(change.bookie_id, now_ms):
            return replace(
                change, before=Lifecycle.DRAINED, to=Lifecycle.LOST, reason="it was away"
            )
        return replace(change, before=Lifecycle.DRAINED)

    async def _never_started(self, bookie_id: BookieId, now_ms: int) -> bool:
        if bookie_id in self._started:
            return False
        try:
            cookie, version = await self._cookies.get(bookie_id)
        except (NodeNotFoundError, MetadataFormatError):
            return False
        if cookie.starts_at(version) > 0:
            self._started.add(bookie_id)
            return False
        return now_ms - cookie.created_ms >= NEVER_STARTED_AFTER_MS

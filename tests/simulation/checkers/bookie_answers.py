"""Checkers of what single bookies answer, and of what they keep across their deaths."""

from collections.abc import Callable, Container
from typing import Final

from typing_extensions import override

from bookie.index.index_pages import read_meta
from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from tests.simulation.checkers.checker import Asked, Checker
from tests.simulation.disk import Platter
from tests.simulation.index_store import MemoryStore, MemoryTransaction
from tests.simulation.model import Model

DISTINCT_BYTES: Final = 16
"""Payloads of at least this many bytes are searched for on the disk."""


class DurabilityChecker(Checker):
    """A bookie syncs entries to its disk before it acknowledges them.

    Source: protocol rule 4.3; invariant "fsync before ack".
    """

    name = "durability"

    def __init__(self, model: Model, platter_of: Callable[[str], Platter | None]) -> None:
        super().__init__(model)
        self._platter_of = platter_of

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        platter = self._platter_of(host)
        if not new or platter is None or platter.holds(asked.body):
            return
        try:
            view = BatchView(memoryview(asked.body))
        except BatchError:
            return
        at = asked.first_entry_id
        payloads = [view.entry(index) for index in range(view.header.count)]
        for entry_id in new:
            payload = payloads[entry_id - at]
            if len(payload) >= DISTINCT_BYTES and not platter.holds(payload):
                self.report(
                    f"{bookie_id} acknowledged entry {entry_id} of ledger {asked.ledger_id} before "
                    "it was synced"
                )
                return


class FencingChecker(Checker):
    """A bookie that answered a fence accepts no ordinary add later, even after crashes.

    Source: protocol rules 4.3, 7.2; invariant "a fence survives crashes".
    """

    name = "fencing"

    @override
    def on_fenced(self, bookie_id: str, ledger_id: int) -> None:
        self.model.fenced_at_s.setdefault((bookie_id, ledger_id), self.model.loop.now_s)

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        if asked.flag:
            return
        fenced_at_s = self.model.fenced_at_s.get((bookie_id, asked.ledger_id))
        delivered_at_s = asked.delivered_at_s
        if fenced_at_s is not None and delivered_at_s is not None and delivered_at_s > fenced_at_s:
            self.report(
                f"{bookie_id} answered a fence of ledger {asked.ledger_id} at {fenced_at_s:.6f} s, "
                f"and accepted entry {asked.first_entry_id} that came at {delivered_at_s:.6f} s"
            )


class NegativesChecker(Checker):
    """A bookie says "no such entry" only of entries that it never acknowledged.

    A bookie that denied an entry to a recovery acknowledges no later add of it from the writer.

    Source: protocol rules 2.4, 3.2, 4.3, 10.3; invariant "no such entry only from a bookie that
    never acked it".
    """

    name = "negatives"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._denied_from: dict[tuple[str, int], int] = {}
        """Lowest entry that a bookie denied to a fencing read."""

    @override
    def on_negative(self, bookie_id: str, asked: Asked, entry_id: int | None) -> None:
        held = self.model.held.get((bookie_id, asked.ledger_id))
        asked_at_s = asked.delivered_at_s
        if asked_at_s is None:  # the bookie answers while it reads the request
            asked_at_s = self.model.loop.now_s
        ids = held if entry_id is None else (entry_id,)
        if held and ids and not self._may_be_trimmed(asked.ledger_id, entry_id):
            for each in ids:
                if held.get(each, asked_at_s) < asked_at_s:
                    self.report(
                        f"{bookie_id} denied entry {each} of ledger {asked.ledger_id}, asked at "
                        f"{asked_at_s:.6f} s, acknowledged at {held[each]:.6f} s"
                    )
                    break
        if asked.flag:
            key = (bookie_id, asked.ledger_id)
            denied = asked.first_entry_id if entry_id is None else entry_id
            self._denied_from[key] = min(denied, self._denied_from.get(key, denied))

    def _may_be_trimmed(self, ledger_id: int, entry_id: int | None) -> bool:
        """Return whether a ledger was deleted, so that bookies may have dropped it (rule 10.3)."""
        ledger = self.model.ledgers.get(ledger_id)
        return entry_id is None and ledger is not None and ledger.metadata is None

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        denied = self._denied_from.get((bookie_id, asked.ledger_id))
        if denied is not None and not asked.flag and denied in new:
            self.report(
                f"{bookie_id} denied entry {denied} of ledger {asked.ledger_id} to a recovery, and "
                "then acknowledged it to the writer"
            )


class DeletionChecker(Checker):
    """A bookie removes a ledger only if it is deleted, or is closed on other bookies.

    Source: protocol rules 10.1, 10.2; invariant "no local delete while metadata exists".
    """

    name = "deletion"

    @override
    def on_status(self, bookie_id: str, asked: Asked, status: Status) -> None:
        if status is not Status.DELETED:
            return
        ledger = self.model.ledgers.get(asked.ledger_id)
        metadata = None if ledger is None else ledger.metadata
        if metadata is None:
            return
        if metadata.state is not LedgerState.CLOSED or metadata.names(BookieId(bookie_id)):
            self.report(
                f"{bookie_id} has deleted ledger {asked.ledger_id}, which is {metadata.state} and "
                f"names it: {metadata.names(BookieId(bookie_id))}"
            )


class HoldersChecker(Checker):
    """Two processes never serve as the same bookie at the same time.

    Source: protocol rules 2.1, 2.2; invariant "one live holder per bookie id".
    """

    name = "holders"

    def __init__(self, model: Model, is_running: Callable[[int], bool]) -> None:
        super().__init__(model)
        self._is_running = is_running
        self._nodes: dict[str, int] = {}

    @override
    def on_greeted(self, bookie_id: str, node: int) -> None:
        before = self._nodes.get(bookie_id, node)
        if before != node and self._is_running(before):
            self.report(f"processes {before} and {node} both serve as {bookie_id}")
        self._nodes[bookie_id] = node


class MarksChecker(Checker):
    """A bookie's checkpoint mark never moves back, since nothing below it is replayed.

    Source: protocol rule 4.3; invariant "checkpoint mark monotone".
    """

    name = "marks"

    def __init__(self, model: Model, damaged: Container[str]) -> None:
        super().__init__(model)
        self._damaged = damaged
        """Hosts whose disks may have returned to an older state."""
        self._seen: dict[str, tuple[MemoryStore, int]] = {}

    @override
    def on_index_stored(self, host: str, store: MemoryStore) -> None:
        if host in self._damaged:
            return
        meta = read_meta(MemoryTransaction(store))
        known, mark = self._seen.get(host, (store, 0))
        found = 0 if meta is None else meta.mark_lsn
        if known is store and found < mark:
            self.report(f"{host}: its mark went from {mark} to {found}")
        self._seen[host] = (store, found)

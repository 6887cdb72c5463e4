"""Interface of the checkers, and the distribution of observations to them.

Leaves each invariant to the module named after it.
"""

from dataclasses import dataclass
from typing import Any

from bookie.wire.messages import Status
from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.simulation.index_store import MemoryStore
from tests.simulation.model import LedgerModel, Model


@dataclass(slots=True)
class Asked:
    """A request seen on the wire, and the time when the bookie had read all of it."""

    kind: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    flag: bool
    """For an add: sent by a recovery. For a read: sent with a fence."""
    body: bytes = b""
    delivered_at_s: float | None = None


class Checker:
    """Base of all checkers; a checker ignores the observations that it does not override."""

    name = "checker"

    def __init__(self, model: Model) -> None:
        self.model = model

    def report(self, text: str) -> None:
        """Record a violation."""
        self.model.report(self.name, text)

    def on_greeted(self, bookie_id: str, node: int) -> None:
        """Check a process that accepts a hello as a bookie."""

    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        """Check a bookie's OK to an add; `new` are the entries not acknowledged by it before."""

    def on_fenced(self, bookie_id: str, ledger_id: int) -> None:
        """Check a bookie's first answer to a fence."""

    def on_negative(self, bookie_id: str, asked: Asked, entry_id: int | None) -> None:
        """Check "no such entry", or, without an entry, "no such ledger"."""

    def on_status(self, bookie_id: str, asked: Asked, status: Status) -> None:
        """Check the status of any other answer."""

    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        """Check an append that succeeded."""

    def on_fully_replicated(self, ledger: LedgerModel, entry_id: int) -> None:
        """Check an entry that the writer received as stored by its complete write quorum."""

    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        """Check a change of stored metadata; `ledger` holds the value stored now."""

    def on_read(self, ledger: LedgerModel, entry_id: int, data: bytes) -> None:
        """Check an entry that a reader received."""

    def on_reader_lac(self, ledger: LedgerModel, handle: int, lac: int) -> None:
        """Check the LAC of a reader's handle."""

    def on_index_stored(self, host: str, store: MemoryStore) -> None:
        """Check a bookie's index when it is opened and after each of its commits."""

    def on_not_found(self, ledger: LedgerModel, text: str) -> None:
        """Check a reader's "no such entry" for an entry that it may read."""


class Checkers:
    """Passes every observation to all checkers."""

    def __init__(self, model: Model, checkers: list[Checker]) -> None:
        self.model = model
        self.all = checkers
        self.on_greeted = self._seen_by("on_greeted")
        self.on_stored = self._seen_by("on_stored")
        self.on_fenced = self._seen_by("on_fenced")
        self.on_negative = self._seen_by("on_negative")
        self.on_status = self._seen_by("on_status")
        self.on_confirmed = self._seen_by("on_confirmed")
        self.on_fully_replicated = self._seen_by("on_fully_replicated")
        self.on_metadata = self._seen_by("on_metadata")
        self.on_read = self._seen_by("on_read")
        self.on_reader_lac = self._seen_by("on_reader_lac")
        self.on_index_stored = self._seen_by("on_index_stored")
        self.on_not_found = self._seen_by("on_not_found")

    def _seen_by(self, name: str) -> Any:
        calls = [
            getattr(checker, name)
            for checker in self.all
            if getattr(type(checker), name) is not getattr(Checker, name)
        ]

        def tell(*arguments: Any) -> None:
            for call in calls:
                call(*arguments)

        return tell

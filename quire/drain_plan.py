"""What draining a bookie would move, and what would block it. Pure.

Leaves reading the metadata to the commands. Sees metadata only, so the choice of targets is not
that of the repair, and bytes are estimates.

Source: protocol rules 9.1 and 9.3; docs/repair.md.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle
from quire.copy_counts import bytes_on, names_bookie

GIVEN_UP = "it holds entries that an unclean recovery gave up: delete the ledger"
NO_SOURCE = "no bookie that is up has a copy: start the bookie"


def drain_targets(
    bookie_id: BookieId,
    up: Mapping[BookieId, BookieRegistration],
    states: Mapping[BookieId, BookieLifecycle],
) -> tuple[BookieId, ...]:
    """Return the bookies to which copies may move: writable, active, and another one."""
    return tuple(
        each
        for each, registration in up.items()
        if each != bookie_id
        and registration.writable
        and (each not in states or states[each].state.may_store)
    )


@dataclass(slots=True)
class DrainPlan:
    """Counts over the ledgers that name a bookie."""

    bookie_id: BookieId
    targets: tuple[BookieId, ...]
    up: Collection[BookieId]
    """Bookies that are up, with the drained one if it is."""
    ledgers: int = 0
    open_ledgers: int = 0
    """Ledgers that are not closed: their writers replace the bookie."""
    size_bytes: int = 0
    """Bytes of closed ledgers to copy, about."""
    blocked: Counter[str] = field(default_factory=Counter)
    """Ledgers that cannot leave the bookie, by the reason."""

    def add(self, ledger: LedgerMetadata) -> None:
        """Count a ledger, if it names the bookie."""
        if not names_bookie(ledger, self.bookie_id):
            return
        self.ledgers += 1
        self.open_ledgers += ledger.state is not LedgerState.CLOSED
        self.size_bytes += bytes_on(ledger, self.bookie_id)
        why = self._blocked_by(ledger)
        if why is not None:
            self.blocked[why] += 1

    def _blocked_by(self, ledger: LedgerMetadata) -> str | None:
        if any(self.bookie_id in each.ensemble for each in ledger.given_up):
            return GIVEN_UP
        for fragment in ledger.fragments:
            if self.bookie_id not in fragment.ensemble:
                continue
            if all(each in fragment.ensemble for each in self.targets):
                needed = len(fragment.ensemble)
                return f"needs {needed} other writable bookies, has {len(self.targets)}"
            if not any(each in self.up for each in fragment.ensemble):
                return NO_SOURCE
        return None

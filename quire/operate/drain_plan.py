"""What draining bookies would move, where, and what would block it. Pure.

Leaves reading the metadata to the commands. Sees metadata only, so the choice of targets is not
that of the repair, and bytes are estimates: copies are spread over all possible targets by their
weights.

Source: protocol rules 9.1 and 9.3; docs/repair.md.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bookie.config import StorageConfig
from metadata.ids import BookieId
from metadata.ledgers.copies import FragmentCopies, bytes_on, copies_of
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle

GIVEN_UP = "it holds entries that an unclean recovery gave up: delete the ledger"
WEIGHT_MIN = 1e-3
NO_SOURCE = "no bookie that is up has a copy: start the bookie"


def drain_targets(
    drained: Collection[BookieId],
    up: Mapping[BookieId, BookieRegistration],
    states: Mapping[BookieId, BookieLifecycle],
) -> tuple[BookieId, ...]:
    """Return the bookies to which copies may move: writable, active, and not drained as well."""
    return tuple(
        bookie
        for bookie, registration in up.items()
        if bookie not in drained
        and registration.writable
        and (bookie not in states or states[bookie].state.may_store)
    )


@dataclass(frozen=True, slots=True)
class TargetLoad:
    """One target, and what it would receive."""

    bookie_id: BookieId
    size_bytes: int
    free_bytes: int
    passes_mark: bool
    """Whether its disk would be read-only after that, at the default `disk_high_mark`."""


@dataclass(slots=True)
class DrainPlan:
    """Counts over the ledgers that name one of some bookies."""

    bookies: tuple[BookieId, ...]
    targets: tuple[BookieId, ...]
    up: Mapping[BookieId, BookieRegistration]
    """Bookies that are up, with the drained ones that are."""
    ledgers: int = 0
    open_ledgers: int = 0
    """Ledgers that are not closed: their writers replace the bookies."""
    size_bytes: int = 0
    """Bytes of closed ledgers to copy, about."""
    blocked: Counter[str] = field(default_factory=Counter)
    """Ledgers that cannot leave the bookies, by the reason."""
    _moves: Counter[frozenset[BookieId]] = field(default_factory=Counter)
    """Bytes to copy, by the bookies that may not receive them."""

    def add(self, ledger: LedgerMetadata) -> None:
        """Count a ledger, if it names one of the bookies."""
        named = [bookie for bookie in self.bookies if ledger.names(bookie)]
        if not named:
            return
        self.ledgers += 1
        self.open_ledgers += ledger.state is not LedgerState.CLOSED
        members = frozenset(b for fragment in ledger.fragments for b in fragment.ensemble)
        size_bytes = sum(bytes_on(ledger, bookie) for bookie in named)
        self.size_bytes += size_bytes
        self._moves[members] += size_bytes
        why = self._blocked_by(ledger)
        if why is not None:
            self.blocked[why] += 1

    def loads(self) -> list[TargetLoad]:
        """Return what each target would receive."""
        received = Counter[BookieId]()
        for members, size_bytes in self._moves.items():
            possible = [b for b in self.targets if b not in members] or list(self.targets)
            weights = {bookie: self.up[bookie].weight or WEIGHT_MIN for bookie in possible}
            for bookie, weight in weights.items():
                received[bookie] += round(size_bytes * weight / sum(weights.values()))
        return [self._load(target, received[target]) for target in self.targets]

    def _load(self, bookie_id: BookieId, size_bytes: int) -> TargetLoad:
        disk = self.up[bookie_id]
        high_mark = StorageConfig().disk_high_mark
        used = disk.capacity_bytes - disk.free_bytes + size_bytes
        is_over = size_bytes > disk.free_bytes or used > high_mark * disk.capacity_bytes > 0
        return TargetLoad(bookie_id, size_bytes, disk.free_bytes, is_over)

    def _blocked_by(self, ledger: LedgerMetadata) -> str | None:
        drained = set(self.bookies)
        if any(not drained.isdisjoint(fragment.ensemble) for fragment in ledger.given_up):
            return GIVEN_UP
        reasons = (self._blocked_in(copy, drained) for copy in copies_of(ledger))
        return next((reason for reason in reasons if reason is not None), None)

    def _blocked_in(self, fragment: FragmentCopies, drained: set[BookieId]) -> str | None:
        leaving = sum(bookie in drained for bookie in fragment.ensemble)
        if not leaving:
            return None
        if sum(target not in fragment.ensemble for target in self.targets) < leaving:
            needed = len(fragment.ensemble)
            return f"needs {needed} other writable bookies, has {len(self.targets)}"
        sets = fragment.holders.write_sets(fragment.quorum)
        moved = (set_ for set_ in sets if not drained.isdisjoint(set_))
        has_sources = all(any(member in self.up for member in members) for members in moved)
        return None if has_sources else NO_SOURCE

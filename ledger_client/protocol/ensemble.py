"""Failed members of a writer's ensemble, and whether it can continue without them.

Leaves the choice of replacements to the placement, and the change itself to `append`.

Invariants: a member is *failed* (a replacement is wanted), *parked* (it failed, no spare exists,
and entries reach their ack quorum without it, or wait until it takes more), or neither; never both.
A FENCED answer is
*unchecked* until a read of the metadata that began after it has ended.

Source: protocol rules 4.6, 4.7, 4.9, 5.3-5.5, 5.7.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ledger_client.protocol.append_events import FailureKind
from metadata.ids import BookieId
from metadata.ledgers.copies import most_out
from metadata.ledgers.ledger_metadata import QuorumSpec

FALSE_FENCES_MAX: Final = 4
"""Number of bookies with a false fence that one writer replaces; one more ends it (rule 4.9)."""
FALSE_FENCE: Final = "it fences the ledger although no client recovers it: it lost data"
_PRESENT: Final = (FailureKind.SUSPECTED, FailureKind.BACKLOG)
"""Failures of members that store entries all the same, only later."""
_SEVERITY: Final = {FailureKind.GONE: 1, FailureKind.FENCED: 2}


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason of a member's failure."""

    kind: FailureKind
    reason: str


class EnsembleHealth:
    """Failed and parked members of one ensemble."""

    def __init__(self, quorum: QuorumSpec) -> None:
        self._quorum = quorum
        self.failed: dict[BookieId, Failure] = {}
        self._parked: dict[BookieId, Failure] = {}
        self.false_fences: list[BookieId] = []
        """Bookies, members or not, that fence the ledger without a recovery."""
        self._in_check: list[BookieId] = []
        """Bookies that answered FENCED before the read under way began."""

    @property
    def has_failed(self) -> bool:
        """Whether some member needs a replacement."""
        return bool(self.failed)

    @property
    def is_whole(self) -> bool:
        """Whether entries are sent to every member."""
        return not self.failed and not self._parked

    @property
    def parked(self) -> list[BookieId]:
        """Members to which nothing is sent until they return or a spare joins."""
        return list(self._parked)

    @property
    def out(self) -> list[BookieId]:
        """Members to which nothing is sent."""
        return [*self.failed, *self._parked]

    def is_out(self, bookie_id: BookieId) -> bool:
        """Return whether nothing is sent to a member."""
        return bookie_id in self.failed or bookie_id in self._parked

    def is_absent(self, bookie_id: BookieId) -> bool:
        """Return whether a member is out for certain; an unchecked FENCED answer is not enough."""
        failure = self.failed.get(bookie_id) or self._parked.get(bookie_id)
        return failure is not None and failure.kind is not FailureKind.FENCED

    def fail(self, bookie_id: BookieId, kind: FailureKind, reason: str) -> None:
        """Record a failure; the more severe kind is kept."""
        if kind is FailureKind.FENCED and bookie_id in self.false_fences:
            kind, reason = FailureKind.GONE, FALSE_FENCE
        known = self.failed.get(bookie_id) or self._parked.get(bookie_id)
        if known is None or _SEVERITY.get(kind, 0) > _SEVERITY.get(known.kind, 0):
            self._parked.pop(bookie_id, None)
            self.failed[bookie_id] = Failure(kind, reason)

    # -- fences (4.7, 4.9) -------------------------------------------------------------------------

    @property
    def has_unchecked(self) -> bool:
        """Whether a member answered FENCED and the metadata were not read since."""
        return any(failure.kind is FailureKind.FENCED for failure in self.failed.values())

    @property
    def has_many_false_fences(self) -> bool:
        """Whether there are more false fences than one writer goes on with."""
        return len(self.false_fences) > FALSE_FENCES_MAX

    def begin_check(self) -> bool:
        """Note which FENCED answers a read that begins now decides; return whether there are
        any.
        """
        self._in_check = [b for b, f in self.failed.items() if f.kind is FailureKind.FENCED]
        return bool(self._in_check)

    def end_check(self) -> None:
        """Record that the read has found the ledger open: the fences in check are false."""
        for bookie_id in self._in_check:
            if bookie_id in self.failed:
                self.failed[bookie_id] = Failure(FailureKind.GONE, FALSE_FENCE)
                self.false_fences.append(bookie_id)
        self._in_check = []

    def fences(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie refuses adds of the ledger, as a fence lasts for ever."""
        failure = self.failed.get(bookie_id)
        is_unchecked = failure is not None and failure.kind is FailureKind.FENCED
        return is_unchecked or bookie_id in self.false_fences

    # -- members that are out ----------------------------------------------------------------------

    def forgive(self, bookie_id: BookieId) -> bool:
        """Clear a member's failure; return whether it was out."""
        was_failed = self.failed.pop(bookie_id, None) is not None
        return (self._parked.pop(bookie_id, None) is not None) or was_failed

    def keep_only(self, ensemble: tuple[BookieId, ...]) -> None:
        """Drop the failures of bookies that have left the ensemble."""
        self.failed = {b: f for b, f in self.failed.items() if b in ensemble}
        self._parked = {b: f for b, f in self._parked.items() if b in ensemble}

    def unpark_all(self) -> None:
        """Request replacements for parked members again: a spare joined."""
        self.failed.update(self._parked)
        self._parked.clear()

    def park_all(self) -> None:
        """Replace no member: wait until the failed ones return."""
        self._parked.update(self.failed)
        self.failed.clear()

    def is_lagging(self, bookie_id: BookieId) -> bool:
        """Return whether a member is out because it lags."""
        if self.is_whole:
            return False
        failure = self.failed.get(bookie_id) or self._parked.get(bookie_id)
        return failure is not None and failure.kind is FailureKind.LAGGING

    def park(self, ensemble: tuple[BookieId, ...]) -> None:
        """Handle a missing spare: clear the suspected members, park those with too much unanswered
        until they take more, and park the others while entries can do without them.
        """
        may_park = self.can_park(ensemble)
        for bookie_id, failure in self.failed.items():
            is_backlog = failure.kind is FailureKind.BACKLOG  # its copies were dropped (4.6)
            if is_backlog or (may_park and failure.kind is not FailureKind.SUSPECTED):
                self._parked[bookie_id] = failure
        self.failed.clear()

    def gone(self) -> list[BookieId]:
        """Return the members that certainly cannot store."""
        return [b for b, f in self.failed.items() if f.kind is FailureKind.GONE]

    def reasons(self) -> dict[BookieId, str]:
        """Return why each failed or parked member, and each bookie with a false fence, must not be
        chosen again.
        """
        out = {**self.failed, **self._parked}
        reasons = {b: f"{f.kind}: {f.reason}" for b, f in out.items()}
        return {**dict.fromkeys(self.false_fences, FALSE_FENCE), **reasons}

    def can_park(self, ensemble: tuple[BookieId, ...]) -> bool:
        """Return whether every entry still reaches AQ without the members that are out; suspected
        ones, and those with too much unanswered, count as present.
        """
        failures = [self.failed.get(b) or self._parked.get(b) for b in ensemble]
        out = [failure is not None and failure.kind not in _PRESENT for failure in failures]
        return most_out(self._quorum, out) <= self._quorum.write_quorum - self._quorum.ack_quorum

    def must_replace(self, ensemble: tuple[BookieId, ...]) -> bool:
        """Return whether some write set lacks its ack quorum, so that a delay must end
        (rule 5.4).
        """
        out = [self.is_out(b) for b in ensemble]
        return most_out(self._quorum, out) > self._quorum.write_quorum - self._quorum.ack_quorum


def positions_mask(ensemble: tuple[BookieId, ...], bookie_ids: Collection[BookieId]) -> int:
    """Return the bit mask of the positions of some bookies."""
    if not bookie_ids:
        return 0
    return sum(1 << p for p, b in enumerate(ensemble) if b in bookie_ids)


def bookies_at(ensemble: tuple[BookieId, ...], positions: int) -> tuple[BookieId, ...]:
    """Return the bookies at the positions in a bit mask."""
    if positions == (1 << len(ensemble)) - 1:
        return ensemble
    return tuple(b for p, b in enumerate(ensemble) if positions & (1 << p))

"""Write-back phase of a recovery: how existing entries are written back, and which bookies then
hold them.

`recovery_read.py` finds the entries. The shell builds the batches. `recovery.py` stores the
fragments at the close.

If no bookie can replace a failed one, writing back continues while every entry still reaches its
ack quorum without it.

In in-sync mode failed bookies without a replacement are left out while at least one bookie remains.
Written-back entries are then on every remaining bookie, and repair restores the other copies.

Invariants: an answer counts only while its bookie holds that position in the current recovery
ensemble; until the close, replacement bookies are only in memory, in a fragment that starts at the
first entry without an ack quorum; write-backs carry the LAC at which recovery started.

Source: protocol rules 3.1, 7.4, 11.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ledger_client.protocol.cutting import cut_batches
from ledger_client.protocol.recovery_events import (
    ChooseReplacements,
    NoReplacement,
    ReplacementsMissing,
    Span,
    WriteBack,
)
from ledger_client.protocol.recovery_read import Stretch
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import write_set_positions
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec

SPAN_BYTES_MAX: Final = 1024 * 1024
"""Maximum payload bytes of one write-back, unless a single entry has more."""

WriteAction = WriteBack | ChooseReplacements


class WriteBackPhase:
    """Writes spans to the write sets of an ensemble that may change meanwhile."""

    __slots__ = (
        "_failures",
        "_fragments",
        "_lac",
        "_ledger_quorum",
        "_next_entry_id",
        "_original",
        "_pending",
        "length",
    )

    def __init__(
        self, quorum: QuorumSpec, fragment: Fragment, start: EntryId, length_before: int
    ) -> None:
        self._ledger_quorum = quorum
        self._original = fragment
        self._fragments = [fragment]
        self._lac = EntryId(start - 1)
        self._next_entry_id = start
        self.length = length_before
        """The ledger's bytes up to the last added entry."""
        self._pending: dict[EntryId, _PendingSpan] = {}
        self._failures = _Failures()

    @property
    def pending_bytes(self) -> int:
        """Bytes of added entries that lack their ack quorum, or come after one that does."""
        first = next(iter(self._pending.values()), None)
        return self.length - first.span.length_before if first else 0

    @property
    def first_pending_entry_id(self) -> EntryId:
        """The first entry that lacks its ack quorum, or the next one to add."""
        return next(iter(self._pending), self._next_entry_id)

    @property
    def is_done(self) -> bool:
        """Return whether every added entry has its ack quorum."""
        return not self._pending

    def add(self, stretch: Stretch) -> list[WriteAction]:
        """Add existing entries; they follow the earlier ones without a gap."""
        assert stretch.first_entry_id == self._next_entry_id
        actions: list[WriteAction] = []
        lengths, begin = stretch.lengths, 0
        for first, count in cut_batches(
            self._quorum, stretch.first_entry_id, lengths, SPAN_BYTES_MAX
        ):
            span = Span(first, count, self.length, sum(lengths[begin : begin + count]))
            begin += count
            self.length += span.payload_bytes
            self._next_entry_id = span.next_entry_id
            positions = write_set_positions(self._quorum, first)
            self._pending[first] = _PendingSpan(span, positions)
            actions += [
                WriteBack(bookie_id, span, self._lac)
                for position in positions
                if (bookie_id := self._ensemble[position]) not in self._failures.reasons
            ]
        return actions + self._choose()

    def stored(self, bookie_id: BookieId, first_entry_id: EntryId) -> None:
        """Count an answer; drop leading spans that have their ack quorum."""
        pending = self._pending.get(first_entry_id)
        if pending is None:
            return
        pending.stored_at.append(bookie_id)
        self._drop_stored()

    def _drop_stored(self) -> None:
        while self._pending:
            front = next(iter(self._pending.values()))
            if front.count_stored(self._ensemble) < self._quorum.ack_quorum:
                break
            del self._pending[front.span.first_entry_id]

    def failed(self, bookie_id: BookieId, reason: str) -> list[WriteAction]:
        """Treat a bookie as failed; ignore a bookie without a position (rule 5.3)."""
        if bookie_id not in self._ensemble:
            return []
        self._failures.reasons.setdefault(bookie_id, reason)
        return self._choose()

    def replaced(self, bookies: Mapping[int, BookieId]) -> list[WriteAction]:
        """Put the replacements in their positions and resend to them the spans that lack their ack
        quorum.
        """
        self._failures.is_choosing = False
        failed = self._failed_positions()
        chosen = {p: b for p, b in sorted(bookies.items()) if p in failed}
        ensemble = tuple(chosen.get(p, b) for p, b in enumerate(self._ensemble))
        self._switch_to(ensemble)
        resent: list[WriteAction] = [
            WriteBack(bookie_id, pending.span, self._lac)
            for pending in self._pending.values()
            for position, bookie_id in chosen.items()
            if position in pending.positions
        ]
        return resent + self._choose()

    def without_replacement(self, event: ReplacementsMissing) -> list[WriteAction]:
        """Continue with the remaining bookies; a later failure requests replacements again."""
        self._failures.is_choosing = False
        self._failures.shortage = NoReplacement(event.needed, event.seen, event.excluded, event.why)
        remaining = tuple(b for b in self._ensemble if b not in self._failures.reasons)
        if self._ledger_quorum.is_in_sync and remaining and self._pending:
            self._switch_to(remaining)
        return self._choose()

    def _switch_to(self, ensemble: tuple[BookieId, ...]) -> None:
        """Switch to an ensemble for the spans that lack their ack quorum."""
        first = self.first_pending_entry_id
        if self._fragments[-1].first_entry_id == first:
            self._fragments.pop()
        self._fragments.append(Fragment(first, ensemble))
        for pending in self._pending.values():
            pending.positions = write_set_positions(self._quorum, pending.span.first_entry_id)
        self._drop_stored()

    def verdict(self) -> NoReplacement | None:
        """Return the failure once some entry can no longer reach its ack quorum."""
        if self._failures.shortage is None:
            return None
        reachable = [
            pending.count_reachable(self._ensemble, self._failures.reasons)
            for pending in self._pending.values()
        ]
        if min(reachable, default=self._quorum.ack_quorum) >= self._quorum.ack_quorum:
            return None
        return self._failures.shortage

    def changed_fragments(self) -> tuple[Fragment, ...]:
        """Return the fragments that replacements opened, without empty ones."""
        return tuple(
            fragment
            for fragment in self._fragments
            if fragment != self._original and fragment.first_entry_id < self._next_entry_id
        )

    def _choose(self) -> list[WriteAction]:
        """Request replacements if a bookie failed, some entry waits and no choice is under way."""
        positions = self._failed_positions()
        if not positions or not self._pending or not self._failures.begin_choice():
            return []
        return [ChooseReplacements(self._ensemble, positions, dict(self._failures.reasons))]

    @property
    def _ensemble(self) -> tuple[BookieId, ...]:
        return self._fragments[-1].ensemble

    @property
    def _quorum(self) -> QuorumSpec:
        quorum = self._ledger_quorum
        return quorum.with_members(len(self._ensemble)) if quorum.is_in_sync else quorum

    def _failed_positions(self) -> tuple[int, ...]:
        return tuple(p for p, b in enumerate(self._ensemble) if b in self._failures.reasons)


@dataclass(slots=True, eq=False)
class _PendingSpan:
    """A span that lacks its ack quorum, and the bookies that stored it."""

    span: Span
    positions: tuple[int, ...]
    stored_at: list[BookieId] = field(default_factory=list)

    def count_stored(self, ensemble: tuple[BookieId, ...]) -> int:
        """Return the number of positions whose current bookie stored the span."""
        return sum(ensemble[p] in self.stored_at for p in self.positions)

    def count_reachable(
        self, ensemble: tuple[BookieId, ...], failed: Mapping[BookieId, str]
    ) -> int:
        """Return the number of positions that stored the span or may still do so."""
        return sum(
            ensemble[p] in self.stored_at or ensemble[p] not in failed for p in self.positions
        )


@dataclass(slots=True, eq=False)
class _Failures:
    """Failed bookies, and the state of the search for replacements."""

    reasons: dict[BookieId, str] = field(default_factory=dict)
    is_choosing: bool = False
    shortage: NoReplacement | None = None
    _tried_count: int = 0

    def begin_choice(self) -> bool:
        """Return whether to request replacements now: not twice at once, nor again for the same
        failures after a search found none.
        """
        if self.is_choosing or (self.shortage and self._tried_count == len(self.reasons)):
            return False
        self.is_choosing, self.shortage = True, None
        self._tried_count = len(self.reasons)
        return True

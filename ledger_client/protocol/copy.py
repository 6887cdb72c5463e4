"""Metadata decisions of a copy: how a closed fragment gets one more bookie.

Leaves copying, and storing by compare-and-set, to `ledger_client/copying.py`.

The target is first stored as *incoming*, so that it keeps the entries sent to it (a bookie drops
the entries of a closed ledger that does not name it). It becomes a member only after the copy. The
stored metadata may change in between, so each step is decided again on the current metadata.

Entries whose loss was accepted are not copied: a position that holds no others is taken over
without a copy.

Invariants: a target becomes a member only of the fragment for which the copy was made, with the
same members and entries as then, and only if the mark stood without a break since before the first
entry was sent.

Source: protocol rules 3.1, 9.1, 9.9, 10.1, 11.1, 11.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.copies import FragmentCopies, fragment_copies
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState


class CopyState(Enum):
    """State of a fragment that is being copied."""

    UNMARKED = auto()
    """Unchanged; the target is not stored as incoming."""
    MARKED = auto()
    """Unchanged; the target is stored as incoming."""
    NAMED = auto()
    """The target is a member, as planned."""
    CHANGED = auto()
    """Changed by another process: the copy does not match the current fragment."""
    GONE = auto()
    """The ledger was deleted, and another has its id."""


@dataclass(frozen=True, slots=True)
class CopyRefused:
    """Reason why the requested copy is not possible."""

    reason: str


@dataclass(frozen=True, slots=True)
class IncomingMark:
    """One bookie that is stored as incoming for one fragment of a ledger."""

    creation_token: UpdateToken
    """The ledger's creation token."""
    first_entry_id: EntryId
    target: BookieId

    def removed(self, now: LedgerMetadata, token: UpdateToken) -> LedgerMetadata | None:
        """Return the metadata without the mark; None if the mark is not there."""
        index = _index_of(now, self.first_entry_id)
        if now.creation_token != self.creation_token or index is None:
            return None
        fragment = now.fragments[index]
        if self.target not in fragment.incoming:
            return None
        others = tuple(b for b in fragment.incoming if b != self.target)
        return now.with_fragment(index, replace(fragment, incoming=others), token)

    def is_stray(self, now: LedgerMetadata) -> bool:
        """Return whether no copy of the writer will use the mark again: its target is not
        a member.
        """
        is_open = now.state is LedgerState.OPEN
        return is_open and self.target not in now.last_fragment.ensemble


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """One copy of one fragment, as it was when the copy began, to one bookie."""

    ledger_id: LedgerId
    creation_token: UpdateToken
    copies: FragmentCopies
    """The fragment with its members and entries at the time."""
    target: BookieId
    position: int | None
    """Position that the target takes over; None if it is added after the last member."""

    @property
    def first_entry_id(self) -> EntryId:
        """First entry of the fragment."""
        return self.copies.first_entry_id

    @property
    def ensemble_after(self) -> tuple[BookieId, ...]:
        """Members including the target."""
        ensemble = self.copies.ensemble
        if self.position is None:
            return (*ensemble, self.target)
        return tuple(self.target if p == self.position else b for p, b in enumerate(ensemble))

    def standing(self, now: LedgerMetadata) -> CopyState:
        """Return the fragment's standing in the current metadata."""
        if now.creation_token != self.creation_token:
            return CopyState.GONE
        index = _index_of(now, self.first_entry_id)
        if index is None or now.last_entry_of(index) != self.copies.last_entry_id:
            return CopyState.CHANGED
        fragment = now.fragments[index]
        if fragment.ensemble == self.ensemble_after:
            return CopyState.NAMED
        if fragment.ensemble != self.copies.ensemble or self._takes_out_a_member(now):
            return CopyState.CHANGED
        return CopyState.MARKED if self.target in fragment.incoming else CopyState.UNMARKED

    def _takes_out_a_member(self, now: LedgerMetadata) -> bool:
        """Return whether the bookie to be replaced has become a member again, or the target left.
        Such a bookie holds the fragment's entries and may be the last one in sync (rule 11.2).
        """
        if not now.quorum.is_in_sync or now.state is LedgerState.CLOSED:
            return False
        members = now.last_fragment.ensemble
        replaced = set(self.copies.ensemble) - set(self.ensemble_after)
        return bool(replaced) and (self.target not in members or not replaced.isdisjoint(members))

    def marked(self, now: LedgerMetadata, token: UpdateToken) -> LedgerMetadata:
        """Store the target as incoming."""
        assert self.standing(now) is CopyState.UNMARKED
        fragment = now.fragment_of(self.first_entry_id)
        return self._with(now, replace(fragment, incoming=(*fragment.incoming, self.target)), token)

    def named(self, now: LedgerMetadata, token: UpdateToken) -> LedgerMetadata:
        """Make the target a member and remove its mark; other marks stay."""
        assert self.standing(now) is CopyState.MARKED
        fragment = Fragment(self.first_entry_id, self.ensemble_after, self._other_marks(now))
        return self._with(now, fragment, token)

    def unmarked(self, now: LedgerMetadata, token: UpdateToken) -> LedgerMetadata | None:
        """Remove the mark, whatever else changed in the fragment; None if there is none."""
        return IncomingMark(self.creation_token, self.first_entry_id, self.target).removed(
            now, token
        )

    def ranges(self) -> Iterator[Range]:
        """Yield the ranges (first, last) that the target must hold, ascending."""
        return self.copies.ranges_at(self.position)

    @property
    def entry_count(self) -> int:
        """Number of entries that the target must hold."""
        return self.copies.count_at(self.position)

    def _other_marks(self, now: LedgerMetadata) -> tuple[BookieId, ...]:
        incoming = now.fragment_of(self.first_entry_id).incoming
        return tuple(b for b in incoming if b != self.target)

    def _with(self, now: LedgerMetadata, fragment: Fragment, token: UpdateToken) -> LedgerMetadata:
        return now.with_fragment(now.fragment_index_of(self.first_entry_id), fragment, token)


def plan_copy(
    now: LedgerMetadata, first_entry_id: EntryId, target: BookieId, replaces: BookieId | None
) -> CopyPlan | CopyRefused | None:
    """Plan the copy of the fragment that starts at an entry; None if the target is a member.

    In in-sync mode the target is added while there are fewer members than the ledger wants (rule
    11.2). Otherwise, and always in quorum mode, it takes the place of `replaces`.
    """
    index = _index_of(now, first_entry_id)
    if index is None:
        return CopyRefused(f"no fragment starts at entry {first_entry_id}: read its metadata again")
    copies = fragment_copies(now, index)
    if copies.last_entry_id is None:
        return CopyRefused(
            f"its last fragment, from entry {first_entry_id} on, can be copied only once the "
            "ledger is closed: close or recover it"
        )
    ensemble = copies.ensemble
    if target in ensemble:
        if now.quorum.is_in_sync or replaces not in ensemble:
            return None
        return CopyRefused(f"bookie {target} is a member already: replace {replaces} by another")
    position = None
    if not now.quorum.is_in_sync or len(ensemble) >= now.quorum.ensemble_size:
        if replaces not in ensemble:
            return CopyRefused(
                f"the fragment at entry {first_entry_id} has all its {len(ensemble)} members "
                f"({', '.join(ensemble)}): name one of them for {target} to replace"
            )
        position = ensemble.index(replaces)
    return CopyPlan(now.ledger_id, now.creation_token, copies, target, position)


def stray_marks(now: LedgerMetadata) -> list[IncomingMark]:
    """Return the marks of an open in-sync ledger whose targets are not members.

    Each was left by a copy that failed while the metadata service did not answer.
    """
    marks = [
        IncomingMark(now.creation_token, fragment.first_entry_id, target)
        for fragment in now.fragments
        for target in fragment.incoming
    ]
    return [mark for mark in marks if mark.is_stray(now)]


def is_mark_unbroken(version: Version, now: LedgerMetadata, version_now: Version) -> bool:
    """Return whether a mark that stood at `version` and stands now stood all the time in between.

    If not, the target may have dropped entries that were copied to it. It drops nothing of a ledger
    that is not closed (rule 10.1), and closed is final; and one change cannot both have removed the
    mark and set it again. A lower version is that of another node: the metadata was restored.
    """
    return now.state is not LedgerState.CLOSED or 0 <= version_now - version <= 1


def _index_of(metadata: LedgerMetadata, first_entry_id: EntryId) -> int | None:
    index = metadata.fragment_index_of(first_entry_id)
    return index if metadata.fragments[index].first_entry_id == first_entry_id else None

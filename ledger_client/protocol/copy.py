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

from ledger_client.protocol.quorum import stripe_end, write_set_positions
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
from metadata.ledgers.lost_entries import LostRange, entries_left


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
    quorum: QuorumSpec
    """The fragment's quorum, with its members at the time."""
    first_entry_id: EntryId
    last_entry_id: EntryId
    """Below the first one if the fragment is empty."""
    ensemble: tuple[BookieId, ...]
    target: BookieId
    position: int | None
    """Position that the target takes over; None if it is added after the last member."""
    lost: tuple[LostRange, ...] = ()
    """Entries whose loss was accepted when the copy began."""

    @property
    def ensemble_after(self) -> tuple[BookieId, ...]:
        """Members including the target."""
        if self.position is None:
            return (*self.ensemble, self.target)
        return tuple(self.target if p == self.position else b for p, b in enumerate(self.ensemble))

    def standing(self, now: LedgerMetadata) -> CopyState:
        """Return the fragment's standing in the current metadata."""
        if now.creation_token != self.creation_token:
            return CopyState.GONE
        index = _index_of(now, self.first_entry_id)
        if index is None or _last_entry_of(now, index) != self.last_entry_id:
            return CopyState.CHANGED
        fragment = now.fragments[index]
        if fragment.ensemble == self.ensemble_after:
            return CopyState.NAMED
        if fragment.ensemble != self.ensemble or self._takes_out_a_member(now):
            return CopyState.CHANGED
        return CopyState.MARKED if self.target in fragment.incoming else CopyState.UNMARKED

    def _takes_out_a_member(self, now: LedgerMetadata) -> bool:
        """Return whether the bookie to be replaced has become a member again, or the target left.
        Such a bookie holds the fragment's entries and may be the last one in sync (rule 11.2).
        """
        if not now.quorum.is_in_sync or now.state is LedgerState.CLOSED:
            return False
        members = now.last_fragment.ensemble
        replaced = set(self.ensemble) - set(self.ensemble_after)
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

    def ranges(self) -> Iterator[tuple[EntryId, EntryId]]:
        """Yield the ranges (first, last) that the target must hold, ascending."""
        first, last = self.first_entry_id, self.last_entry_id
        return _ranges_at(self.quorum, first, last, self.position, self.lost)

    @property
    def entry_count(self) -> int:
        """Number of entries that the target must hold."""
        if self.lost:
            return sum(last - first + 1 for first, last in self.ranges())
        return self._held_before(self.last_entry_id + 1) - self._held_before(self.first_entry_id)

    def _held_before(self, entry_id: int) -> int:
        """Return the number of entries below `entry_id` whose write set contains the position:
        those of full cycles, and the rest.
        """
        quorum = self.quorum
        if self.position is None or quorum.write_quorum == quorum.ensemble_size:
            return entry_id
        turn = quorum.ensemble_size * quorum.stripe_entries
        turns, rest = divmod(entry_id, turn)
        held = turns * quorum.write_quorum * quorum.stripe_entries
        for first in range(0, rest, quorum.stripe_entries):
            if self.position in write_set_positions(quorum, EntryId(first)):
                held += min(quorum.stripe_entries, rest - first)
        return held

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
    last_entry_id = _last_entry_of(now, index)
    if last_entry_id is None:
        return CopyRefused(
            f"its last fragment, from entry {first_entry_id} on, can be copied only once the "
            "ledger is closed: close or recover it"
        )
    ensemble = now.fragments[index].ensemble
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
    return CopyPlan(
        now.ledger_id,
        now.creation_token,
        now.quorum_of(now.fragments[index]),
        first_entry_id,
        last_entry_id,
        ensemble,
        target,
        position,
        now.lost,
    )


def member_ranges(
    now: LedgerMetadata, first_entry_id: EntryId, bookie_id: BookieId | None
) -> Iterator[tuple[EntryId, EntryId]]:
    """Yield the ranges (first, last) that a member of the closed fragment that starts at an entry
    must hold, ascending, without lost entries (rule 9.7); None asks for the complete fragment.
    """
    index = now.fragment_index_of(first_entry_id)
    fragment, last = now.fragments[index], _last_entry_of(now, index)
    assert last is not None, "the fragment is closed"
    position = None if bookie_id is None else fragment.ensemble.index(bookie_id)
    return _ranges_at(now.quorum_of(fragment), first_entry_id, last, position, now.lost)


def holds_entries(now: LedgerMetadata, first_entry_id: EntryId, bookie_id: BookieId | None) -> bool:
    """Return whether `member_ranges` has any range."""
    return next(member_ranges(now, first_entry_id, bookie_id), None) is not None


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


def _ranges_at(
    quorum: QuorumSpec,
    first: EntryId,
    last: EntryId,
    position: int | None,
    lost: tuple[LostRange, ...],
) -> Iterator[tuple[EntryId, EntryId]]:
    """Yield the ranges of first..last at a position that are not lost; at any one, for None."""
    is_striped = position is not None and quorum.write_quorum < quorum.ensemble_size
    while first <= last:
        end = min(stripe_end(quorum, first), last) if is_striped else last
        if not is_striped or position in write_set_positions(quorum, first):
            for low, high in entries_left(lost, first, end):
                yield EntryId(low), EntryId(high)
        first = EntryId(end + 1)


def _index_of(metadata: LedgerMetadata, first_entry_id: EntryId) -> int | None:
    index = metadata.fragment_index_of(first_entry_id)
    return index if metadata.fragments[index].first_entry_id == first_entry_id else None


def _last_entry_of(metadata: LedgerMetadata, index: int) -> EntryId | None:
    """Return the last entry of a fragment; None while the fragment is open."""
    if index + 1 < len(metadata.fragments):
        return EntryId(metadata.fragments[index + 1].first_entry_id - 1)
    return metadata.last_entry_id

"""Decisions of a copy: how a closed fragment gets one more bookie, what is sent to it, and what its
answers mean.

Leaves requests, and storing metadata by compare-and-set, to `ledger_client/copying.py`.

The target is first stored as *incoming*, so that it keeps the entries sent to it (a bookie drops
the entries of a closed ledger that does not name it). It becomes a member only after the copy. The
stored metadata may change in between, so each step is decided again on the current metadata.

Entries whose loss was accepted are not copied: a position that holds no others is taken over
without a copy.

Invariants: a target becomes a member only of the fragment for which the copy was made, with the
same members and entries as then, and only if the mark stood without a break since before the first
entry was sent.

Entries keep their bytes and digests. A batch is sent on as it is only if it is complete and the
writer's, and its entry digests are valid; small ones are joined, because a bookie and its log pay
for each batch. A batch with a MAC that cannot be made again is sent on in any case. An answer of
the target is correct only if its digests are valid and its bytes equal those of the source.

Source: protocol rules 3.1, 4.2, 4.3, 9.1, 9.9, 10.1, 11.1, 11.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from bookie.wire.batch import BatchView, Buffer, build_batch
from bookie.wire.codec import Entries
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from ledger_client.batches import EntryBatch
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from ledger_client.protocol.cutting import cut_batches
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.copies import FragmentCopies, fragment_copies, stripe_end
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec


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


JOINED_BELOW_BYTES: Final = 64 * 1024
JOINED_BELOW_ENTRIES: Final = 256
"""A batch that is smaller than both is joined with its neighbours."""


@dataclass(frozen=True, slots=True)
class CopyPiece:
    """Consecutive entries as read, and the batches in which they are stored."""

    first_entry_id: EntryId
    next_entry_id: EntryId
    """The entry after the last one."""
    payload_bytes: int
    """Size of all payloads, in bytes."""
    batches: list[tuple[EntryId, bytearray]]
    """The batches with their first entry ids."""
    source: BookieId | None = None
    """The bookie that returned the entries; None if the answer does not name it."""

    @classmethod
    def of(
        cls,
        answer: VerifiedEntries,
        first_entry_id: EntryId,
        length_before: int,
        quorum: QuorumSpec,
        bytes_max: int,
        keys: LedgerKeys,
    ) -> "CopyPiece":
        """Return the entries of a source's answer, from `first_entry_id` on. New batches say that
        all entries before them are confirmed: they were when the next fragment began. Batches with
        a MAC whose key is not known may contain other entries too, which are the writer's.
        """
        last = EntryId(answer.next_entry_id - 1)
        parts = _parts(answer.batches, first_entry_id, last)
        if keys.lacks_mac_key:
            batches = [(view.header.first_entry_id, bytearray(view.data)) for view, _ in parts]
        else:
            making = _BatchMaker(quorum, bytes_max, keys)
            batches = list(making.batches_of(parts, length_before))
        size = sum(part.payload_bytes for _, part in parts)
        return cls(first_entry_id, answer.next_entry_id, size, batches, answer.bookie_id)

    @property
    def entry_count(self) -> int:
        """Number of entries."""
        return self.next_entry_id - self.first_entry_id

    @property
    def batch_bytes(self) -> int:
        """Bytes sent to the target."""
        return sum(len(batch) for _, batch in self.batches)

    def payloads_from(self, first_entry_id: EntryId) -> list[bytes]:
        """Return the entries from `first_entry_id` on, in order."""
        views = [BatchView(data) for _, data in self.batches]
        last = EntryId(self.next_entry_id - 1)
        return payloads_of([part for _, part in _parts(views, first_entry_id, last)])

    def same_to(self, answer: Entries, entry_id: EntryId) -> EntryId:
        """Return the entry up to which an answer has, from `entry_id` on, the very bytes of the
        batches that were sent. They need no other check: the sent ones are valid.
        """
        sent = {max(first, self.first_entry_id): data for first, data in self.batches}
        position = entry_id
        for batch in answer.batches:
            known: Buffer | None = sent.get(position)
            if known != batch.data:
                break
            position = EntryId(batch.header.last_entry_id + 1)
        return position


@dataclass(frozen=True, slots=True)
class _BatchMaker:
    """The batches in which entries are sent on."""

    quorum: QuorumSpec
    bytes_max: int
    keys: LedgerKeys

    def batches_of(
        self, parts: list[tuple[BatchView, EntryBatch]], length_before: int
    ) -> Iterator[tuple[EntryId, bytearray]]:
        """Yield the batches of consecutive entries. `length_before` is the ledger's bytes before
        the first one.
        """
        joined: list[EntryBatch] = []
        for view, part in parts:
            if not self._is_sent_as_it_is(view, part):
                joined.append(part)
                continue
            yield from self._built(joined, length_before)
            length_before += sum(batch.payload_bytes for batch in joined) + part.payload_bytes
            joined = []
            yield part.first_entry_id, bytearray(view.data)
        yield from self._built(joined, length_before)

    def _is_sent_as_it_is(self, view: BatchView, part: EntryBatch) -> bool:
        header = view.header
        is_small = header.payload_bytes < JOINED_BELOW_BYTES and header.count < JOINED_BELOW_ENTRIES
        if (
            is_small
            or header.is_slice
            or len(part) != header.count
            or (header.payload_bytes > self.bytes_max and header.count > 1)
            or header.last_entry_id > stripe_end(self.quorum, header.first_entry_id)
        ):
            return False
        try:
            view.verify_digests(self.keys.seed)
        except BatchError:
            return False
        return True

    def _built(
        self, parts: list[EntryBatch], length_before: int
    ) -> Iterator[tuple[EntryId, bytearray]]:
        if not parts:
            return
        keys, payloads = self.keys, payloads_of(parts)
        lengths = list(map(len, payloads))
        begin = parts[0].first_entry_id
        for first, count in cut_batches(self.quorum, begin, lengths, self.bytes_max):
            skip = first - begin
            some = payloads[skip : skip + count]
            lac = EntryId(first - 1)
            batch = build_batch(
                keys.ledger_id, first, lac, length_before, some, keys.seed, keys.mac_key
            )
            yield first, batch
            length_before += sum(lengths[skip : skip + count])


def payloads_of(parts: list[EntryBatch]) -> list[bytes]:
    """Return the entries of several batches, in order."""
    return [entry.data for part in parts for entry in part]


def parts_of(answer: VerifiedEntries, first_entry_id: EntryId) -> list[EntryBatch]:
    """Return the entries of an answer from `first_entry_id` on; keyed batches come complete and
    contain other entries too.
    """
    last = EntryId(answer.next_entry_id - 1)
    return [part for _, part in _parts(answer.batches, first_entry_id, last)]


def _parts(
    batches: tuple[BatchView, ...] | list[BatchView], first: EntryId, last: EntryId
) -> list[tuple[BatchView, EntryBatch]]:
    """Return the batches that contain entries of first..last, each with these entries."""
    return [
        (batch, EntryBatch(batch, low, high))
        for batch in batches
        if (low := max(first, batch.header.first_entry_id))
        <= (high := min(last, batch.header.last_entry_id))
    ]


def length_in_batch(batch: BatchView, entry_id: EntryId) -> int | None:
    """Return the ledger's bytes before an entry according to its batch; None if the batch is a
    slice, whose header is not the writer's.
    """
    header = batch.header
    if header.is_slice:
        return None
    return header.length_before + sum(batch.lengths[: entry_id - header.first_entry_id])


def copy_error(
    target: BookieId, piece: CopyPiece, entry_id: EntryId, good: VerifiedEntries, keys: LedgerKeys
) -> LedgerError | None:
    """Return the error in the target's answer for a piece, from an entry on; None if the answer is
    correct up to `good.next_entry_id` and not empty.
    """
    if good.next_entry_id == entry_id and not good.is_damaged:
        why = f"it stored entry {entry_id} and does not return it ({good.reason})"
        return _target_error(target, entry_id, why, keys.ledger_id)
    wrong = (
        good.reason if good.next_entry_id == entry_id else _difference(piece, entry_id, good, keys)
    )
    if wrong is None:
        return None
    why = f"it returned entry {entry_id}, or a later one, damaged right after storing it ({wrong})"
    return _target_error(target, entry_id, why, keys.ledger_id)


def refusal_error(
    ledger_id: LedgerId, target: BookieId, entry_id: EntryId, status: Status | None, reason: str
) -> LedgerError:
    """Return the error for a target that did not store or return an entry; without a status, it did
    not answer.
    """
    match status:
        case Status.UNAUTHORIZED:
            text = f"bookie {target} refused the password: copy with the correct one"
            return UnauthorizedError(text, ledger_id=ledger_id)
        case Status.DELETED:
            text = f"it was deleted, as bookie {target} reports: no copy is needed"
            return LedgerNotFoundError(text, ledger_id=ledger_id)
        case Status.CONFLICT:
            return EntryConflictError(
                f"from entry {entry_id} on, bookie {target} stores other bytes than were read "
                "elsewhere, with valid digests: it is not made a member; copy to another",
                ledger_id=ledger_id,
                entry_id=entry_id,
                outcome="not_written",
            )
        case _:
            why = reason if status is None else f"answered {status.name}"
            return _target_error(target, entry_id, why, ledger_id)


def _target_error(
    target: BookieId, entry_id: EntryId, why: str, ledger_id: LedgerId
) -> NotEnoughBookiesError:
    """Return the error for a target that cannot be used: another one may be."""
    return NotEnoughBookiesError(
        f"bookie {target} cannot store the copy of entry {entry_id} ({why}): it is not made a "
        "member; copy to another bookie, or try again later",
        needed=1,
        seen=0,
        excluded={str(target): why},
        ledger_id=ledger_id,
        entry_id=entry_id,
    )


def _difference(
    piece: CopyPiece, first: EntryId, good: VerifiedEntries, keys: LedgerKeys
) -> str | None:
    """Compare the answer with the bytes read at the source, and each digest with its entry."""
    try:
        for batch in good.batches:
            batch.verify_digests(keys.seed)
    except BatchError as error:
        return str(error)
    payloads = payloads_of(parts_of(good, first))
    is_same = payloads == piece.payloads_from(first)[: len(payloads)]
    return None if is_same else "other bytes than its source stores"

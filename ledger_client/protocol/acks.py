"""Acknowledgements of an open ledger's unsettled batches: which bookies of the write set stored
each.

Leaves all consequences to `append.AppendProtocol`. Work is per batch, never per entry.

Invariants: batches are contiguous and in order; confirmed batches come first; a batch is
*confirmed* when it and all before it are stored on an ack quorum of their write sets (derived from
the answers each time: rule 4.5); *settled* when no answer that could still come matters.

Source: protocol rules 4.4-4.6, 5.2.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from metadata.ids import NO_ENTRY, EntryId
from metadata.ledgers.copies import write_set_positions
from metadata.ledgers.ledger_metadata import QuorumSpec

BATCH_COST_BYTES: Final = 512
"""Cost of one unanswered batch in addition to its payload, for the limit of rule 4.6."""

POSITION_MASKS_MAX: Final = 1024
"""Maximum number of cached position masks; a client's ledgers use a few."""


class UnsettledBatch:
    """One batch; `write_set`, `sent`, `stored` and `lost` are bit masks of ensemble positions. A
    position in `lost` and not in `stored` never counts as stored any more.
    """

    __slots__ = (
        "count",
        "first_entry_id",
        "last_entry_id",
        "length_after",
        "lost",
        "payload_bytes",
        "sent",
        "stored",
        "write_set",
    )

    def __init__(
        self,
        first_entry_id: EntryId,
        count: int,
        payload_bytes: int,
        length_after: int,
        write_set: int,
    ) -> None:
        self.first_entry_id = first_entry_id
        self.last_entry_id = EntryId(first_entry_id + count - 1)
        self.count = count
        self.payload_bytes = payload_bytes
        self.length_after = length_after
        self.write_set = write_set
        self.sent = 0
        self.stored = 0
        self.lost = 0


class UnsettledBatches:
    """Unsettled batches of one ledger, and the LAC that follows from their answers."""

    def __init__(self, quorum: QuorumSpec) -> None:
        self.lac = NO_ENTRY
        self.lap = NO_ENTRY
        self.length = 0
        self._quorum = quorum
        self._confirmed: deque[UnsettledBatch] = deque()
        self._unconfirmed: deque[UnsettledBatch] = deque()
        self._by_first: dict[EntryId, UnsettledBatch] = {}
        self._pushed_length = 0
        self._unanswered_bytes = [0] * quorum.ensemble_size
        self._stripe = -1
        self._stripe_mask = 0
        """Write set of `_stripe`; most batches have the same stripe as the one before."""

    @property
    def unconfirmed(self) -> Iterable[UnsettledBatch]:
        """Batches beyond the LAC, in order."""
        return self._unconfirmed

    def add(self, first_entry_id: EntryId, count: int, payload_bytes: int) -> UnsettledBatch:
        """Add the next batch."""
        assert first_entry_id == self.lap + 1, "ids are assigned in order, without gaps"
        self._pushed_length += payload_bytes
        mask = self._write_set(first_entry_id)
        batch = UnsettledBatch(first_entry_id, count, payload_bytes, self._pushed_length, mask)
        self.lap = batch.last_entry_id
        self._unconfirmed.append(batch)
        self._by_first[first_entry_id] = batch
        return batch

    def note_sent(self, batch: UnsettledBatch, positions: int) -> None:
        """Record that a batch was sent to the bookies at the positions in a mask."""
        batch.sent |= positions
        cost = batch.payload_bytes + BATCH_COST_BYTES
        for position in _positions_in(positions):
            self._unanswered_bytes[position] += cost

    def backlogged(self, positions: int, bytes_max: int) -> Sequence[int]:
        """Return the positions in a mask whose unanswered bytes exceed `bytes_max`."""
        if max(self._unanswered_bytes) <= bytes_max:
            return ()
        return [p for p in _positions_in(positions) if self._unanswered_bytes[p] > bytes_max]

    def take_missing(self, out: int) -> list[tuple[EntryId, int]]:
        """Return, with its first entry id, the positions to which each unconfirmed batch was not
        sent yet, and record it as sent there. Positions are masks; nothing is sent to those in
        `out`.
        """
        taken: list[tuple[EntryId, int]] = []
        for batch in self._unconfirmed:
            missing = batch.write_set & ~batch.sent & ~batch.stored & ~out
            if missing:
                self.note_sent(batch, missing)
                taken.append((batch.first_entry_id, missing))
        return taken

    def record(self, first_entry_id: EntryId, position: int) -> bool:
        """Count an answer; return whether it was new. Late and repeated answers change nothing."""
        batch = self._by_first.get(first_entry_id)
        bit = 1 << position
        if batch is None or not batch.write_set & ~batch.stored & ~batch.lost & bit:
            return False
        batch.stored |= bit
        if batch.sent & bit:
            self._unanswered_bytes[position] -= batch.payload_bytes + BATCH_COST_BYTES
        return True

    def unanswered_bytes(self, position: int) -> int:
        """Return the bytes sent to a position and not answered (rule 4.6)."""
        return self._unanswered_bytes[position]

    def is_behind(self, position: int) -> bool:
        """Return whether a position has not answered the oldest batch beyond the LAC."""
        if not self._unconfirmed:
            return False
        oldest = self._unconfirmed[0]
        return bool(oldest.sent & ~oldest.stored & (1 << position))

    def lag_entries(self, position: int) -> int:
        """Return the number of unconfirmed entries that a position which is behind has not
        stored; else 0.
        """
        if not self.is_behind(position):
            return 0
        bit = 1 << position
        return sum(batch.count for batch in self._unconfirmed if not batch.stored & bit)

    def confirm(self) -> bool:
        """Move the LAC over every batch that is now acknowledged; return whether it moved."""
        needed = self._quorum.ack_quorum
        moved = False
        while self._unconfirmed and self._unconfirmed[0].stored.bit_count() >= needed:
            batch = self._unconfirmed.popleft()
            self._confirmed.append(batch)
            self.lac, self.length, moved = batch.last_entry_id, batch.length_after, True
        return moved

    def settle(self, given_up: int) -> tuple[EntryId | None, list[tuple[EntryId, EntryId]]]:
        """Drop the leading confirmed batches for which no answer is awaited any more.

        No answer is awaited from the positions in the mask `given_up`, nor from a position to which
        a confirmed batch was not sent, because it is not sent again. Returns the last settled entry
        id, if any, and the stretches (first, last) that are short of their write quorum.
        """
        if not self._confirmed:
            return None, []
        settled: EntryId | None = None
        short: list[tuple[EntryId, EntryId]] = []
        while self._confirmed:
            batch = self._confirmed[0]
            missing = batch.write_set & ~batch.stored
            if missing & batch.sent & ~(batch.lost | given_up):
                break
            if missing:
                short.append((batch.first_entry_id, batch.last_entry_id))
            settled = batch.last_entry_id
            self._confirmed.popleft()
            del self._by_first[batch.first_entry_id]
            self._clear_sent(batch, missing & ~batch.lost)
        return settled, merge_adjacent(short)

    def reassign(self, sources: Sequence[int | None], quorum: QuorumSpec) -> None:
        """Switch to another ensemble (5.2). `sources[p]` is the position that the bookie now at `p`
        had before, or None for a new bookie; answers of bookies that left do not count.
        """
        for position, source in enumerate(sources):
            if source is None:
                self._mark_confirmed_lost(position)
        old_bytes = self._unanswered_bytes
        self._unanswered_bytes = [0 if s is None else old_bytes[s] for s in sources]
        self._quorum, self._stripe = quorum, -1
        for batch in self._unconfirmed:
            batch.stored = _moved(batch.stored, sources)
            batch.sent = _moved(batch.sent, sources)
            batch.write_set = self._write_set(batch.first_entry_id)

    def resume_position(self, position: int) -> None:
        """Treat batches sent to a position as not sent: its bookie lost them.

        Confirmed batches stay without that copy: they belong to the fragment before, or their bytes
        are no longer kept.
        """
        bit = 1 << position
        self._unanswered_bytes[position] = 0
        self._mark_confirmed_lost(position)
        for batch in self._unconfirmed:
            if not batch.stored & bit:
                batch.sent &= ~bit

    def _mark_confirmed_lost(self, position: int) -> None:
        """Stop waiting for copies of confirmed batches from a position."""
        bit = 1 << position
        for batch in self._confirmed:
            batch.lost |= bit

    def _write_set(self, first_entry_id: EntryId) -> int:
        stripe = first_entry_id // self._quorum.stripe_entries
        if stripe != self._stripe:
            positions = write_set_positions(self._quorum, first_entry_id)
            self._stripe, self._stripe_mask = stripe, sum(1 << p for p in positions)
        return self._stripe_mask

    def _clear_sent(self, batch: UnsettledBatch, positions: int) -> None:
        cost = batch.payload_bytes + BATCH_COST_BYTES
        for position in _positions_in(batch.sent & positions):
            self._unanswered_bytes[position] = max(0, self._unanswered_bytes[position] - cost)


@lru_cache(maxsize=POSITION_MASKS_MAX)
def _positions_in(mask: int) -> tuple[int, ...]:
    return tuple(p for p in range(mask.bit_length()) if mask & (1 << p))


def _moved(mask: int, sources: Sequence[int | None]) -> int:
    """Return a position mask translated to another ensemble."""
    return sum(1 << p for p, s in enumerate(sources) if s is not None and mask & (1 << s))


def merge_adjacent(ranges: list[tuple[EntryId, EntryId]]) -> list[tuple[EntryId, EntryId]]:
    """Join ascending ranges (first, last) that touch."""
    merged: list[tuple[EntryId, EntryId]] = []
    for first, last in ranges:
        if merged and merged[-1][1] + 1 == first:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged

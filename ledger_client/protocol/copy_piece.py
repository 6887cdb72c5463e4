"""Entries that a copy sends on: the batches of the source as they are, or new batches of the same
entries.

Leaves reading and storing them to `ledger_client/copying.py`, and what the target's
answers mean to `copy_events.py`.

Invariants: entries keep their bytes and digests. A batch is sent on as it is only if it is complete
and the writer's, and its entry digests are valid; small ones are joined, because a bookie and its
log pay for each batch. A batch with a MAC that cannot be made again is sent on in any case.

Source: protocol rules 4.2, 4.3, 9.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bookie.wire.batch import BatchView, Buffer, build_batch
from bookie.wire.entries import Entries
from bookie.wire.errors import BatchError
from ledger_client.batches import EntryBatch
from ledger_client.digest import LedgerKeys
from ledger_client.protocol.cutting import cut_batches
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import stripe_end
from metadata.ledgers.ledger_metadata import QuorumSpec

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
            batches = [(each.header.first_entry_id, bytearray(each.data)) for each, _ in parts]
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
            length_before += sum(each.payload_bytes for each in joined) + part.payload_bytes
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

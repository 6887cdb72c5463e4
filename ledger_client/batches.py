"""Entries for the user: a batch as it arrived, whose entries are created on access.

Leaves checking the bytes to the receiver: wrapped bytes are verified.

Source: api design, "Client"; protocol rule 8.3.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from bookie.wire.batch import BatchHeader
from metadata.ids import EntryId, LedgerId


class Entry(NamedTuple):
    """One entry. A tuple, because a reader may create millions per second."""

    id: EntryId
    data: bytes


class PayloadView(Protocol):
    """Payloads of consecutive entries: a received batch, or one with decrypted payloads."""

    @property
    def header(self) -> BatchHeader:
        """Fixed part of the batch."""

    @property
    def lengths(self) -> Sequence[int]:
        """Payload size of each entry, in bytes."""

    @property
    def packed_lengths(self) -> bytes | memoryview:
        """The lengths, in 4 bytes each, little-endian."""

    @property
    def payload(self) -> memoryview:
        """All payloads, back to back."""


class EntryBatch:
    """Consecutive entries of one ledger."""

    __slots__ = ("_count", "_offsets", "_skip", "_view", "first_entry_id")

    def __init__(self, view: PayloadView, first_entry_id: EntryId, last_entry_id: EntryId) -> None:
        """Show the entries first..last of a batch, which must contain them."""
        header = view.header
        assert header.first_entry_id <= first_entry_id
        assert first_entry_id <= last_entry_id <= header.last_entry_id
        self.first_entry_id = first_entry_id
        self._view = view
        self._skip = first_entry_id - header.first_entry_id
        self._count = last_entry_id - first_entry_id + 1
        self._offsets: list[int] | None = None

    @property
    def last_entry_id(self) -> EntryId:
        """The id of the last entry."""
        return EntryId(self.first_entry_id + self._count - 1)

    @property
    def ledger_id(self) -> LedgerId:
        """The id of the ledger."""
        return self._view.header.ledger_id

    @property
    def payload_bytes(self) -> int:
        """Size of all payloads, in bytes."""
        if self._count == self._view.header.count:
            return self._view.header.payload_bytes
        offsets = self._known_offsets()
        return offsets[-1] - offsets[0]

    @property
    def packed_lengths(self) -> bytes | memoryview:
        """Payload size of each entry, in bytes: 4 bytes each, little-endian."""
        return self._view.packed_lengths[4 * self._skip : 4 * (self._skip + self._count)]

    @property
    def payload(self) -> memoryview:
        """All payloads back to back. The view shares memory: it keeps the received bytes alive."""
        if self._count == self._view.header.count:
            return self._view.payload
        offsets = self._known_offsets()
        return self._view.payload[offsets[0] : offsets[-1]]

    def clipped(self, first_entry_id: EntryId, last_entry_id: EntryId) -> "EntryBatch | None":
        """Return the part within first..last, or None if it is empty."""
        low = max(self.first_entry_id, first_entry_id)
        high = min(self.last_entry_id, last_entry_id)
        if low > high:
            return None
        if high - low + 1 == self._count:
            return self
        return EntryBatch(self._view, low, high)

    def header_of_shown(self, payload_bytes: int) -> BatchHeader:
        """Return the header of a batch with only the shown entries and other payloads of this
        size.
        """
        first, count = self.first_entry_id, self._count
        header = self._view.header
        return header._replace(first_entry_id=first, count=count, payload_bytes=payload_bytes)

    def buffers(self) -> tuple[memoryview, list[int]]:
        """Return `payload`, and n + 1 offsets: where each payload starts, and where the last one
        ends.
        """
        offsets = self._known_offsets()
        start = offsets[0]
        return self.payload, [offset - start for offset in offsets] if start else list(offsets)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Entry:
        if not -self._count <= index < self._count:
            raise IndexError(f"a batch of {self._count} entries has no entry {index}")
        index %= self._count
        offsets = self._known_offsets()
        data = bytes(self._view.payload[offsets[index] : offsets[index + 1]])
        return Entry(EntryId(self.first_entry_id + index), data)

    def __iter__(self) -> Iterator[Entry]:
        offsets = self._known_offsets()
        base = offsets[0]
        payload = bytes(self._view.payload[base : offsets[-1]])
        start = 0
        for entry_id, offset in enumerate(offsets[1:], self.first_entry_id):
            stop = offset - base
            yield Entry(EntryId(entry_id), payload[start:stop])
            start = stop

    def _known_offsets(self) -> list[int]:
        """Return where each shown entry starts in the batch's payload, and where the last
        one ends.
        """
        if self._offsets is None:
            offsets = list(accumulate(self._view.lengths, initial=0))
            self._offsets = offsets[self._skip : self._skip + self._count + 1]
        return self._offsets

"""State of a partition from its newest entries: the readable end, and aborted transactions.

Leaves following the ledger to `topic_partition`, and reading entries to the ledger client.

A read of only committed records needs the open transactions. So it reads all entries after the
newest state entry once, and later appends after them. Other reads need only the last entry, which
has its offset.

Invariants: entries after the requested one have no effect.

Source: topics design, "State entries"; KIP-98, "Last stable offset".
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    ControlKind,
    read_control,
    read_header,
)
from broker_layer.log.state.state_entry import OlderAborted, StateEntry, is_state_entry
from broker_layer.log.state.transaction_index import AbortedTransaction, TransactionIndex
from ledger_client.reading.reader import LedgerReader

WINDOW_ENTRIES: Final = 64
"""Number of entries of the first read backwards from the end; it doubles each time."""
WINDOW_ENTRIES_MAX: Final = 8_192

LookedAt = tuple[int, bytes, int]
"""An entry's id, its relevant bytes (only the header of a batch that is not a marker), and its
size."""


class TailState:
    """State after the entries up to one of them."""

    def __init__(self) -> None:
        self.next_offset = 0
        """Offset after the last record."""
        self.aborted: tuple[AbortedTransaction, ...] = ()
        """Aborted transactions within the log, from their markers."""
        self.older: OlderAborted | None = None
        """Where older ones are."""
        self._transactions = TransactionIndex()
        self._entry_count = 0
        self._entry_bytes = 0

    @property
    def stable_offset(self) -> int:
        """Offset before which the outcome of every transaction is known."""
        return self._transactions.last_stable_offset(self.next_offset)

    @property
    def entry_bytes(self) -> float:
        """Mean size of the entries that were read, in bytes."""
        return self._entry_bytes / max(1, self._entry_count)

    def take(self, data: bytes, size_bytes: int) -> None:
        """Apply the next entry's relevant bytes. Raises BatchError, StateEntryError if they are not
        valid.
        """
        self._entry_count += 1
        self._entry_bytes += size_bytes
        if is_state_entry(data):
            entry = StateEntry.decode(data)
            self.next_offset = entry.next_offset
            self._transactions.load(entry.open_transactions, entry.aborted)
            self.aborted, self.older = entry.aborted, entry.older
            return
        header = read_header(data)
        self.next_offset = header.next_offset
        if header.is_control:
            is_aborted = read_control(data)[0] is ControlKind.ABORT
            self._transactions.end(header.producer_id, header.base_offset, is_aborted=is_aborted)
            if len(self.aborted) != self._transactions.aborted_count:
                self.aborted = self._transactions.aborted_snapshot()
        elif header.is_transactional:
            self._transactions.begin(header.producer_id, header.base_offset)


class LogTail:
    """Newest entries of one ledger of a partition."""

    def __init__(self, reader: LedgerReader, *, is_committed: bool) -> None:
        self.reader = reader
        self.state = TailState()
        self.last_entry_id = -1
        """Last entry that was applied."""
        self._is_committed = is_committed

    async def advance(self, last: int) -> None:
        """Apply needed entries up to `last`. Raises LedgerError, BatchError, StateEntryError."""
        if last <= self.last_entry_id:
            return
        if not self._is_committed:
            await self._take(last, last)
        elif self.last_entry_id < 0:
            for _, data, size_bytes in await self._later_state_entry(last):
                self.state.take(data, size_bytes)
        else:
            await self._take(self.last_entry_id + 1, last)
        self.last_entry_id = last

    async def _take(self, first: int, last: int) -> None:
        async with aclosing(look_at(self.reader, first, last)) as entries:
            async for _, data, size_bytes in entries:
                self.state.take(data, size_bytes)

    async def _later_state_entry(self, last: int) -> list[LookedAt]:
        """Return the newest state entry and the entries after it."""
        later: list[LookedAt] = []
        end, window = last, WINDOW_ENTRIES
        while end >= 0:
            start = max(0, end - window + 1)
            found: list[LookedAt] = []
            async with aclosing(look_at(self.reader, start, end)) as entries:
                async for entry in entries:
                    if is_state_entry(entry[1]):
                        found.clear()
                    found.append(entry)
            later = found + later
            if is_state_entry(later[0][1]):
                break
            end, window = start - 1, min(2 * window, WINDOW_ENTRIES_MAX)
        return later


async def look_at(reader: LedgerReader, first: int, last: int) -> AsyncGenerator[LookedAt, None]:
    """Yield the relevant bytes of the entries `first` to `last`. Raises LedgerError, BatchError."""
    async with aclosing(reader.read_unconfirmed(first, last)) as batches:
        async for batch in batches:
            payload, offsets = batch.buffers()
            for index in range(len(batch)):
                data = payload[offsets[index] : offsets[index + 1]]
                is_whole = is_state_entry(data) or read_header(data).is_control
                counts = bytes(data if is_whole else data[:HEADER_BYTES])
                yield batch.first_entry_id + index, counts, len(data)

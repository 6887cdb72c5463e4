"""Admission of any number of entries as one range of ids, batch by batch, as the window allows.

Leaves confirming them to the calling writer. The cost per entry is that of C loops.

Source: api design, "Client".
"""

import asyncio
from collections.abc import AsyncIterable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from ledger_client.errors import LedgerError
from ledger_client.writing.batcher import BatchLimits, cut_batches, own_bytes, room_in_batch
from ledger_client.writing.window import ENTRY_COST_BYTES, AppendWindow
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec

EntryLike = bytes | bytearray | memoryview
TICK_BYTES: Final = 256 * 1024
"""Maximum bytes taken from an asynchronous iterable before the event loop runs other tasks."""


class AppendedRange:
    """Progress of one `append_many`."""

    def __init__(self) -> None:
        self.first = NO_ENTRY
        self.count = 0

    def note(self, first: EntryId, count: int) -> None:
        """Record entries that got ids."""
        if not self.count:
            self.first = first
        self.count += count

    def describe(self, error: LedgerError, lac: EntryId) -> LedgerError:
        """Return `error` with the facts about this range."""
        described = error.for_entry(EntryId(self.first), "unknown" if self.count else error.outcome)
        described.first_entry_id = EntryId(self.first)
        described.admitted_count = self.count
        described.confirmed_count = max(0, min(self.count, lac - self.first + 1))
        return described


class RangeWriter(Protocol):
    """Interface of a writer for admitting a range."""

    @property
    def ledger_id(self) -> LedgerId:
        """Id of the ledger, for errors."""

    @property
    def limits(self) -> BatchLimits:
        """Size limits of batches and entries."""

    @property
    def quorum(self) -> QuorumSpec:
        """Quorum of the ledger, which defines where stripes end."""

    @property
    def window(self) -> AppendWindow:
        """Limit of pending appends."""

    @property
    def next_entry_id(self) -> EntryId:
        """The id that the next entry will get."""

    def push_batch(self, payloads: list[bytes], payload_bytes: int) -> EntryId:
        """Assign ids to one batch and send it; return its first id."""

    def push_entry(self, payload: bytes, payload_bytes: int) -> EntryId:
        """Assign an id to one entry, which is sent with the others of this loop iteration; return
        the id.
        """


async def append_range(
    writer: RangeWriter,
    entries: Iterable[EntryLike] | AsyncIterable[EntryLike],
    done: AppendedRange,
) -> None:
    """Admit and send all entries; the caller holds the window's turn. `done` records the
    progress.
    """
    if isinstance(entries, AsyncIterable):
        await _append_as_they_come(writer, entries, done)
        return
    iterator: Iterator[EntryLike] = iter(entries)
    while chunk := list(islice(iterator, _room(writer))):
        await _admit(writer, chunk, done)
        await asyncio.sleep(0)  # let the loop send and receive between batches


async def _admit(writer: RangeWriter, chunk: list[EntryLike], done: AppendedRange) -> None:
    payloads, _ = own_bytes(chunk, writer.limits, writer.ledger_id)
    for cut in cut_batches(payloads, writer.next_entry_id, writer.quorum, writer.limits):
        await writer.window.wait_for_room(cut.payload_bytes, len(cut.payloads))
        first = writer.push_batch(list(cut.payloads), cut.payload_bytes)
        done.note(first, len(cut.payloads))


async def _append_as_they_come(
    writer: RangeWriter, entries: AsyncIterable[EntryLike], done: AppendedRange
) -> None:
    """Append each entry when it arrives: those of one loop iteration form one batch."""
    since_tick_bytes = 0
    async for entry in entries:
        (payload,), size = own_bytes((entry,), writer.limits, writer.ledger_id)
        await writer.window.wait_for_room(size, 1)
        done.note(writer.push_entry(payload, size), 1)
        since_tick_bytes += size + ENTRY_COST_BYTES
        if since_tick_bytes >= TICK_BYTES:
            since_tick_bytes = 0
            await asyncio.sleep(0)  # a source that never waits must not block the loop


def _room(writer: RangeWriter) -> int:
    return room_in_batch(writer.quorum, writer.next_entry_id, writer.limits)

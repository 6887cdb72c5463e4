"""Admits any number of entries as one range of ids, batch by batch, as the window allows.

Leaves confirming them to the writer that calls it. Per entry it costs what C loops cost.

Source: api, `append_many`.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Protocol

from ledger_client.batcher import BatchLimits, cut_batches, own_bytes, room_in_batch
from ledger_client.errors import LedgerError
from ledger_client.window import AppendWindow
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.ledger_metadata import QuorumSpec

EntryLike = bytes | bytearray | memoryview
GATHER_BYTES: int = 256 * 1024
"""An asynchronous iterable is gathered into batches of at most about so many bytes."""


class AppendedRange:
    """How far an `append_many` came."""

    def __init__(self) -> None:
        self.first = NO_ENTRY
        self.count = 0

    def note(self, first: EntryId, count: int) -> None:
        """Take note of entries that were given ids."""
        if not self.count:
            self.first = first
        self.count += count

    def describe(self, error: LedgerError, lac: EntryId) -> LedgerError:
        """Return `error` with what is known of this range."""
        described = error.for_entry(EntryId(self.first), "unknown" if self.count else error.outcome)
        described.first_entry_id = EntryId(self.first)
        described.admitted_count = self.count
        described.confirmed_count = max(0, min(self.count, lac - self.first + 1))
        return described


class RangeWriter(Protocol):
    """What admitting a range needs of a writer."""

    @property
    def ledger_id(self) -> LedgerId:
        """Names the ledger in errors."""
        ...

    @property
    def limits(self) -> BatchLimits:
        """How large batches and entries may be."""
        ...

    @property
    def quorum(self) -> QuorumSpec:
        """Tells where stripes end."""
        ...

    @property
    def window(self) -> AppendWindow:
        """Bounds what is pending."""
        ...

    @property
    def next_entry_id(self) -> EntryId:
        """The id that the next entry will get."""
        ...

    def push_batch(self, payloads: list[bytes], payload_bytes: int) -> EntryId:
        """Give ids to one batch and send it; return its first id."""
        ...


async def append_range(
    writer: RangeWriter,
    entries: Iterable[EntryLike] | AsyncIterable[EntryLike],
    done: AppendedRange,
) -> None:
    """Admit and send all entries; the caller holds the window's turn. `done` tells how far it
    came.
    """
    if isinstance(entries, AsyncIterable):
        source = aiter(entries)
        while chunk := await _gather(source, writer):
            await _admit(writer, chunk, done)
        return
    iterator: Iterator[EntryLike] = iter(entries)
    while chunk := list(islice(iterator, _room(writer))):
        await _admit(writer, chunk, done)
        await asyncio.sleep(0)  # lets the loop send and receive between batches


async def _admit(writer: RangeWriter, chunk: list[EntryLike], done: AppendedRange) -> None:
    payloads, _ = own_bytes(chunk, writer.limits, writer.ledger_id)
    for cut in cut_batches(payloads, writer.next_entry_id, writer.quorum, writer.limits):
        await writer.window.wait_for_room(cut.payload_bytes, len(cut.payloads))
        first = writer.push_batch(list(cut.payloads), cut.payload_bytes)
        done.note(first, len(cut.payloads))


async def _gather(source: AsyncIterator[EntryLike], writer: RangeWriter) -> list[EntryLike]:
    chunk: list[EntryLike] = []
    gathered_bytes = 0
    room = _room(writer)
    async for entry in source:
        chunk.append(entry)
        gathered_bytes += len(entry)
        if len(chunk) >= room or gathered_bytes >= GATHER_BYTES:
            break
    return chunk


def _room(writer: RangeWriter) -> int:
    return room_in_batch(writer.quorum, writer.next_entry_id, writer.limits)

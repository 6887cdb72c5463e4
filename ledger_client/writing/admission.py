"""Admission of a writer's entries: their ids, and their batches.

Leaves room for them to `outbox`, the bytes of batches to `bookie.wire.batch`, sending them to
`append_shell`, and confirming to `confirmations`. The cost per entry is that of C loops.

Invariants: entries are sent in the order of their ids; an entry that got an id is in the outbox
after the flush, or the writer has ended, so that no other entry gets the id; no batch crosses a
multiple of the stripe size, the entry limit or, unless it is one entry, the byte limit (rule 3.1).

Source: protocol rules 3.1 and 4.2; api design, "Client".
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

from ledger_client.config import ClientConfig
from ledger_client.errors import EntryTooLargeError, LedgerClosedError, LedgerError
from ledger_client.protocol.append_events import not_enough_in_sync
from ledger_client.tasks import NextTick
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.outbox import ENTRY_COST_BYTES, AppendWindow
from ledger_client.writing.writer_watch import WriterWatch
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.ledgers.copies import stripe_end
from metadata.ledgers.ledger_metadata import QuorumSpec

EntryLike = bytes | bytearray | memoryview


TICK_BYTES: Final = 256 * 1024
"""Maximum bytes taken from an asynchronous iterable before the event loop runs other tasks."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Size limits of one batch and one entry, for their stored bytes."""

    entries_max: int
    bytes_max: int
    entry_bytes_max: int
    overhead_bytes: int = 0
    """Number of bytes that encryption adds to each entry."""

    @classmethod
    def of(cls, config: ClientConfig, overhead_bytes: int = 0) -> "BatchLimits":
        """Return a client's limits. A batch fits into the window: an empty window admits any batch,
        and a larger one could exceed what a bookie may have unanswered (rule 4.6).
        """
        return cls(
            min(config.batch_entries_max, config.window_entries_max),
            min(config.batch_bytes_max, config.window_bytes_max),
            config.entry_bytes_max,
            overhead_bytes,
        )

    @property
    def payload_bytes_max(self) -> int:
        """Maximum size of an entry as it is appended."""
        return self.entry_bytes_max - self.overhead_bytes

    def stored_bytes(self, payload: bytes) -> int:
        """Return the number of bytes of an appended entry that bookies store."""
        return len(payload) + self.overhead_bytes


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One batch to build: its entries and the total of their stored bytes."""

    payloads: Sequence[bytes]
    payload_bytes: int


def own_bytes(
    items: Sequence[object], limits: BatchLimits, ledger_id: LedgerId
) -> tuple[Sequence[bytes], int]:
    """Return entries as `bytes`, copied if they were mutable, and the total of their stored bytes.

    Raises TypeError for an entry that is not bytes-like, EntryTooLargeError.
    """
    owned: list[bytes] = []
    if set(map(type, items)) == {bytes}:
        owned = items  # type: ignore[assignment]  # checked above to be bytes
    else:
        owned = [_own(item) for item in items]
    sizes = list(map(len, owned))
    limit = limits.payload_bytes_max
    if max(sizes, default=0) > limit:
        raise EntryTooLargeError(size=max(sizes), limit=limit, ledger_id=ledger_id)
    return owned, sum(sizes) + limits.overhead_bytes * len(sizes)


def own_entry(item: object, limits: BatchLimits, ledger_id: LedgerId) -> bytes:
    """Return one entry as `bytes`, copied if it was mutable. Raises the errors of `own_bytes`."""
    owned = item if type(item) is bytes else _own(item)
    if len(owned) > limits.payload_bytes_max:
        limit = limits.payload_bytes_max
        raise EntryTooLargeError(size=len(owned), limit=limit, ledger_id=ledger_id)
    return owned


def _own(item: object) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, bytearray | memoryview):
        return bytes(item)
    raise TypeError(f"an entry must be bytes, bytearray or memoryview, not {type(item).__name__}")


def room_in_batch(quorum: QuorumSpec, next_entry_id: EntryId, limits: BatchLimits) -> int:
    """Return the maximum number of entries in a batch that starts at `next_entry_id`."""
    return min(limits.entries_max, stripe_end(quorum, next_entry_id) - next_entry_id + 1)


def cut_batches(
    payloads: Sequence[bytes], first_entry_id: EntryId, quorum: QuorumSpec, limits: BatchLimits
) -> Iterable[PlannedBatch]:
    """Yield the batches of consecutive entries, in order."""
    start, count = 0, len(payloads)
    overhead = limits.overhead_bytes
    sizes = [len(payload) + overhead for payload in payloads] if overhead else map(len, payloads)
    ends = list(accumulate(sizes))
    while start < count:
        room = room_in_batch(quorum, EntryId(first_entry_id + start), limits)
        before = ends[start - 1] if start else 0
        stop = bisect_right(ends, before + limits.bytes_max, start, min(start + room, count))
        stop = max(stop, start + 1)
        whole = start == 0 and stop == count
        yield PlannedBatch(payloads if whole else payloads[start:stop], ends[stop - 1] - before)
        start = stop


class Admission:
    """Gives entries their ids, in order, and sends them; every call is synchronous."""

    def __init__(
        self,
        shell: AppendShell,
        watch: WriterWatch,
        limits: BatchLimits,
        next_tick: NextTick,
        ledger_id: LedgerId,
    ) -> None:
        self.limits = limits
        """Size limits of batches and entries."""
        self.ledger_id = ledger_id
        """Id of the ledger, for errors."""
        self.is_closing = False
        """Whether the writer admits nothing any more, because it is being closed."""
        self._shell = shell
        self._watch = watch
        self._next_tick = next_tick
        self._gathered: list[bytes] = []

    @property
    def last_pushed(self) -> EntryId:
        """The last assigned entry id; -1 before the first."""
        return EntryId(self._shell.outbox.lap + len(self._gathered))

    @property
    def next_entry_id(self) -> EntryId:
        """The id that the next entry will get."""
        return EntryId(self.last_pushed + 1)

    @property
    def quorum(self) -> QuorumSpec:
        """Replication of the ledger, which defines where stripes end."""
        return self._shell.protocol.metadata.quorum

    @property
    def window(self) -> AppendWindow:
        """Limit of pending appends."""
        return self._shell.window

    def push_entry(self, payload: bytes, payload_bytes: int) -> EntryId:
        """Assign an id to one entry, sent with the others of this loop iteration; return the id.
        The caller knows that the window has room.
        """
        self.require_open()
        if not self._gathered:
            self._next_tick.soon(self.flush)
        self._gathered.append(payload)
        self._shell.window.take(payload_bytes, 1)
        return self.last_pushed

    def push_batch(self, payloads: list[bytes], payload_bytes: int) -> EntryId:
        """Admit and send one complete batch (the caller holds the turn and has room); return its
        first id. Raises the error that ended the writer if that fails.
        """
        self.flush()
        self.require_open()
        shell = self._shell
        first = EntryId(shell.outbox.lap + 1)
        now = asyncio.get_running_loop().time()
        shell.window.take(payload_bytes, len(payloads))
        try:
            shell.push(payloads, payload_bytes, now)
        except Exception as error:  # part of it may have been sent
            raise shell.end_after(error).for_entry(first, "unknown") from error
        self._watch.note_sent(now)
        return first

    def flush(self) -> None:
        """Send the entries appended since the last loop iteration, in few batches. If that fails,
        the writer ends.
        """
        payloads, self._gathered = self._gathered, []
        if not payloads or self._shell.failure is not None:
            return
        try:
            self._send(payloads)
        except Exception as error:  # noqa: BLE001 - entries have ids, and were not sent
            self._shell.end_after(error)

    def _send(self, payloads: list[bytes]) -> None:
        shell = self._shell
        now = asyncio.get_running_loop().time()
        if len(payloads) == 1:  # a single entry always fits
            shell.push(payloads, self.limits.stored_bytes(payloads[0]), now)
        else:
            first = EntryId(shell.outbox.lap + 1)
            for cut in cut_batches(payloads, first, self.quorum, self.limits):
                shell.push(cut.payloads, cut.payload_bytes, now)
        self._watch.note_sent(now)

    def require_open(self) -> None:
        """Raise the error of a writer that admits nothing at present."""
        failure = self._shell.failure
        if failure is not None:
            raise failure.for_entry(EntryId(-1), "not_written")
        if self.is_closing:
            text = "this writer is closed: create a new ledger to continue"
            raise LedgerClosedError(text, ledger_id=self.ledger_id)
        if self._shell.protocol.lacks_in_sync:
            protocol = self._shell.protocol
            self._watch.wake()
            raise not_enough_in_sync(protocol.metadata, protocol.in_sync)


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


async def append_range(
    writer: Admission,
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


async def _admit(writer: Admission, chunk: list[EntryLike], done: AppendedRange) -> None:
    payloads, _ = own_bytes(chunk, writer.limits, writer.ledger_id)
    for cut in cut_batches(payloads, writer.next_entry_id, writer.quorum, writer.limits):
        await writer.window.wait_for_room(cut.payload_bytes, len(cut.payloads))
        first = writer.push_batch(list(cut.payloads), cut.payload_bytes)
        done.note(first, len(cut.payloads))


async def _append_as_they_come(
    writer: Admission, entries: AsyncIterable[EntryLike], done: AppendedRange
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


def _room(writer: Admission) -> int:
    return room_in_batch(writer.quorum, writer.next_entry_id, writer.limits)

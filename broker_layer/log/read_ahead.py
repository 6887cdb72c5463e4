"""Prefetch for sequential readers of one log.

Leaves reading to `log_reader`.

A read that ends before its limit leaves a *cursor* where it ended, with the batches that it read
and did not return. The read that begins there takes the cursor over; from then on pieces are read
ahead for it. A piece is an ordinary read of confirmed entries. The read that returns a piece
decides which of its batches may be returned, with the limit of that time.

Invariants: a cursor is held by one read or waits for one, and only a waiting cursor is dropped by
others; an error ends only its piece, and the read that needs the piece gets the error again; a
cursor that waits longer than KEPT_S is dropped; no piece is read that would exceed the memory of
all logs; after `aclose` nothing is kept or read ahead.

Source: decision 0014.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metadata.ids import EntryId, LedgerId

AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum number of bytes that are read ahead and not returned, over all logs of a broker."""
BATCH_COST_BYTES: Final = 352
"""Memory of one kept batch in addition to its bytes; for small batches this is the larger part."""
PIECE_BYTES_MIN: Final = 512 * 1024
PIECE_BYTES_MAX: Final = 4 * 1024 * 1024
READS_PER_PIECE: Final = 4
"""Size of a piece in sizes of one read: larger reads cost bookies and brokers less."""
PIECES_AHEAD: Final = 2
"""Maximum number of pieces kept for a cursor, including the one that is being read."""
CURSORS_MAX: Final = 64
"""Maximum number of waiting cursors of one log."""
KEPT_S: Final = 5.0
"""Time that a cursor waits for the next read, in seconds."""
FOLLOWING_COUNT: Final = 2
"""Number of reads after which a cursor's reader is treated as sequential."""
Batch = bytes | memoryview


class ReadBatch(NamedTuple):
    """A record batch, and its entry. A tuple, because one is created for each batch read."""

    last_offset: int
    ledger_id: LedgerId
    entry_id: EntryId
    data: memoryview


@dataclass(slots=True)
class BatchSelection:
    """Complete batches below `limit` for one read, at most `bytes_max` bytes in total.

    With `at_least_one`, the first batch is returned whatever its size.
    """

    limit: int
    bytes_max: int
    at_least_one: bool
    batches: list[Batch] = field(default_factory=list)
    size: int = 0
    newest: ReadBatch | None = None
    is_ended: bool = False
    """Whether the next batch must not be returned by this read."""

    @property
    def has_room(self) -> bool:
        """Whether the next batch would fit too, if it has the average size of the others."""
        count = len(self.batches)
        return not self.is_ended and (not count or self.size + self.size / count <= self.bytes_max)


class KeptBatches:
    """Consecutive batches from one offset on, read and not returned yet; empty at first.

    Invariants: batches are in the order of their offsets, and none ends below `next_offset`; a
    batch with a record at or above the reader's limit is not returned; the buffer in which batches
    were received counts in full until the last of them is returned.
    """

    __slots__ = ("_batches", "_frees", "next_offset", "read_offset", "size")

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        """The offset where the next read continues."""
        self.read_offset = offset
        """The offset after the last batch that was read."""
        self.size = 0
        """Bytes of all buffers that contain kept batches."""
        self._batches: deque[ReadBatch] = deque()
        self._frees: deque[int] = deque()  # for each batch: the bytes freed when it is returned

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, offset: int, piece: Sequence[ReadBatch]) -> None:
        """Keep batches that were read from `offset` on, if that is still `read_offset`."""
        if offset != self.read_offset:
            return
        held: object = None
        frees: deque[int] = deque()
        for batch in reversed(piece):
            buffer = batch.data.obj
            frees.appendleft(0 if buffer is held else memoryview(buffer).nbytes)
            held = buffer
        self._batches += piece
        self._frees += frees
        self.size += sum(frees)
        if piece:
            self.read_offset = piece[-1].last_offset + 1

    def move_into(self, selection: BatchSelection) -> None:
        """Move batches into a selection while it has room for them."""
        batches, limit, bytes_max = self._batches, selection.limit, selection.bytes_max
        while batches:
            batch = batches[0]
            size = selection.size + len(batch.data)
            is_first = selection.at_least_one and not selection.batches
            if batch.last_offset >= limit or (size > bytes_max and not is_first):
                selection.is_ended = True
                return
            batches.popleft()
            self.size -= self._frees.popleft()
            self.next_offset = batch.last_offset + 1
            selection.batches.append(batch.data)
            selection.size = size
            selection.newest = batch

    def clear(self) -> None:
        """Drop all batches."""
        self._batches.clear()
        self._frees.clear()
        self.size = 0
        self.read_offset = self.next_offset


ReadPiece = Callable[[int, int], Awaitable[Sequence[ReadBatch]]]
"""Reads confirmed batches. Arguments: the first offset, and the approximate number of bytes. The
result is empty only at the end.
"""


class AheadMemory:
    """Memory of batches that are read ahead, or of those that wait to be appended, over all logs of
    a broker.
    """

    __slots__ = ("_bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = AHEAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes may be read, or may wait."""
        return self.used_bytes + size <= self._bytes_max

    def change(self, size: int) -> None:
        """Add `size` to the used bytes; a negative size releases them."""
        self.used_bytes += size
        assert self.used_bytes >= 0, "more bytes are released than were taken"


@dataclass(slots=True, eq=False)
class Cursor:
    """Position of one reader in the log."""

    kept: KeptBatches
    limit: int = 0
    """Limit of its latest read."""
    piece_bytes: int = PIECE_BYTES_MIN
    read_count: int = 0
    reading: "asyncio.Task[None] | None" = None
    reading_bytes: int = 0
    counted_bytes: int = 0
    expiry: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """Memory of its kept batches and of the piece being read."""
        return self.kept.size + len(self.kept) * BATCH_COST_BYTES + self.reading_bytes

    @property
    def wants_piece(self) -> bool:
        """Whether another piece should be read ahead now."""
        kept = self.kept
        return (
            self.read_count >= FOLLOWING_COUNT
            and self.reading is None
            and kept.read_offset < self.limit
            and kept.size + self.piece_bytes <= PIECES_AHEAD * self.piece_bytes
        )


class ReadAhead:
    """The cursors of one log; belongs to one event loop."""

    def __init__(self, read_piece: ReadPiece, memory: AheadMemory) -> None:
        self._read_piece = read_piece
        self._memory = memory
        self._waiting: OrderedDict[int, Cursor] = OrderedDict()
        self._is_closed = False

    def take(self, offset: int) -> Cursor:
        """Return the cursor that waits at an offset, or a new one.

        The caller holds the cursor until it calls `keep` or `drop`.
        """
        cursor = self._waiting.pop(offset, None)
        if cursor is None:
            return Cursor(KeptBatches(offset))
        if cursor.expiry is not None:
            cursor.expiry.cancel()
        return cursor

    async def add_piece(self, cursor: Cursor, size: int) -> bool:
        """Add the piece being read, or read `size` bytes now; return whether there may be more."""
        if cursor.reading is not None:
            await cursor.reading
            return True
        offset = cursor.kept.read_offset
        piece = await self._read_piece(offset, size)
        cursor.kept.put(offset, piece)
        return bool(piece)

    def keep(self, cursor: Cursor, limit: int, bytes_max: int) -> None:
        """Make a cursor wait for the read that continues there, and read ahead for it.

        Of two cursors at one offset the one with fewer bytes is dropped; otherwise its batches
        would be read again and again.
        """
        offset = cursor.kept.next_offset
        cursor.limit = limit
        cursor.piece_bytes = min(max(READS_PER_PIECE * bytes_max, PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        cursor.read_count += 1
        is_at_end = not cursor.kept and cursor.reading is None and offset >= limit
        other = self._waiting.get(offset)
        is_needless = other is not None and other.held_bytes >= cursor.held_bytes
        if self._is_closed or is_at_end or is_needless:
            self.drop(cursor)
            return
        if other is not None:
            self.drop(self._waiting.pop(offset))
        left_over = cursor.held_bytes - cursor.counted_bytes
        if left_over > 0 and not self._memory.has_room(left_over):
            cursor.kept.clear()
        self._count(cursor)
        self._waiting[offset] = cursor
        cursor.expiry = asyncio.get_running_loop().call_later(KEPT_S, self._expire, offset)
        self._read_on(cursor)
        while len(self._waiting) > CURSORS_MAX:
            self.drop(self._waiting.popitem(last=False)[1])

    def drop(self, cursor: Cursor) -> None:
        """Drop a cursor, and cancel its read."""
        if cursor.reading is not None:
            cursor.reading.cancel()
            cursor.reading = None
        if cursor.expiry is not None:
            cursor.expiry.cancel()
        cursor.reading_bytes = 0
        cursor.kept.clear()
        self._count(cursor)

    async def aclose(self) -> None:
        """Drop all waiting cursors; a held cursor is dropped by the read that holds it."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, OrderedDict()
        readings = [waiter.reading for waiter in waiting.values() if waiter.reading is not None]
        for cursor in waiting.values():
            self.drop(cursor)
        await asyncio.gather(*readings, return_exceptions=True)

    def _expire(self, offset: int) -> None:
        self.drop(self._waiting.pop(offset))

    def _read_on(self, cursor: Cursor) -> None:
        if self._is_closed or not cursor.wants_piece:
            return
        if self._memory.has_room(cursor.piece_bytes):
            cursor.reading_bytes = cursor.piece_bytes
            cursor.reading = asyncio.get_running_loop().create_task(self._read_early(cursor))
            self._count(cursor)

    async def _read_early(self, cursor: Cursor) -> None:
        offset = cursor.kept.read_offset
        try:
            piece = await self._read_piece(offset, cursor.reading_bytes)
        except Exception:  # noqa: BLE001 - the read that needs this piece gets the error again
            piece = ()
        cursor.reading, cursor.reading_bytes = None, 0
        cursor.kept.put(offset, piece)
        self._count(cursor)
        if piece:
            self._read_on(cursor)

    def _count(self, cursor: Cursor) -> None:
        size = cursor.held_bytes
        self._memory.change(size - cursor.counted_bytes)
        cursor.counted_bytes = size

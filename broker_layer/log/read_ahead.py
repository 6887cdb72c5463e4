"""Reads on in a log for who reads it from one end to the other, before it asks for more.

Leaves what is kept to `kept_batches`, and reading to `log_reading`.

A read that ends before its limit leaves a *cursor* where it ended, with what was read beyond what
it returned. The read that begins there takes the cursor over, and from then on pieces as large as
it wants are read early. A piece is an ordinary read of entries that are confirmed; how far it may
be shown is decided by the read that returns it, with the limit of then.

Invariants: a cursor is held by one read, or waits for one, and only one that waits is dropped by
others; an error ends a piece and nothing else: the read that needs it meets it again; what waits
longer than `KEPT_S` is dropped, and what goes beyond the memory of all logs is not begun; after
`aclose` nothing is kept nor begun.

Source: decision 0014.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker_layer.log.kept_batches import KeptBatches, ReadBatch

AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is read ahead and not returned, over all logs of a broker."""
BATCH_COST_BYTES: Final = 352
"""What one batch that is kept takes beside its bytes: of small ones most is this."""
PIECE_BYTES_MIN: Final = 512 * 1024
PIECE_BYTES_MAX: Final = 4 * 1024 * 1024
READS_PER_PIECE: Final = 4
"""A piece is so many times what one read wants: larger reads cost bookies and brokers less."""
PIECES_AHEAD: Final = 2
"""So many pieces are kept for a cursor, what is being read included."""
CURSORS_MAX: Final = 64
"""Of one log."""
KEPT_S: Final = 5.0
FOLLOWING_COUNT: Final = 2
"""From this read of its own on, a cursor is taken to go through the log."""

ReadPiece = Callable[[int, int], Awaitable[Sequence[ReadBatch]]]
"""Reads from an offset on so many bytes, whatever is confirmed there; nothing only at the end."""


class AheadMemory:
    """Counts what is read ahead, over all logs of a broker."""

    __slots__ = ("_bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = AHEAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def has_room(self, size: int) -> bool:
        """Tell whether so many more bytes may be read."""
        return self.used_bytes + size <= self._bytes_max

    def change(self, size: int) -> None:
        """Count bytes in, or out where there are less."""
        self.used_bytes += size
        assert self.used_bytes >= 0, "more is given back than was taken"


@dataclass(slots=True, eq=False)
class Cursor:
    """Where one reader is in the log."""

    kept: KeptBatches
    limit: int = 0
    """What its latest read might return is below."""
    piece_bytes: int = PIECE_BYTES_MIN
    read_count: int = 0
    reading: "asyncio.Task[None] | None" = None
    reading_bytes: int = 0
    counted_bytes: int = 0
    expiry: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """What is kept for it, and being read."""
        return self.kept.size + len(self.kept) * BATCH_COST_BYTES + self.reading_bytes

    @property
    def wants_piece(self) -> bool:
        """Tell whether a piece should be read early now."""
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
        """Return the cursor that waits at an offset, or a new one; the caller holds it until `keep`
        or `drop`.
        """
        cursor = self._waiting.pop(offset, None)
        if cursor is None:
            return Cursor(KeptBatches(offset))
        if cursor.expiry is not None:
            cursor.expiry.cancel()
        return cursor

    async def add_piece(self, cursor: Cursor, size: int) -> bool:
        """Add what is being read, or read so much now; tell whether there may be more then."""
        if cursor.reading is not None:
            await cursor.reading
            return True
        offset = cursor.kept.read_offset
        piece = await self._read_piece(offset, size)
        cursor.kept.put(offset, piece)
        return bool(piece)

    def keep(self, cursor: Cursor, limit: int, bytes_max: int) -> None:
        """Let a cursor wait for the read that goes on there, and read ahead for it. Of two at one
        place the one with less is dropped, or its reader would have it read again and again.
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
        """Forget a cursor, and end what is being read for it."""
        if cursor.reading is not None:
            cursor.reading.cancel()
            cursor.reading = None
        if cursor.expiry is not None:
            cursor.expiry.cancel()
        cursor.reading_bytes = 0
        cursor.kept.clear()
        self._count(cursor)

    async def aclose(self) -> None:
        """Drop everything that waits; what is held is dropped by whoever holds it."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, OrderedDict()
        readings = [each.reading for each in waiting.values() if each.reading is not None]
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
        except Exception:  # noqa: BLE001 - the read that needs this piece meets it again
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

"""Reads of ranges of many ledgers, in order, with the next ledgers under way.

Leaves opening a ledger to `client_session`, and the requests of one ledger to `reader`.

A job that reads many small ledgers one after the other mostly waits: each needs its metadata and
one answer of a bookie. So ledgers are opened and read ahead, many small ones or one large one.

Invariants: parts come in the order of the ranges, and in the order of entries within a range; a
range that fails ends with its failure, and the ranges after it are read; at most
LEDGERS_AHEAD_MAX ledgers are open, and each holds about BUFFER_BYTES_MAX that was not taken yet;
nothing is left running when the iterator is closed.

Source: Spark design, "Reading".
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from ledger_client.batches import EntryBatch
from ledger_client.errors import LedgerError
from ledger_client.info import LedgerInfo
from ledger_client.reading.reader import LedgerReader
from metadata.cancelling import cancel_and_wait
from metadata.ids import LedgerId

LEDGERS_AHEAD_MAX: Final = 64
"""Maximum number of ledgers that are open at once."""
AHEAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum size of the ranges under way, in bytes; the range after the current one always is."""
BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of the received entries of one range at which its reading pauses, in bytes."""
PARTS_PER_CHUNK_MAX: Final = 1_000

OpenLedger = Callable[[LedgerId], Awaitable[LedgerReader]]


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Entries `first` to `last` of a ledger."""

    ledger_id: int
    first: int
    last: int
    size: float = AHEAD_BYTES_MAX
    """Approximate size of the entries, in bytes: many ranges are read ahead only if they are known
    to be small.
    """


@dataclass(frozen=True, slots=True)
class RangePart:
    """The next entries of a range, or the failure that ends it."""

    index: int
    """Position of the range among those that were requested."""
    info: LedgerInfo | None
    """The ledger when it was opened; None if it could not be opened."""
    batch: EntryBatch | None
    failure: LedgerError | None = None
    last_confirmed: int = -1
    """The last readable entry at the time of the failure."""


class _RangeRead:
    """One range, read into a buffer."""

    def __init__(self, index: int, wanted: LedgerRange, open_ledger: OpenLedger) -> None:
        self._index = index
        self._wanted = wanted
        self._open = open_ledger
        self._parts: list[RangePart] = []
        self._bytes = 0
        self._has_parts = asyncio.Event()
        self._has_room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: self._has_parts.set())

    @property
    def size(self) -> float:
        """Approximate size of the range, in bytes."""
        return self._wanted.size

    async def take(self) -> tuple[list[RangePart], int]:
        """Return the next parts, at least one, and their size in bytes; none at the end."""
        await self._has_parts.wait()
        if self._task.done():
            self._task.result()
        else:
            self._has_parts.clear()
        parts, size = self._parts, self._bytes
        self._parts, self._bytes = [], 0
        self._has_room.set()
        return parts, size

    async def aclose(self) -> None:
        """End the read."""
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        reader: LedgerReader | None = None
        info: LedgerInfo | None = None
        try:
            reader = await self._open(LedgerId(self._wanted.ledger_id))
            info = reader.info
            async with aclosing(reader.read(self._wanted.first, self._wanted.last)) as batches:
                async for batch in batches:
                    await self._add(RangePart(self._index, info, batch), batch.payload_bytes)
        except LedgerError as error:
            last = -1 if reader is None else reader.last_confirmed
            await self._add(RangePart(self._index, info, None, error, last), 0)
        finally:
            if reader is not None:
                await reader.aclose()

    async def _add(self, part: RangePart, size: int) -> None:
        self._parts.append(part)
        self._bytes += size
        self._has_parts.set()
        while self._bytes >= BUFFER_BYTES_MAX:
            self._has_room.clear()
            await self._has_room.wait()


async def read_ranges(
    open_ledger: OpenLedger, ranges: Iterable[LedgerRange], chunk_bytes: int
) -> AsyncGenerator[list[RangePart], None]:
    """Yield the parts of all ranges, in order, in chunks of about `chunk_bytes`."""
    waiting = deque(enumerate(ranges))
    under_way: deque[_RangeRead] = deque()
    ahead_bytes = 0.0
    chunk: list[RangePart] = []
    size = 0
    try:
        while waiting or under_way:
            while waiting and _may_start(len(under_way), ahead_bytes + waiting[0][1].size):
                started = _RangeRead(*waiting.popleft(), open_ledger)
                under_way.append(started)
                ahead_bytes += started.size
            parts, received = await under_way[0].take()
            if not parts:
                ahead_bytes -= under_way.popleft().size
                continue
            chunk += parts
            size += received
            if size >= chunk_bytes or len(chunk) >= PARTS_PER_CHUNK_MAX:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk
    finally:
        for read in under_way:
            await read.aclose()


def _may_start(under_way: int, size: float) -> bool:
    """Return whether one more range may be under way, if all of them then have this size."""
    return under_way < 2 or (under_way < LEDGERS_AHEAD_MAX and size <= AHEAD_BYTES_MAX)  # noqa: PLR2004

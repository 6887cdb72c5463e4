"""Limit of a writer's unconfirmed appends, and the queue of callers that wait for room.

Leaves the entries themselves to the writer.

Invariants: callers are admitted first come, first served; `append_many` holds its place until its
last entry is admitted, so that its ids are one range.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ledger_client.errors import LedgerError

ENTRY_COST_BYTES: Final = 64
"""Cost of one pending entry in addition to its payload."""


class AppendWindow:
    """Counts of the unconfirmed bytes and entries of one ledger."""

    def __init__(self, bytes_max: int, entries_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._bytes = 0
        self._entries = 0
        self._failure: LedgerError | None = None
        self._changed = asyncio.Event()
        self._is_turn_taken = False
        self._line: deque[asyncio.Future[None]] = deque()
        self._in_line = 0

    @property
    def entries(self) -> int:
        """Number of entries that have an id and are not confirmed."""
        return self._entries

    def has_room(self, payload_bytes: int, count: int = 1) -> bool:
        """Return whether this much may be admitted now; anything may when nothing is pending, so
        that an entry larger than the window has its turn too.
        """
        if not self._entries:
            return True
        return (
            self._bytes + payload_bytes + count * ENTRY_COST_BYTES <= self._bytes_max
            and self._entries + count <= self._entries_max
        )

    def is_free(self, payload_bytes: int) -> bool:
        """Return whether an entry may be admitted now and no earlier caller waits."""
        return not self._in_line and self.has_room(payload_bytes)

    def take(self, payload_bytes: int, count: int) -> None:
        """Count entries that got ids."""
        self._bytes += payload_bytes + count * ENTRY_COST_BYTES
        self._entries += count

    def release(self, payload_bytes: int, count: int) -> None:
        """Count entries that are confirmed or failed, and wake callers that wait for room."""
        self._bytes -= payload_bytes + count * ENTRY_COST_BYTES
        self._entries -= count
        assert self._bytes >= 0, "released more than was taken"
        self._wake()

    def fail(self, error: LedgerError) -> None:
        """Make every caller that waits for room or in line, now or later, raise `error`."""
        self._failure = error
        self._wake()
        for turn in self._line:
            if not turn.done():
                turn.set_exception(error.fresh())

    async def wait_for_room(self, payload_bytes: int, count: int) -> None:
        """Return once this much may be admitted; the caller holds the turn."""
        while True:
            if self._failure is not None:
                raise self._failure.fresh()
            if self.has_room(payload_bytes, count):
                return
            await self._changed.wait()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Context of the one caller that waits for room or admits a range; others wait in line."""
        # Counted from here on: a caller that got the turn may not have run yet, but came before.
        self._in_line += 1
        try:
            await self._take_turn()
            try:
                yield
            finally:
                self._pass_turn()
        finally:
            self._in_line -= 1

    async def _take_turn(self) -> None:
        if self._failure is not None:
            raise self._failure.fresh()
        if not self._is_turn_taken:
            self._is_turn_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_turn()  # it got the turn in the loop iteration of the cancellation
            raise

    def _pass_turn(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_turn_taken = False

    def _wake(self) -> None:
        self._changed.set()  # every caller that waits now returns from `wait`
        self._changed.clear()

"""Memory that one connection has for answers, in the account of all connections of a server.

Leaves turns and shares to `quire.identity.fair_queue`, and the account to
`quire.server.connection_context`.

Invariants: what a connection holds is the bytes reserved for answers that are being made, and the
bytes that were sent and not taken when they were last counted; `close` gives all of it back, and
nothing is held after it. A connection that holds something keeps the name that it took it by.
"""

import asyncio
from collections.abc import Callable

from quire.identity.fair_queue import FairQueue


class AnswerRoom:
    """What one connection holds."""

    __slots__ = (
        "_account",
        "_holder",
        "_holder_of",
        "_is_closed",
        "_reserved",
        "_share",
        "_turns",
        "_unsent",
    )

    def __init__(self, account: FairQueue, share_bytes: int, holder_of: Callable[[], str]) -> None:
        """`holder_of` returns the client: its principal, or its address without one."""
        self._account = account
        self._share = share_bytes
        self._holder_of = holder_of
        self._holder = ""
        self._reserved = 0
        self._unsent = 0
        self._is_closed = False
        self._turns: dict[asyncio.Task[None], None] = {}
        """Waits for a turn."""

    @property
    def is_empty(self) -> bool:
        """Whether the connection holds nothing."""
        return not (self._reserved or self._unsent)

    def usable(self, count: int) -> int:
        """Return how many bytes to reserve for an answer of `count` bytes: a share at most."""
        return min(count, self._share)

    def has_room(self, count: int) -> bool:
        """Return whether so many bytes can be reserved now."""
        return self._account.has_room(self._name(), self.usable(count))

    def reserve_now(self, count: int) -> bool:
        """Reserve bytes, unless there is no room now, or other requests of the client wait. A lost
        connection needs none, because nothing would give them back.
        """
        if self._is_closed:
            return True
        if not self._account.take(self._name(), count):
            return False
        self._reserved += count
        return True

    async def reserve(self, count: int) -> None:
        """Reserve bytes when it is the client's turn; none if the connection is lost. Raises
        QueueFullError.
        """
        if self.reserve_now(count):
            return
        holder = self._name()
        turn = asyncio.get_running_loop().create_task(self._account.wait(holder, count))
        self._turns[turn] = None
        try:
            await asyncio.gather(turn, return_exceptions=True)
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:
                self._account.give_back(holder, count)
            raise
        finally:
            del self._turns[turn]
        if turn.cancelled():
            return  # the connection is lost
        turn.result()
        if self._is_closed:
            self._account.give_back(holder, count)
        else:
            self._reserved += count

    def release(self, count: int) -> None:
        """Give reserved bytes back."""
        if count and not self._is_closed:
            self._reserved -= count
            self._account.give_back(self._holder, count)

    def settle(self, unsent: int, spent: int = 0) -> bool:
        """Count the bytes that are unsent now, `spent` of which were reserved. Return False, and
        count as before, if there is no room for them.
        """
        if self._is_closed:
            return True
        more = unsent - self._unsent - spent
        if more > 0 and not self._account.add(self._name(), more):
            return False
        self._reserved -= spent
        self._unsent = unsent
        if more < 0:
            self._account.give_back(self._holder, -more)
        return True

    def close(self) -> None:
        """Give everything back, because the connection is lost."""
        held, self._is_closed = self._reserved + self._unsent, True
        for turn in self._turns:
            turn.cancel()
        if held:
            self._account.give_back(self._holder, held)

    def _name(self) -> str:
        if self.is_empty and not self._turns:
            self._holder = self._holder_of()
        return self._holder

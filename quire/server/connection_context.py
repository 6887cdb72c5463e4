"""State shared by all connections of one server: limits, counters, turns, room for answers, and the
open connections.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import TYPE_CHECKING, Final

from quire.identity.shares import FairQueue, Shares
from quire.server.server_log import ServerLog

if TYPE_CHECKING:
    from quire.server.connection import ServerConnection

COUNT_AGAIN_S: Final = 0.01
MAPPED: Final = "::ffff:"
"""Beginning of an IPv4 address in the form of IPv6, as sockets for both report it."""
LARGE_BYTES: Final = 8 * 1024
"""Size of a frame whose request is large: 250 partitions of a Fetch."""
LARGE_WAITING_MAX: Final = 10_000
"""Maximum number of large requests of one client that wait for a turn; a further one ends its
connection.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits that every server has for its connections."""

    connections_max: int = 1_000
    connections_per_address_max: int = 0
    """Maximum number of open connections from one address; 0: no limit."""

    write_buffer_bytes_max: int = 4 * 1024 * 1024
    """Unsent bytes above which no requests are read from the client and no reads are started."""

    write_stall_s: float = 30.0
    """A client that does not read its answers for this long is disconnected."""

    write_stall_crowded_s: float = 2.0
    """The same, while answers of clients wait for room in `unsent_bytes_max`."""

    unsent_bytes_max: int = 128 * 1024 * 1024
    """Maximum bytes of all connections' answers that are being read or are not sent yet. Without
    room, reads wait, clients that take nothing meanwhile are disconnected, and so is one whose
    answer needs no wait and finds no room.
    """

    unsent_bytes_of_client_max: int = 64 * 1024 * 1024
    """The same of one client: a principal, or an address without one."""

    frame_deadline_s: float = 30.0
    """Maximum time from the first byte of a frame to its end."""

    sweep_interval_s: float = 1.0
    """Time between two checks of all deadlines."""

    drain_timeout_s: float = 10.0
    """Maximum time that a closing server waits for answers."""


@dataclass(slots=True)
class ConnectionCounters:
    """Counters that every server has, since the start of the process; `*_now` are gauges."""

    connections_now: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_refused_of_address: int = 0
    peers_dropped: int = 0
    bytes_received: int = 0
    requests_failed: int = 0
    bad_frames: int = 0
    reading_paused: int = 0


class AnswerRoom:
    """What one connection holds.

    What a connection holds is the bytes reserved for answers that are being made, and the bytes
    that were sent and not taken when they were last counted; `close` gives all of it back, and
    nothing is held after it. A connection that holds something keeps the name that it took it by.
    """

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


class ConnectionContext:
    """State shared by connections, for one event loop."""

    def __init__(
        self,
        limits: ConnectionLimits,
        counters: ConnectionCounters,
        log: ServerLog,
        now: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.counters = counters
        self.log = log
        self.now = now
        self.is_closing = False
        self.addresses = AddressLimits(limits.connections_per_address_max)
        self.connections: dict[ServerConnection, None] = {}
        share = limits.unsent_bytes_of_client_max
        self.unsent = FairQueue(limits.unsent_bytes_max, share, limits.connections_max)
        """Account of the bytes of answers of all connections; each waits for one answer."""
        self._count_again_s = 0.0
        self.turns = StepTurns()
        """Turns among connections with more frames than are served at once."""

    def room_for(self, holder_of: Callable[[], str]) -> AnswerRoom:
        """Return the room of a new connection for answers."""
        limits = self.limits
        share = min(limits.unsent_bytes_max, limits.unsent_bytes_of_client_max)
        return AnswerRoom(self.unsent, share, holder_of)

    def count_unsent(self) -> None:
        """Count the unsent bytes of all connections again, because clients may have read; at most
        once in COUNT_AGAIN_S, as it takes a time for each connection.
        """
        now_s = self.now()
        if now_s < self._count_again_s:
            return
        self._count_again_s = now_s + COUNT_AGAIN_S
        for connection in list(self.connections):
            connection.count_unsent()

    def connection_made(self, connection: "ServerConnection") -> None:
        """Add a new connection, or refuse it."""
        if self.is_closing or len(self.connections) >= self.limits.connections_max:
            self.counters.connections_refused += 1
            self.log.warning("connection refused", connections=len(self.connections))
            connection.abort()
            return
        why = self.addresses.refusal(connection.address, self.now())
        if why is not None:
            self.counters.connections_refused_of_address += 1
            self.log.warning("connection refused", peer=connection.address, reason=why)
            connection.abort()
            return
        self.counters.connections_accepted += 1
        self.connections[connection] = None
        self.counters.connections_now = len(self.connections)

    def connection_lost(self, connection: "ServerConnection") -> None:
        """Remove a connection."""
        if connection not in self.connections:
            return  # it was refused
        del self.connections[connection]
        self.addresses.release(connection.address)
        self.counters.connections_now = len(self.connections)

    def abort_connections(self) -> None:
        """Close every connection at once and accept no more, so that no answer is sent."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.abort()


class AddressLimits:
    """The connections of each address, for one server.

    An address has at most `connections_max` admitted connections, if that is not 0; only addresses
    with open connections are kept.
    """

    def __init__(self, connections_max: int) -> None:
        """With `connections_max` 0 there is no limit of their number."""
        self._connections_max = connections_max
        self._shares = Shares(sys.maxsize, connections_max)
        self.is_within_rate: Callable[[str, float], bool] | None = None
        """Counts a new connection of an address at a time, unless its address makes too many."""

    def refusal(self, address: str, now_s: float) -> str | None:
        """Return why a new connection is refused; None if it is admitted, and so counted."""
        if self._connections_max and not self._shares.take(address):
            return "the address has too many connections"
        if self.is_within_rate is not None and not self.is_within_rate(address, now_s):
            self.release(address)
            return "the address makes connections too fast"
        return None

    def release(self, address: str) -> None:
        """Note the end of an admitted connection."""
        if self._connections_max:
            self._shares.give_back(address)


def plain_address(host: str) -> str:
    """Return an address without the form of IPv6 around IPv4, and without its zone."""
    if host.startswith(MAPPED) and "." in host:
        return host[len(MAPPED) :]
    return host.partition("%")[0]


class StepTurns:
    """The steps of the large requests of one event loop.

    Such work is a large request, or what is left of many small ones that came at once. Leaves where
    a step ends to the work (`broker_layer.turns`, `quire.server.connection`), and small requests to
    the loop.

    Between two looks at the sockets at most one step of all these runs, so a small request waits
    for one step at a time, however many large ones came on however many connections; clients take
    turns, so the large request of one waits for a step or two of each other one. A request is large
    from the start if its frame has LARGE_BYTES, any other one from when it first passes the loop
    on.
    """

    def __init__(self) -> None:
        self._turns = FairQueue(1, 1, LARGE_WAITING_MAX)

    async def run(
        self, holder: str, work: Coroutine[None, None, None], frame_bytes: int = 0
    ) -> None:
        """Run the work of a request, whose client is `holder`. Raises QueueFullError."""
        await self._stepped(holder, work, is_large=frame_bytes >= LARGE_BYTES)

    @coroutine
    def _stepped(
        self, holder: str, work: Coroutine[None, None, None], *, is_large: bool
    ) -> Generator[None, None, None]:
        failure: BaseException | None = None
        while True:
            if is_large:
                try:
                    yield from self._take(holder).__await__()
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is for the work
                    failure = error
            try:
                waits_for = work.send(None) if failure is None else work.throw(failure)
            except StopIteration:
                return
            failure = None
            is_large = is_large or waits_for is None  # a bare pass of the loop
            try:
                yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is for the work
                failure = error

    async def _take(self, holder: str) -> None:
        """Take the turn of this pass; the next one is another turn."""
        if not self._turns.take(holder):
            await self._turns.wait(holder)
        asyncio.get_running_loop().call_soon(self._turns.give_back, holder)

"""Client's session with a gateway, kept from connection to connection.

Leaves frames to `connection.py`, the state to `metadata.store.session_clock`, and calls to
`store.py`.

A session lives in the memory of one gateway. A client that loses its connection comes back to the
same gateway first, and goes on with its session if it comes in time. Another gateway gives it a new
session: the client then reports EXPIRED, and CONNECTED.

Invariants: EXPIRED is reported no later than ephemeral nodes of the session may be gone. The
gateway removes them when it has heard nothing of the client for the session's time; ZooKeeper does
when it has heard nothing of the gateway, and a gateway answers a ping only after ZooKeeper has
answered it. A gateway that answers nothing is left so early that the session can move.

Source: docs/formats.md, "Connections to a gateway"; metadata design.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError
from metadata.gateway.codec import welcome_of
from metadata.gateway.connection import GatewayConnection, connect
from metadata.gateway.errors import GatewayFormatError
from metadata.gateway.messages import (
    NO_SESSION,
    PROTOCOL_VERSION,
    CloseSession,
    Hello,
    Ping,
    Welcome,
)
from metadata.store.session_clock import SessionClock
from metadata.store.uri import MetadataUri
from metadata.store.zookeeper.session import LinkDown, LinkUp, try_timeout_s
from quire.addresses import join_address
from quire.identity.tls import ContextSource

BEATS_PER_SESSION: Final = 4
CLOSE_S_MAX: Final = 5.0
"""Maximum time for the end of a session; without an answer, its time ends it."""


class GatewaySession:
    """One session after the other, from `start` to `aclose`."""

    def __init__(
        self,
        uri: MetadataUri,
        ssl: ContextSource | None,
        clock: SessionClock,
        rng: Random,
        *,
        on_event: Callable[[int], None],
        on_change: Callable[[GatewayConnection | None], None],
    ) -> None:
        """`on_event` takes the number of a watch; `on_change` a connection that serves from now on,
        or None when it is lost.
        """
        self._addresses = list(uri.hosts)
        rng.shuffle(self._addresses)
        self._ssl = ssl
        self._clock = clock
        self._wanted_s = clock.session_timeout_s
        self._rng = rng
        self._on_event = on_event
        self._on_change = on_change
        self._token = b""
        self._session_id = NO_SESSION
        self._connection: GatewayConnection | None = None
        self._lost = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.failure = ""
        """Why the last attempt to connect failed; empty after a success."""
        self.watches_max = 1

    def start(self) -> None:
        """Connect, and stay connected, in the background."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._stay_connected()), loop.create_task(self._beat())]

    async def aclose(self) -> None:
        """End the session, at once if the gateway answers."""
        await cancel_and_wait(*self._tasks)
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await connection.call(CloseSession())
        except (OSError, MetadataError, TimeoutError, OverflowError):
            pass  # the session ends by its time
        connection.abort()

    def cut(self) -> None:
        """Abandon the connection; another one follows."""
        if self._connection is not None:
            self._connection.abort()

    async def _stay_connected(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            for _ in range(len(self._addresses)):
                if await self._try_first():
                    backoff.count = 0
                    await self._lost.wait()
                    self._on_change(None)
                    self._clock.note_link(LinkDown())
                    break  # the same gateway has the session
                self._addresses.append(self._addresses.pop(0))
            await asyncio.sleep(backoff.next_s())

    async def _try_first(self) -> bool:
        """Connect to the first address, and begin or go on with a session."""
        host, port = self._addresses[0]
        self._lost.clear()
        connection: GatewayConnection | None = None
        try:
            async with asyncio.timeout(try_timeout_s(self._wanted_s, len(self._addresses))):
                began_s = asyncio.get_running_loop().time()
                context = None if self._ssl is None else self._ssl(began_s)
                connection = await connect(host, port, context, self._on_event, self._note_lost)
                sent_s = asyncio.get_running_loop().time()
                welcome = welcome_of(await connection.call(self._hello()))
        except (OSError, MetadataError, GatewayFormatError, TimeoutError) as error:
            known = "" if connection is None else connection.failure
            self.failure = (
                f"{join_address(host, port)}: {known or str(error) or type(error).__name__}"
            )
            return self._give_up(connection)
        except BaseException:
            self._give_up(connection)
            raise
        if not connection.is_open:
            return False
        self._serve(connection, welcome, sent_s)
        return True

    def _hello(self) -> Hello:
        timeout_ms = max(1, int(self._wanted_s * 1000))
        return Hello(
            PROTOCOL_VERSION, PROTOCOL_VERSION, self._session_id, self._token, timeout_ms, "quire"
        )

    def _serve(self, connection: GatewayConnection, welcome: Welcome, sent_s: float) -> None:
        self.failure = ""
        self._connection = connection
        self._session_id, self._token = welcome.session_id, welcome.token
        self.watches_max = welcome.watches_max
        timeout_s = welcome.session_timeout_ms / 1000
        self._clock.note_link(LinkUp(welcome.session_id, timeout_s, sent_s))
        self._on_change(connection)

    def _give_up(self, connection: GatewayConnection | None) -> bool:
        if connection is not None:
            connection.abort()
        return False

    def _note_lost(self, connection: GatewayConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self._lost.set()

    async def _beat(self) -> None:
        """Ping several times per session, expire it by the clock, and leave a gateway that is
        silent.
        """
        loop, clock = asyncio.get_running_loop(), self._clock
        pending: asyncio.Future[None] | None = None
        while True:
            now = loop.time()
            clock.check(now)
            connection = self._connection
            if connection is not None and now >= clock.silent_s:
                connection.abort()
            elif connection is not None and (pending is None or pending.done()):
                pending = loop.create_task(self._ping(connection, now))
            times = (
                now + clock.session_timeout_s / BEATS_PER_SESSION,
                clock.ends_s,
                clock.silent_s,
            )
            await asyncio.sleep(min(time for time in times if time > now) - now)

    async def _ping(self, connection: GatewayConnection, sent_s: float) -> None:
        try:
            await connection.call(Ping())
        except (OSError, MetadataError, OverflowError):
            return  # the clock decides
        if connection is self._connection:
            self._clock.contacted(sent_s, asyncio.get_running_loop().time())

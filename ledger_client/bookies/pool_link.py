"""Link from the client to one bookie: connects on demand and reconnects.

Leaves the traffic to `ledger_client.bookies.connection`, and the decision to replace the bookie to
the writers.

Invariants: at most one connection and one attempt at a time; requests during an attempt, with its
login, wait for its outcome, limited in bytes; between attempts everything fails at once with the
last failure; whatever an attempt raises is a failure of the bookie, unless the client ends it; a
ledger's key is the first thing sent for that ledger on a connection.

Source: protocol rules 2.1, 2.3, 4.6 and 12.6.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final, Protocol

from bookie.wire.frames import BodyPool
from bookie.wire.messages import (
    BeginLogin,
    ContinueLogin,
    Hello,
    HelloReply,
    LoginReply,
    Request,
    Status,
)
from ledger_client.bookies.bookie_login import log_in
from ledger_client.bookies.connection import Answer, BookieConnection, RefusedCallback
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure, PendingAdd
from ledger_client.config import ClientConfig
from ledger_client.protocol.suspicion import RecentLatency
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError
from metadata.ids import BookieId, LedgerId
from quire.identity.sasl_access import SaslAccess
from quire.identity.tls import ContextSource

RECONNECT_DELAY_MIN_S: Final = 0.05
SETTLED_AFTER_S: Final = 5.0
"""Lifetime after which a lost connection is renewed without delay, in seconds."""
BACK_OFF_DOUBLINGS_MAX: Final = 16
REFUSED_DELAY_MAX_S: Final = 10.0
"""Longest pause after a bookie refused the login or the credentials of this client, in seconds: an
operator has to change something.
"""
HELLO_ATTEMPTS: Final = 2
QUEUED_ADDS_MAX: Final = 100_000
RECOVERIES_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Maximum number of bytes that all recoveries of a client together may have unanswered at one
bookie.
"""


@dataclass(frozen=True, slots=True)
class BookieAddress:
    """Address at which a bookie listens now."""

    host: str
    port: int
    is_tls: bool
    """Whether the bookie takes only connections with TLS."""
    offers_tls: bool
    """Whether it takes connections with TLS."""


class AddressLookup(Protocol):
    """Lookup of bookie addresses."""

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        """Return a bookie's address, or None if it is not registered; `fresh` forces a new read.
        Raises MetadataError.
        """


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings shared by all links of a client."""

    config: ClientConfig
    addresses: AddressLookup
    keys: Mapping[LedgerId, bytes]
    """Master keys of the attached ledgers, kept by the pool."""
    ssl: ContextSource | None
    sasl: SaslAccess | None
    """Login after the hello; None without."""
    hello: Hello
    rng: Random
    on_connected: Callable[[BookieId], None]
    on_hello: Callable[[HelloReply], None]
    on_refused: RefusedCallback
    """Called with the reason of an add that is refused."""
    on_unavailable: Callable[[BookieId, CallFailure, str], None]
    bodies: BodyPool
    """Buffers into which large answers are received."""


@dataclass(frozen=True, slots=True)
class _Unreachable:
    failure: CallFailure
    status: Status | None
    reason: str


class BookieLink:
    """Link to one bookie, connected or not."""

    def __init__(self, bookie_id: BookieId, settings: LinkSettings) -> None:
        self.bookie_id = bookie_id
        self.add_latency = RecentLatency()
        self.add_answered_at: float | None = None  # loop time of the last answer to an add
        self._settings = settings
        # Recoveries limit themselves. They have a separate limit, so that they do not use the
        # writers'.
        writers_max = settings.config.unanswered_bytes_max
        self._bytes_max = (writers_max, max(writers_max, RECOVERIES_BYTES_MAX))
        self._loop = asyncio.get_running_loop()
        self._connection: BookieConnection | None = None
        self._connected_at = 0.0
        self._attempt: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[BookieConnection | _Unreachable] = self._loop.create_future()
        self._attempt_began_at = 0.0
        self._queued: list[PendingAdd] = []
        self._queued_bytes = 0
        self._failures_in_row = 0
        self._not_before = 0.0
        self._last = _Unreachable(CallFailure.CLOSED, None, "the client is closed")
        self._is_closed = False

    @property
    def failure(self) -> str:
        """Why there is no connection; empty while there is one, or the first attempt runs."""
        has_failed = self._connection is None and self._failures_in_row > 0
        return self._last.reason if has_failed else ""

    def add(self, add: PendingAdd) -> None:
        """Send an add, or queue it during a connection attempt; its sink receives the outcome."""
        connection, size = self._connection, len(add.batch)
        bound = self._bytes_max[add.recovery]
        if connection is None:
            waiting = self._queued_bytes
        else:
            waiting = connection.unanswered[1] if add.recovery else connection.waiting_bytes
        if waiting and waiting + size > bound:
            self._fail(add, CallFailure.OVERFLOW, f"{waiting} of {bound} bytes are unanswered")
        elif connection is not None:
            self._send(connection, add)
        elif self._is_closed or self._is_backing_off():
            self._fail(add, self._last.failure, self._last.reason)
        elif len(self._queued) >= QUEUED_ADDS_MAX:
            self._fail(add, CallFailure.OVERFLOW, f"{QUEUED_ADDS_MAX} adds are queued")
        else:
            self._queued.append(add)
            self._queued_bytes += size
            self._connect()

    async def call(
        self, request: Request, expects: type[object], ledger_id: LedgerId | None, timeout_s: float
    ) -> Answer:
        """Send a request and return its answer. Raises BookieCallError."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._ready()
                if ledger_id is not None:
                    self._attach(connection, ledger_id)
                return await connection.call(request, expects)
        except TimeoutError:
            why = f"{type(request).__name__} was not answered within {timeout_s:g} s"
            raise BookieCallError(self.bookie_id, why, failure=CallFailure.TIMEOUT) from None

    def send_one_way(self, request: Request, ledger_id: LedgerId) -> None:
        """Send a request that has no answer, if there is a connection."""
        if self._connection is not None:
            self._attach(self._connection, ledger_id)
            self._connection.send_one_way(request)

    def detach(self, ledger_id: LedgerId) -> None:
        """Make the bookie drop a ledger's key, if it was sent."""
        if self._connection is not None:
            self._connection.detach(ledger_id)

    @property
    def unanswered_bytes(self) -> int:
        """Bytes of requested adds that have no outcome yet."""
        sent = sum(self._connection.unanswered) if self._connection is not None else 0
        return self._queued_bytes + sent

    @property
    def oldest_unanswered_since(self) -> float | None:
        """Loop time since which the oldest add waits for its answer or for a connection."""
        if self._queued:
            return self._attempt_began_at
        return self._connection.oldest_add_sent_at if self._connection is not None else None

    @property
    def is_idle(self) -> bool:
        """Whether the link has no connection, no attempt and no pause between attempts."""
        is_unused = self._connection is None and self._attempt is None and not self._queued
        return is_unused and not self._is_backing_off()

    async def aclose(self) -> None:
        """End the connection; everything under way fails as CLOSED."""
        self._is_closed = True
        self._last = _Unreachable(CallFailure.CLOSED, None, "the client is closed")
        attempt, connection = self._attempt, self._connection
        await cancel_and_wait(attempt)
        if connection is not None:
            connection.close(CallFailure.CLOSED, "the client is closed")
            await connection.ended

    # Internals

    def _on_latency(self, sent_at: float, answered_at: float, count: int) -> None:
        self.add_latency.record(answered_at - sent_at, count)
        self.add_answered_at = answered_at

    def _send(self, connection: BookieConnection, add: PendingAdd) -> None:
        if len(add.batch) > connection.frame_bytes_max:
            limit = connection.frame_bytes_max
            why = f"a batch of {len(add.batch)} bytes is over the bookie's limit of {limit}"
            self._fail(add, CallFailure.PROTOCOL, why)
            return
        if add.ledger_id not in connection.attached:
            self._attach(connection, add.ledger_id)
        connection.send_add(add)

    def _attach(self, connection: BookieConnection, ledger_id: LedgerId) -> None:
        if ledger_id not in connection.attached:
            key = self._settings.keys.get(ledger_id)
            if key is not None:
                connection.attach(ledger_id, key)

    async def _ready(self) -> BookieConnection:
        if self._connection is not None:
            return self._connection
        if self._is_closed or self._is_backing_off():
            raise self._error(self._last)
        outcome = await asyncio.shield(self._connect())  # other callers wait for the same attempt
        if isinstance(outcome, _Unreachable):
            raise self._error(outcome)
        return outcome

    def _is_backing_off(self) -> bool:
        return self._attempt is None and self._loop.time() < self._not_before

    def _connect(self) -> "asyncio.Future[BookieConnection | _Unreachable]":
        if self._attempt is None:
            self._attempt_began_at = self._loop.time()
            self._outcome = self._loop.create_future()
            name = f"connect to {self.bookie_id}"
            self._attempt = self._loop.create_task(self._make_attempt(), name=name)
        return self._outcome

    async def _make_attempt(self) -> None:
        outcome: BookieConnection | _Unreachable = _Unreachable(
            CallFailure.CLOSED, None, "the attempt to connect was cancelled"
        )
        try:
            async with asyncio.timeout(self._settings.config.connect_timeout_s):
                outcome = await self._find_and_open()
        except TimeoutError:
            limit = self._settings.config.connect_timeout_s
            why = f"not connected within {limit:g} s"
            outcome = _Unreachable(CallFailure.TIMEOUT, None, why)
        except BookieCallError as error:
            failure = error.failure or CallFailure.REFUSED
            outcome = _Unreachable(failure, error.status, error.reason)
        except (OSError, MetadataError) as error:
            outcome = _Unreachable(CallFailure.REFUSED, None, str(error))
        except Exception as error:  # noqa: BLE001 - such as the resolver's UnicodeError
            why = f"{type(error).__name__}: {error}"
            outcome = _Unreachable(CallFailure.REFUSED, None, why)
        finally:
            self._attempt = None
            if isinstance(outcome, BookieConnection) and not outcome.is_open:
                outcome = _Unreachable(CallFailure.LOST, None, "the bookie closed it")
            if isinstance(outcome, BookieConnection):
                self._begin(outcome)
            else:
                self._give_up(outcome)
            self._outcome.set_result(outcome)

    async def _find_and_open(self) -> BookieConnection:
        """Connect to the bookie's registered address. If another bookie answers there, look the
        address up again and retry.
        """
        for attempt in range(HELLO_ATTEMPTS):
            address = await self._settings.addresses.address_of(self.bookie_id, fresh=attempt > 0)
            if address is None:
                why = "it is not registered"
                raise BookieCallError(self.bookie_id, why, failure=CallFailure.NOT_REGISTERED)
            try:
                return await self._open(address)
            except BookieCallError as error:
                if error.status is not Status.WRONG_BOOKIE or attempt == HELLO_ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _open(self, address: BookieAddress) -> BookieConnection:
        settings = self._settings
        is_possible = address.offers_tls if settings.ssl is not None else not address.is_tls
        if not is_possible:
            has, uses = ("TLS", "no TLS") if address.is_tls else ("no TLS", "TLS")
            raise BookieCallError(
                self.bookie_id,
                f"the bookie uses {has} and this client uses {uses}: check the client's file, or "
                "the option `ssl`",
                failure=CallFailure.REFUSED,
            )
        connection = BookieConnection(
            self.bookie_id,
            settings.hello,
            add_timeout_s=settings.config.add_timeout_s,
            on_lost=self._on_lost,
            on_latency=self._on_latency,
            bodies=settings.bodies,
            on_refused=settings.on_refused,
        )
        context = None if settings.ssl is None else settings.ssl(self._loop.time())
        try:
            await self._loop.create_connection(
                lambda: connection, address.host, address.port, ssl=context
            )
            reply = await connection.opened
            if settings.sasl is not None:
                ask = partial(_ask, connection)
                principal = await log_in(self.bookie_id, reply, settings.sasl, ask)
                reply = replace(reply, principal=principal)
            connection.is_welcome = True
            settings.on_hello(reply)
        except BaseException:
            connection.close(CallFailure.REFUSED, "its connection was not completed")
            raise
        return connection

    def _begin(self, connection: BookieConnection) -> None:
        self._connection, self._connected_at = connection, self._loop.time()
        queued, self._queued, self._queued_bytes = self._queued, [], 0
        for add in queued:
            self._send(connection, add)
        self._settings.on_connected(self.bookie_id)

    def _on_lost(self, connection: BookieConnection, failure: CallFailure, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self._is_closed:
            return
        if self._loop.time() - self._connected_at >= SETTLED_AFTER_S:
            self._failures_in_row = 0
            self._last = _Unreachable(failure, None, reason)
            self._settings.on_unavailable(self.bookie_id, failure, reason)
        else:
            self._give_up(_Unreachable(failure, None, reason))

    def _give_up(self, why: _Unreachable) -> None:
        self._fail_queued(why)
        if self._is_closed:
            return
        self._last = why
        doublings = min(self._failures_in_row, BACK_OFF_DOUBLINGS_MAX)
        self._failures_in_row += 1
        longest = self._settings.config.reconnect_delay_max_s
        if why.status is Status.UNAUTHORIZED:
            longest = max(longest, REFUSED_DELAY_MAX_S)
        delay = min(RECONNECT_DELAY_MIN_S * 2**doublings, longest)
        self._not_before = self._loop.time() + delay * (0.5 + self._settings.rng.random() / 2)
        self._settings.on_unavailable(self.bookie_id, why.failure, why.reason)

    def _fail_queued(self, why: _Unreachable) -> None:
        queued, self._queued, self._queued_bytes = self._queued, [], 0
        for add in queued:
            self._fail(add, why.failure, why.reason)

    def _fail(self, add: PendingAdd, failure: CallFailure, reason: str) -> None:
        self._loop.call_soon(
            add.sink.on_add_failed, self.bookie_id, add.first_entry_id, failure, reason
        )

    def _error(self, why: _Unreachable) -> BookieCallError:
        return BookieCallError(self.bookie_id, why.reason, failure=why.failure, status=why.status)


async def _ask(connection: BookieConnection, request: BeginLogin | ContinueLogin) -> LoginReply:
    answer = await connection.call(request, LoginReply)
    assert isinstance(answer, LoginReply), "the connection checked it"
    return answer

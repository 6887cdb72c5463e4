"""State shared by all connections to one bookie: its storage, and waiting connections.

Leaves the open connections to `quire.server.connection_context`, and listening and each
connection's frames to `bookie.server.connection`.

Invariants: the acks of one group commit are sent in one write per connection; while a ledger is
held, no add for it reaches the storage, and its waiting adds follow in order.

Source: protocol rules 2.3, 10.1, 12.6; storage design, "Limits and refusals".
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from bookie.queued_adds import HELD_BYTES_MAX
from bookie.server.access import LedgerAuthorizer, Principal, RoleOptions, ServerAccess
from bookie.server.client_logins import LOGIN_NEEDED
from bookie.server.client_quotas import BookieQuotas
from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import BatchView
from bookie.wire.frames import BodyPool
from bookie.wire.messages import (
    LOGIN_DUE,
    WIRE_VERSION,
    WIRE_VERSION_MIN,
    Hello,
    HelloReply,
    Pong,
    Status,
)
from metadata.ids import BookieId, LedgerId
from metadata.security.client_principals import usable_principal
from metadata.security.quota_set import QuotaSet
from quire.identity.principal import Principal as ProvedPrincipal
from quire.identity.principal import principal_of
from quire.server.connection import Pause, ServerConnection
from quire.server.connection_context import ConnectionContext
from quire.server.latency import LatencyWindow
from quire.server.overriding import override
from quire.server.server_log import ServerLog


class ServerContext(ConnectionContext):
    """State shared by connections, for one event loop."""

    limits: ServerLimits
    counters: ServerCounters

    def __init__(
        self,
        bookie_id: BookieId,
        storage: BookieStorage,
        access: ServerAccess,
        limits: ServerLimits,
        counters: ServerCounters,
        log: ServerLog,
        now: Callable[[], float],
        authorizer: LedgerAuthorizer | None = None,
    ) -> None:
        """Create the state of a bookie; without `authorizer`, clients need no roles."""
        super().__init__(limits, counters, log, now)
        self.bookie_id = bookie_id
        self.authorizer = authorizer
        self.storage = storage
        self.access = access
        self.append_latency = LatencyWindow()
        self.bodies = BodyPool(limits.bodies_bytes_max)
        self._with_acks: list[Callable[[], None]] = []
        self._paused: dict[ServerConnection, None] = {}
        self._waiting_for_room: asyncio.Task[None] | None = None
        self._held: dict[LedgerId, list[tuple[int, Callable[[], None]]]] = {}
        """Adds that wait, with their bytes."""
        self.limit_clients(QuotaSet(), RoleOptions())
        storage.on_group_durable(self.flush_acks)

    def limit_clients(self, quotas: QuotaSet, roles: RoleOptions) -> None:
        """Use these quotas for all clients; call it before the first one connects. `roles` has the
        names of clients with certificates, and who has no quota.
        """
        self.quotas = BookieQuotas(quotas, roles.super_users, self.counters, self.now)
        self._rules = roles.rules

    # -- connections

    @override
    def connection_lost(self, connection: ServerConnection) -> None:
        """Remove a connection."""
        super().connection_lost(connection)
        self._paused.pop(connection, None)

    def certified_principal(self, transport: asyncio.BaseTransport | None) -> str:
        """Return the principal of a client's certificate (rule 12.1); empty if there is none, or
        if clients need no roles.
        """
        if self.authorizer is None or transport is None:
            return ""
        return self.authorizer.principal_of(transport)

    def proved_by_certificate(self, transport: asyncio.BaseTransport | None) -> ProvedPrincipal:
        """Return whom a client's certificate names, whether or not clients need roles."""
        certificate = None if transport is None else transport.get_extra_info("peercert")
        return principal_of(certificate, self._rules)

    def usable_principal(self, proved: ProvedPrincipal) -> str:
        """Return the principal of a login (rule 12.1); empty if clients need no roles."""
        return "" if self.authorizer is None else usable_principal(proved)

    def answer_hello(self, hello: Hello, certified: str) -> tuple[HelloReply, Principal | None]:
        """Return the reply to a hello (rule 2.3), and what its credentials prove; None if the hello
        is refused. `certified` is the principal of the client's certificate (rule 12.1).
        """
        principal = self.access.authenticate(hello.credentials)
        status, reason = Status.OK, ""
        if hello.bookie_id and hello.bookie_id != self.bookie_id:
            status = Status.WRONG_BOOKIE
            reason = (
                f"this is bookie {self.bookie_id}, not {hello.bookie_id[:64]}: look its address up"
            )
        elif not self._has_common_version(hello):
            status = Status.UNSUPPORTED_VERSION
            reason = (
                f"this bookie speaks wire versions {WIRE_VERSION_MIN}..{WIRE_VERSION}, "
                f"the client {hello.wire_version_min}..{hello.wire_version_max}: upgrade the older"
            )
        elif principal is None:
            status, reason = Status.UNAUTHORIZED, self.access.refusal
        elif self._lacks_login(hello):
            status, reason = Status.UNAUTHORIZED, LOGIN_NEEDED
        elif self.is_closing:
            status, reason = Status.CLOSING, "the bookie is closing"
        if status is not Status.OK:
            return self.refuse_hello(hello, status, reason), None
        reply = self._hello_reply(hello)
        is_login_due = bool(reply.features & LOGIN_DUE)
        return replace(reply, principal="" if is_login_due else certified), principal

    def refuse_hello(self, hello: Hello, status: Status, reason: str) -> HelloReply:
        """Return the refusal of a hello."""
        return replace(self._hello_reply(hello), status=status, reason=reason)

    def _hello_reply(self, hello: Hello) -> HelloReply:
        known = 0 if self.access.logins is None else LOGIN_DUE
        return HelloReply(
            Status.OK,
            self.bookie_id,
            min(WIRE_VERSION, hello.wire_version_max),
            known & hello.features,
            self.limits.frame_bytes_max,
            self.limits.entry_bytes_max,
            reason="",
            principal="",
        )

    def pong(self) -> Pong:
        """Return the answer to a ping."""
        p99_s = self.append_latency.percentile_s(99, self.now())
        return Pong(writable=self.storage.is_offered, append_p99_us=round(p99_s * 1_000_000))

    def _lacks_login(self, hello: Hello) -> bool:
        logins = self.access.logins
        is_required = logins is not None and logins.is_required
        return is_required and not hello.features & LOGIN_DUE

    @staticmethod
    def _has_common_version(hello: Hello) -> bool:
        low = max(hello.wire_version_min, WIRE_VERSION_MIN)
        return low <= min(hello.wire_version_max, WIRE_VERSION)

    # -- adds and their acks

    def add(
        self,
        batch: BatchView,
        *,
        recovery: bool,
        master_key: bytes,
        done: Callable[[Status], None],
    ) -> None:
        """Pass a batch to the storage, at once unless its ledger is held."""
        held = self._held.get(batch.header.ledger_id) if self._held else None
        if held is None:
            self.storage.add(batch, recovery=recovery, master_key=master_key, done=done)
            return
        size, queued = len(batch.data), self.storage.queued
        if queued.held_bytes + size > HELD_BYTES_MAX:
            done(Status.UNKNOWN)
            return
        queued.held_bytes += size
        add = self.storage.add
        call = partial(add, batch, recovery=recovery, master_key=master_key, done=done)
        held.append((size, call))

    @contextmanager
    def hold(self, ledger_id: LedgerId) -> Iterator[None]:
        """Make every add of a ledger wait while the ledger may be deleted (rule 10.1)."""
        assert ledger_id not in self._held, "one deletion per ledger at a time"
        self._held[ledger_id] = []
        try:
            yield
        finally:
            for size, add in self._held.pop(ledger_id):
                self.storage.queued.held_bytes -= size
                add()

    def note_acks(self, flush: Callable[[], None]) -> None:
        """Schedule the sending of a connection's acks by `flush`: after the group, at the latest in
        the next iteration.
        """
        if not self._with_acks and not self.storage.is_answering_group:
            asyncio.get_running_loop().call_soon(self.flush_acks)
        self._with_acks.append(flush)

    def flush_acks(self) -> None:
        """Send the collected acks, in one write per connection."""
        with_acks, self._with_acks = self._with_acks, []
        for flush in with_acks:
            flush()

    # -- back-pressure

    def pause_until_room(self, connection: ServerConnection) -> None:
        """Pause reading from a connection until the storage's queue is below its limit."""
        self._paused[connection] = None
        connection.set_pause(Pause.HANDLER_FULL, on=True)
        if self._waiting_for_room is None:
            self._waiting_for_room = asyncio.get_running_loop().create_task(self._resume_at_room())

    async def _resume_at_room(self) -> None:
        await self.storage.wait_for_room()
        self._waiting_for_room = None
        paused, self._paused = self._paused, {}
        for connection in paused:
            connection.set_pause(Pause.HANDLER_FULL, on=False)

    def stop_waiting(self) -> None:
        """Stop waiting for room, because the server has closed."""
        if self._waiting_for_room is not None:
            self._waiting_for_room.cancel()
            self._waiting_for_room = None

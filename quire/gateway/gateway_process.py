"""One gateway, built from its store and its options, its port, and its stop in order."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Final

from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError
from metadata.registry.gateways import GATEWAY_KIND, GatewayRecord
from metadata.security.client_principals import certified_principal, parse_principals
from metadata.security.grant_store import GrantTable
from metadata.store.interface import MetadataStore, SessionState
from quire.addresses import is_wildcard, join_address, split_address
from quire.gateway.connection import ClientConnection
from quire.gateway.gateway_context import GatewayContext
from quire.gateway.limits import GatewayCounters
from quire.gateway.metrics import GatewayMetrics
from quire.gateway.options import GatewayOptions
from quire.gateway.requests import MetadataRequests
from quire.gateway.sessions import Sessions
from quire.server.admin import AdminContent, AdminServer
from quire.server.listening import ListeningServer
from quire.server.overriding import override
from quire.server.served_tls import ServedTls
from quire.server.server_log import ServerLog, SessionLog
from quire.server.server_options import TlsMode
from quire.server.tls_listening import TlsListening

KIND: Final = "gateway"


@dataclass(frozen=True, slots=True)
class GatewayAddresses:
    """Addresses of a running gateway."""

    address: str
    admin_url: str


class GatewayProcess:
    """One gateway. Call `start` once, then `wait_for_failure`, and `stop` in any case."""

    def __init__(
        self,
        options: GatewayOptions,
        store: MetadataStore,
        rng: Random,
        secret_rng: Random,
        session_timeout_s: Callable[[], float],
        *,
        host_name: str = "localhost",
    ) -> None:
        """Use a store that the caller closes. `secret_rng` draws the tokens of sessions;
        `session_timeout_s` returns the time of the store's session. `host_name` is the machine's,
        for a gateway that serves at all of its addresses.
        """
        self._host_name = host_name
        self._options = options
        self._store = store
        self._rng = rng
        self._secret_rng = secret_rng
        self._session_timeout_s = session_timeout_s
        self._parts = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing: str | None = "the gateway is starting"

    async def start(self) -> GatewayAddresses:
        """Start serving; return the addresses. Raises CannotListenError, SecurityError and
        MetadataError.
        """
        options, now = self._options, asyncio.get_running_loop().time
        log = ServerLog(now)
        self._parts.callback(self._store.on_session(SessionLog(log)))
        grants = GrantTable(self._store, self._rng)
        self._parts.push_async_callback(grants.aclose)
        await grants.start()
        limits, counters, rules = options.limits, GatewayCounters(), options.principal_rules
        sessions = Sessions(
            self._store, self._secret_rng, limits, counters, self._session_timeout_s
        )
        super_users = parse_principals(options.super_users)
        requests = MetadataRequests(
            self._store, grants.granted_to, super_users, limits, options.host
        )

        def principal_of(transport: asyncio.BaseTransport | None) -> str:
            certificate = None if transport is None else transport.get_extra_info("peercert")
            return certified_principal(certificate, rules)

        context = GatewayContext(
            self._store, sessions, requests, principal_of, limits, counters, log, now
        )
        addresses = await self._listen(context, log)
        await self._record(addresses)
        self._missing = None
        return addresses

    async def wait_for_failure(self) -> None:
        """Wait for a failure that must stop the gateway, and raise it; never return."""
        await self._failed

    async def stop(self) -> None:
        """Finish running requests, and close every part."""
        self._missing = "the gateway is closing"
        self._failed.cancel()
        await self._parts.aclose()

    async def _listen(self, context: GatewayContext, log: ServerLog) -> GatewayAddresses:
        options = self._options
        tls = ServedTls(KIND, options, log)
        watching = asyncio.get_running_loop().create_task(tls.watch())
        watching.add_done_callback(self._note_end)
        self._parts.push_async_callback(cancel_and_wait, watching)
        server = GatewayServer(context)
        self._parts.push_async_callback(server.close)
        host, port = await server.start(options.host, options.port, tls.listening)
        content = AdminContent(
            KIND,
            GatewayMetrics(context.counters),
            self._readiness,
            (),
            (MetadataError,),
            tls.admin_access(),
            (tls,),
        )
        admin = AdminServer(content, log)
        self._parts.push_async_callback(admin.close)
        admin_host, admin_port = await admin.start(options.admin_host, options.admin_port)
        scheme = "https" if options.tls_mode is TlsMode.REQUIRED else "http"
        admin_host = host if is_wildcard(admin_host) else admin_host
        admin_url = f"{scheme}://{join_address(admin_host, admin_port)}"
        return GatewayAddresses(join_address(host, port), admin_url)

    async def _record(self, addresses: GatewayAddresses) -> None:
        """Record where this gateway serves, so that it is missed when it does not."""
        host, port = split_address(addresses.address)
        host = self._host_name if is_wildcard(host) else host
        is_tls = self._options.tls_mode is TlsMode.REQUIRED
        record = GatewayRecord(join_address(host, port), addresses.admin_url, is_tls)
        node = GATEWAY_KIND.node(record.address)
        await node.change(self._store, self._rng, lambda _: record)

    def _readiness(self) -> str | None:
        if self._missing is None and self._store.session_state is not SessionState.CONNECTED:
            return "there is no connection to the metadata service"
        return self._missing

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)


class GatewayServer(ListeningServer):
    """Port of one gateway. Call `start`, then `close`, once each."""

    _context: GatewayContext

    async def start(self, host: str, port: int, tls: TlsListening | None = None) -> tuple[str, int]:
        """Listen; return the host and port. Raises CannotListenError."""
        address = await self._open(
            "the gateway", host, port, lambda: ClientConnection(self._context), tls
        )
        await self.serve()
        return address

    @override
    async def close(self) -> None:
        """Accept no more requests, finish running ones within `drain_timeout_s`, and close all
        connections.
        """
        await super().close()
        await self._context.aclose()

    @override
    def _sweep(self) -> None:
        super()._sweep()
        self._context.sessions.sweep(self._context.now())

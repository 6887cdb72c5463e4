"""A gateway on a real socket, over a store that the test gives, and clients of it."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from metadata.gateway.opening import open_store
from metadata.gateway.store import GatewayMetadataStore
from metadata.security.ledger_roles import NO_GRANTS, GrantedRights
from metadata.store.interface import MetadataStore
from quire.gateway.gateway_context import GatewayContext
from quire.gateway.gateway_process import GatewayServer
from quire.gateway.limits import GatewayCounters, GatewayLimits
from quire.gateway.requests import MetadataRequests
from quire.gateway.sessions import Sessions
from quire.server.server_log import ServerLog

ROOT = "User:root"
_seeds = itertools.count()
LIMITS = GatewayLimits(
    connections_max=20,
    sweep_interval_s=0.02,
    write_buffer_bytes_max=64 * 1024,
    requests_running_max=4,
    running_bytes_max=400_000,
    watches_max=50,
    unread_bytes_max=2 * 1024 * 1024,
    ephemerals_max=3,
    drain_timeout_s=2.0,
    session_s_min=0.05,
)


@dataclass
class RunningGateway:
    """A running gateway and its parts."""

    store: MetadataStore
    context: GatewayContext
    server: GatewayServer
    host: str
    port: int
    principals: list[str]
    """Principal of each next connection; the last one stays."""
    granted: dict[str, GrantedRights]
    stores: list[GatewayMetadataStore] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"gateway://{self.host}:{self.port}"

    @property
    def counters(self) -> GatewayCounters:
        return self.context.counters

    async def connect(
        self, principal: str = ROOT, *others: "RunningGateway", session_timeout_s: float = 6.0
    ) -> GatewayMetadataStore:
        """Open a client with a principal; `others` are gateways that it may use too."""
        for other in (self, *others):
            other.principals[:] = [principal]
        hosts = ",".join(f"{other.host}:{other.port}" for other in (self, *others))
        store = await open_store(
            f"gateway://{hosts}", rng=random.Random(1), session_timeout_s=session_timeout_s
        )
        assert isinstance(store, GatewayMetadataStore)
        self.stores.append(store)
        return store

    async def aclose(self) -> None:
        for store in self.stores:
            await store.aclose()
        await self.server.close()
        await self.store.aclose()


async def run_gateway(
    store: MetadataStore,
    *,
    limits: GatewayLimits = LIMITS,
    super_users: Sequence[str] = (ROOT,),
    session_timeout_s: float = 6.0,
) -> RunningGateway:
    """Start a gateway without TLS whose clients have the principals that the test says."""
    now = asyncio.get_running_loop().time
    principals, granted = [ROOT], dict[str, GrantedRights]()
    counters = GatewayCounters()
    rng = random.Random(next(_seeds))
    sessions = Sessions(store, rng, limits, counters, lambda: session_timeout_s)
    requests = MetadataRequests(
        store, lambda name: granted.get(name, NO_GRANTS), super_users, limits, "the test"
    )

    def principal_of(_: asyncio.BaseTransport | None) -> str:
        return principals.pop(0) if len(principals) > 1 else principals[0]

    context = GatewayContext(
        store, sessions, requests, principal_of, limits, counters, ServerLog(now), now
    )
    server = GatewayServer(context)
    host, port = await server.start("127.0.0.1", 0)
    return RunningGateway(store, context, server, host, port, principals, granted)


class GatewayService:
    """See `tests.contracts.store_service.StoreService`: clients of one gateway."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway

    async def connect(self) -> MetadataStore:
        return await self.gateway.connect()

    async def interrupt(self, store: MetadataStore) -> None:
        assert isinstance(store, GatewayMetadataStore)
        store._session.cut()

    async def expire(self, store: MetadataStore) -> None:
        sessions = self.gateway.context.sessions
        sessions.end(sessions._sessions[store.session_id])

    async def aclose(self) -> None:
        await self.gateway.aclose()

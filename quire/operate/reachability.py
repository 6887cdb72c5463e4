"""Whether the servers of a cluster can be reached from here, as a client reaches them.

A registration says only that a server has a session with the metadata service. Its advertised name
may not resolve, its certificate may not have that name, and a network may be in between.

Leaves what is said of a server to `faulty_servers`, and what the metadata says of bookies to
`quire.operate.health`.

Invariants: all servers are asked at once, CONTACTS_MAX of them at a time, each for at most
CONTACT_S; nothing is changed anywhere.

Source: docs/runbooks.md, "A server cannot be reached".
"""

import asyncio
import struct
from collections.abc import Awaitable, Collection
from ssl import SSLContext, SSLError
from typing import Final

from ledger_client.bookies.pool import BookieCallError, BookiePool
from ledger_client.cluster_access import Cluster, identity_of
from metadata.brokers.broker_registration import BrokerRegistration, Listener
from metadata.paths import IN_SYNC
from metadata.registry.gateways import GATEWAY_KIND, GatewayRecord
from metadata.registry.registration import BookieRegistration
from metadata.repair.workers import WorkerDirectory
from metadata.store.records import RecordStore
from metadata.store.uri import GATEWAY_SCHEME, parse_metadata_uri
from quire.addresses import join_address, split_address
from quire.operate.faulty_servers import Fault, FaultyServer, Kind
from quire.operate.findings import names
from quire.operate.watch import registered_brokers
from quire.zookeeper.status import NO_ANSWER, ask_servers

CONTACT_S: Final = 5.0
CONTACTS_MAX: Final = 64
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request for ApiVersions, which every broker answers before a login."""


async def contact_servers(cluster: Cluster) -> list[FaultyServer]:
    """Contact all servers; return those that do not answer, and brokers that are away. Raises
    MetadataError, SecurityError.
    """
    limit = asyncio.Semaphore(CONTACTS_MAX)

    async def bounded(contact: Awaitable[FaultyServer | None]) -> FaultyServer | None:
        async with limit:
            return await contact

    context = identity_of(cluster.address).context
    brokers = await registered_brokers(cluster.store, cluster.rng)
    gateways = await RecordStore(GATEWAY_KIND, cluster.store, cluster.rng).get_all()
    pool = cluster.open_pool()
    try:
        contacts = [
            *(_bookie(pool, server) for server in cluster.directory.bookies.values()),
            *(
                _broker(server, listener, context)
                for server in brokers
                for listener in server.listeners
            ),
            *(_gateway(server, context) for server in gateways.values()),
        ]
        answers = await asyncio.gather(*map(bounded, contacts))
    finally:
        await pool.aclose()
    faulty = [server for server in answers if server is not None]
    return [
        *faulty,
        *await _unreached_by_peers(cluster, {server.name for server in faulty}),
        *await _away_brokers(cluster, brokers),
        *await _zookeepers(cluster),
    ]


async def _bookie(pool: BookiePool, bookie: BookieRegistration) -> FaultyServer | None:
    try:
        await pool.ping(bookie.bookie_id, timeout_s=CONTACT_S)
    except BookieCallError as error:
        return _unreachable_bookie(bookie, str(error))
    return None


def _unreachable_bookie(bookie: BookieRegistration, why: str) -> FaultyServer:
    place = bookie.place
    return FaultyServer(
        Kind.BOOKIE,
        bookie.bookie_id,
        Fault.UNREACHABLE,
        bookie.address,
        place.host,
        place.rack,
        why,
    )


async def _unreached_by_peers(cluster: Cluster, known: Collection[str]) -> list[FaultyServer]:
    """Return the bookies that other bookies' processes of repair do not reach."""
    workers = WorkerDirectory(cluster.store, cluster.rng)
    try:
        await workers.start()
        reports = workers.unreached
    finally:
        await workers.aclose()
    up = cluster.directory.bookies
    return [
        _unreachable_bookie(up[bookie_id], f"repair does not reach it from {names(peers)}")
        for bookie_id, peers in reports.items()
        if bookie_id in up and bookie_id not in known
    ]


async def _broker(
    broker: BrokerRegistration, listener: Listener, context: SSLContext | None
) -> FaultyServer | None:
    name, address = str(broker.broker_id), join_address(listener.host, listener.port)
    is_plain = "PLAINTEXT" in listener.name.upper()
    why = await _ask(listener.host, listener.port, None if is_plain else context, _API_VERSIONS)
    if why is None:
        return None
    return FaultyServer(
        Kind.BROKER, name, Fault.UNREACHABLE, address, listener.host, broker.rack, why
    )


async def _gateway(gateway: GatewayRecord, context: SSLContext | None) -> FaultyServer | None:
    host, port = split_address(gateway.address)
    why = await _ask(host, port, context if gateway.tls else None, b"")
    if why is None:
        return None
    # It has no registration: one that does not answer may be down.
    address = gateway.address
    return FaultyServer(Kind.GATEWAY, address, Fault.DOWN, address, host, "", why)


async def _ask(host: str, port: int, context: SSLContext | None, request: bytes) -> str | None:
    """Connect, send a request, and wait for the first bytes of the answer, if there is a request.
    Return why that failed, None if it did not. A server that wants TLS closes a connection without
    it: that is an answer, if this client has no certificates to look further.
    """
    try:
        async with asyncio.timeout(CONTACT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(request)
                if request and not await reader.read(1) and context is not None:
                    return "it closed the connection without an answer"
            finally:
                writer.close()
    except TimeoutError:
        return f"it did not answer within {CONTACT_S:g} s"
    except SSLError as error:
        return f"its certificate or TLS cannot be used: {error}"
    except (OSError, UnicodeError) as error:
        return str(error) or type(error).__name__
    return None


async def _away_brokers(cluster: Cluster, up: Collection[BrokerRegistration]) -> list[FaultyServer]:
    """Return the brokers that have led partitions, and are not registered."""
    registered = {str(broker.broker_id) for broker in up}
    known = await cluster.store.children(IN_SYNC, fresh=True)
    why = "it is not registered, and has led partitions"
    return [
        FaultyServer(Kind.BROKER, name, Fault.DOWN, why=why)
        for name in sorted(known)
        if name not in registered
    ]


async def _zookeepers(cluster: Cluster) -> list[FaultyServer]:
    """Return the servers of the metadata's address that do not serve."""
    uri = parse_metadata_uri(cluster.address)
    if uri.scheme == GATEWAY_SCHEME or identity_of(cluster.address).zookeeper.tls is not None:
        kind = Kind.GATEWAY if uri.scheme == GATEWAY_SCHEME else Kind.ZOOKEEPER
        faults = await asyncio.gather(*(_ask(host, port, None, b"") for host, port in uri.hosts))
    else:
        kind = Kind.ZOOKEEPER
        statuses = await ask_servers(uri.hosts)
        faults = [
            None
            if status.serves
            else f"it gives {status.mode}"
            if status.mode == NO_ANSWER
            else "it does not serve"
            for status in statuses
        ]
    faulty = []
    for (host, port), why in zip(uri.hosts, faults, strict=True):
        if why is not None:
            address = join_address(host, port)
            faulty.append(FaultyServer(kind, address, Fault.DOWN, address, host, "", why))
    return faulty

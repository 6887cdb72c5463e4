"""Readings of the metrics of all servers that are up.

Leaves what is computed from them to `rates`, and showing it to the commands.

Invariants: all servers are asked at once, each for at most READ_S_MAX; a server that does not
answer has a reason instead of a reading, and delays no other.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.brokers.broker_registry import BrokerDirectory
from quire.identity.client_file import ClientFile
from quire.identity.errors import SecurityError
from quire.operate.admin_api import AdminApiError, get_text
from quire.operate.scrape import Scrape, ScrapeError, parse_scrape

READ_S_MAX: Final = 3.0
BOOKIE: Final = "bookie"
BROKER: Final = "broker"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is registered."""

    kind: str
    name: str
    admin_url: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Metrics of a server, or why they are not known."""

    scrape: Scrape | None
    why: str = ""


async def servers_of(cluster: Cluster) -> list[Server]:
    """Return the bookies and brokers that are up, in order. Raises MetadataError."""
    bookies = [
        Server(BOOKIE, each.bookie_id, each.admin_url)
        for _, each in sorted(cluster.directory.bookies.items())
    ]
    directory = BrokerDirectory(cluster.store, cluster.rng)
    await directory.start()
    try:
        brokers = sorted(directory.brokers.items())
    finally:
        await directory.aclose()
    return [*bookies, *(Server(BROKER, str(name), each.admin_url) for name, each in brokers)]


async def read_all(
    servers: list[Server], identity: ClientFile, now: Callable[[], float]
) -> dict[Server, Reading]:
    """Read the metrics of all servers at once."""
    readings = await asyncio.gather(*(_read(each, identity, now) for each in servers))
    return dict(zip(servers, readings, strict=True))


async def _read(server: Server, identity: ClientFile, now: Callable[[], float]) -> Reading:
    if not server.admin_url:
        return Reading(None, "it has no admin port")
    try:
        text = await get_text(f"{server.admin_url}/metrics", identity, timeout_s=READ_S_MAX)
        return Reading(parse_scrape(text, now()))
    except (AdminApiError, ScrapeError, SecurityError) as error:
        return Reading(None, str(error))

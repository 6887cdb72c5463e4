"""Access of commands to a cluster below the client: its metadata and its live bookies.

Leaves the meaning of the data to the commands.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ledger_client.errors import LedgerNotFoundError
from metadata.errors import NodeNotFoundError
from metadata.ids import LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.cluster import open_cluster_store
from metadata.registry.cookies import CookieStore
from metadata.registry.directory import BookieDirectory
from metadata.store.interface import MetadataStore
from metadata.store.uri import parse_metadata_uri
from quire.identity.client_file import ClientFile, identity_in

if TYPE_CHECKING:
    from ledger_client.bookies.pool import BookiePool
    from ledger_client.digest import LedgerKeys


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's metadata, read directly."""

    address: str
    store: MetadataStore
    ledgers: LedgerStore
    cookies: CookieStore
    directory: BookieDirectory
    rng: Random

    def open_pool(self, credentials: bytes = b"") -> "BookiePool":
        """Open a pool of connections to single bookies; the caller closes it. Raises
        SecurityError for a client's file that cannot be used. `credentials` is the key of repair,
        for what only repair may ask.
        """
        # Most commands read only metadata: they start sooner without the protocol of bookies.
        from ledger_client.bookies.pool import BookiePool  # noqa: PLC0415
        from ledger_client.client_services import DirectoryAddresses  # noqa: PLC0415
        from ledger_client.config import ClientConfig  # noqa: PLC0415

        identity = identity_of(self.address)
        return BookiePool(
            DirectoryAddresses(self.directory, self.store),
            config=ClientConfig(),
            rng=self.rng,
            ssl=identity.contexts,
            sasl=identity.sasl,
            credentials=credentials,
        )


@asynccontextmanager
async def open_cluster(address: str) -> AsyncIterator[Cluster]:
    """Connect, read the live bookies, and disconnect at the end of the block. Raises
    MetadataError, ClusterNotFoundError if there is no cluster.
    """
    rng = Random(os.urandom(16))
    store = await open_cluster_store(address, rng=rng)
    try:
        directory = BookieDirectory(store, rng)
        await directory.start()
        try:
            ledgers = LedgerStore(store, rng, wall_clock_ms)
            yield Cluster(address, store, ledgers, CookieStore(store), directory, rng)
        finally:
            await directory.aclose()
    finally:
        await store.aclose()


async def read_ledger(cluster: Cluster, ledger_id: LedgerId) -> tuple[LedgerMetadata, Version]:
    """Read a ledger's metadata with a fresh read. Raises LedgerNotFoundError."""
    try:
        return await cluster.ledgers.get(ledger_id, fresh=True)
    except NodeNotFoundError as error:
        text = "it does not exist: `quire ledger list` shows the existing ones"
        raise LedgerNotFoundError(text, ledger_id=ledger_id) from error


@asynccontextmanager
async def open_pool(cluster: Cluster, keys: "LedgerKeys") -> AsyncIterator["BookiePool"]:
    """Open connections to single bookies that send one ledger's key, until the block's end."""
    pool = cluster.open_pool()
    pool.attach(keys.ledger_id, keys.master_key)
    try:
        yield pool
    finally:
        pool.detach(keys.ledger_id)
        await pool.aclose()


def identity_of(address: str) -> ClientFile:
    """Return the client's file that a metadata URI names. Raises SecurityError, InvalidUriError."""
    return identity_in(parse_metadata_uri(address).client_file)


def wall_clock_ms() -> int:
    """Return the time of day, for creation times."""
    return time.time_ns() // 1_000_000

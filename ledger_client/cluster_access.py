"""Opens what commands need of a cluster below the client: its metadata and who is up.

Leaves the meaning of what is read to the commands.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from ledger_client.errors import LedgerNotFoundError
from metadata.cookies import CookieStore
from metadata.directory import BookieDirectory
from metadata.errors import NodeNotFoundError
from metadata.ids import LedgerId, Version
from metadata.ledger_metadata import LedgerMetadata
from metadata.ledger_store import LedgerStore
from metadata.store import MetadataStore
from metadata.zookeeper import open_store


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's metadata, read directly."""

    address: str
    store: MetadataStore
    ledgers: LedgerStore
    cookies: CookieStore
    directory: BookieDirectory
    rng: Random


@asynccontextmanager
async def open_cluster(address: str) -> AsyncIterator[Cluster]:
    """Connect, read who is up, and disconnect at the end of the block. Raises MetadataError."""
    rng = Random(os.urandom(16))
    store = await open_store(address, rng=rng)
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
    """Read a ledger's metadata as of now. Raises LedgerNotFoundError."""
    try:
        return await cluster.ledgers.get(ledger_id, fresh=True)
    except NodeNotFoundError as error:
        text = "there is no such ledger: see `quire ledger list`"
        raise LedgerNotFoundError(text, ledger_id=ledger_id) from error


def wall_clock_ms() -> int:
    """Return the time of day, for creation times."""
    return time.time_ns() // 1_000_000

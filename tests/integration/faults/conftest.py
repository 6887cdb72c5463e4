"""One real cluster of five bookies for all modules of faults; each test restores its state."""

from collections.abc import AsyncIterator

import pytest_asyncio

from ledger_client import LedgerClient, LedgerError, Quorum
from quire.local_cluster import LocalCluster

BOOKIES = 5


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def clusters() -> AsyncIterator[list[LocalCluster]]:
    """Stop the last cluster when all tests have ended."""
    started: list[LocalCluster] = []
    yield started
    for local_cluster in started:
        await local_cluster.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(clusters: list[LocalCluster]) -> LocalCluster:
    """Return the cluster; start another one if a test that failed has not restored it."""
    if clusters and not await is_whole(clusters[0]):
        await clusters.pop().aclose()
    if not clusters:
        started = LocalCluster(BOOKIES)
        await started.start()
        clusters.append(started)
    return clusters[0]


async def is_whole(cluster: LocalCluster) -> bool:
    """Whether each bookie takes entries."""
    if not cluster.zookeeper.is_running or not all(bookie.is_running for bookie in cluster.bookies):
        return False
    try:
        async with (
            LedgerClient(cluster.metadata_uri) as client,
            client.create_ledger(Quorum.all(BOOKIES)) as ledger,
        ):
            await ledger.append(b"whole")
    except LedgerError:
        return False
    return True

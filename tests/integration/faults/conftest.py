"""One real cluster of five bookies for each module of faults; each test restores its state."""

from collections.abc import AsyncIterator

import pytest_asyncio

from quire.local_cluster import LocalCluster

BOOKIES = 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start a cluster."""
    async with LocalCluster(BOOKIES) as running:
        yield running

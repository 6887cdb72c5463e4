"""One real cluster for each module of faults, with five bookies; each test leaves it as it was."""

from collections.abc import AsyncIterator

import pytest_asyncio

from quire.local_cluster import LocalCluster

BOOKIES = 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start a cluster."""
    async with LocalCluster(BOOKIES) as running:
        yield running

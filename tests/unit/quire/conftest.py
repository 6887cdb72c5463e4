"""A cluster that has metadata only, in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.support.quire.memory_cluster import MemoryCluster


@pytest.fixture
async def memory_cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    cluster = MemoryCluster(monkeypatch)
    yield cluster
    await cluster.aclose()

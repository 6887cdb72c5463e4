"""A writer whose ledger another client deletes ends within a second, whether bookies know it or not
(rule 4.8).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledger_client import LedgerNotFoundError, Quorum
from tests.support.ledger_client.cluster import TestCluster

WITHIN_S = 5.0
"""A second, and more for a slow machine."""


@pytest.fixture
async def cluster() -> AsyncIterator[TestCluster]:
    cluster = TestCluster()
    for _ in range(3):
        await cluster.add_bookie()
    yield cluster
    await cluster.aclose()


@pytest.mark.parametrize(
    "quorum", [Quorum(3, 3, 2), Quorum.in_sync(3, 2)], ids=["quorum", "in-sync"]
)
@pytest.mark.parametrize("before", [0, 3])
async def test_appends_to_a_deleted_ledger_end(
    cluster: TestCluster, quorum: Quorum, before: int
) -> None:
    one, two = cluster.client(), cluster.client()
    ledger = await one.create_ledger(quorum)
    for _ in range(before):
        await ledger.append(b"before")
    await two.delete_ledger(ledger.id)
    with pytest.raises(LedgerNotFoundError, match="deleted"):
        async with asyncio.timeout(WITHIN_S):
            while True:
                await ledger.append(b"after")
                await asyncio.sleep(0.01)
    assert not ledger.is_usable
    with pytest.raises(LedgerNotFoundError):
        await ledger.aclose()


async def test_an_idle_writer_ends_too(cluster: TestCluster) -> None:
    one, two = cluster.client(), cluster.client()
    ledger = await one.create_ledger(Quorum(3, 3, 2))
    await asyncio.sleep(0.6)  # the read of its start is over
    await two.delete_ledger(ledger.id)
    async with asyncio.timeout(WITHIN_S):
        while ledger.is_usable:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)
    with pytest.raises(LedgerNotFoundError, match="deleted"):
        await ledger.append(b"after")
    with pytest.raises(LedgerNotFoundError):
        await ledger.aclose()

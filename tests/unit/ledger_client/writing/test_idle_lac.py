"""The last entry that an idle writer confirmed becomes visible wherever a reader waits (protocol
8.4).
"""

import asyncio

import pytest

from ledger_client import Quorum
from tests.support.ledger_client.cluster import TestCluster
from tests.until import until


@pytest.mark.parametrize("shape", [(2, 1, 1), (4, 2, 2), (4, 3, 2)])
@pytest.mark.parametrize("count", [6, 7])
async def test_a_burst_over_stripes_reaches_tailing_readers(
    cluster: TestCluster, shape: tuple[int, int, int], count: int
) -> None:
    """The reader's next entry and the writer's last one are on different bookies."""
    client = cluster.client()
    writer = await client.create_ledger(Quorum(*shape, stripe_entries=1))
    reader = await client.open_ledger(writer.id)
    seen: list[int] = []

    async def follow() -> None:
        async for batch in reader.tail():
            seen.extend(entry.id for entry in batch)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.02)
    handles = [writer.append_nowait(b"x") for _ in range(count)]
    await asyncio.gather(*handles)
    async with asyncio.timeout(5):
        await until(lambda: seen == list(range(count)))
    await writer.aclose()
    await following
    await reader.aclose()

"""The time limit of appends, whatever the other times of a writer are (protocol 4.6, 5.5)."""

import asyncio

import pytest

from ledger_client import QuorumTimeoutError
from tests.support.ledger_client.cluster import THREE, TestCluster


@pytest.mark.parametrize("lac_delay_s", [0.05, 100.0])
async def test_the_deadline_fails_the_writer_and_closes_the_ledger(
    cluster: TestCluster, lac_delay_s: float
) -> None:
    client = cluster.client(append_deadline_s=0.2, add_timeout_s=5.0, lac_delay_s=lac_delay_s)
    writer = await client.create_ledger(THREE)
    await writer.append(b"confirmed")
    await asyncio.sleep(0.1)  # the writer has been checked
    for bookie in cluster.bookies:
        bookie.is_silent = True
    with pytest.raises(QuorumTimeoutError) as caught:
        await writer.append(b"never answered", timeout=3.0)
    assert "fewer than 2 bookies stored entry 1 within 0.2 s" in str(caught.value)
    assert (caught.value.outcome, caught.value.entry_id) == ("unknown", 1)
    with pytest.raises(QuorumTimeoutError):
        await writer.aclose()
    info = await cluster.clients[0].ledger_info(writer.id)
    assert (info.state, info.last_entry_id) == ("closed", 0)

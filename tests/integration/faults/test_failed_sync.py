"""Test of a failed sync: the bookie stops, and does not acknowledge the entries of that sync."""

import asyncio
from pathlib import Path

import pytest

from ledger_client import LedgerClient
from quire.local_cluster import LocalCluster
from tests.campaign.writing_process import POLL_S
from tests.integration.faults.appending import appending, check_kept
from tests.integration.faults.injected_syncs import one_failed_sync
from tests.until import WAIT_S

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


@pytest.mark.parametrize("ack", [2, 3])
async def test_a_bookie_stops_at_a_failed_sync(
    cluster: LocalCluster, tmp_path: Path, ack: int
) -> None:
    async with appending(cluster.metadata_uri, tmp_path, ack=ack) as writer:
        await writer.wait_for_acks(500)
        async with LedgerClient(cluster.metadata_uri) as client:
            info = await client.ledger_info(await writer.ledger_id())
        member = next(b for b in cluster.bookies if b.id == info.fragments[-1].ensemble[0])
        async with one_failed_sync(member.pid):
            for _ in range(int(WAIT_S / POLL_S)):
                if not member.is_running:
                    break
                await asyncio.sleep(POLL_S)
        assert not member.is_running
        assert "the disk failed" in member.log_tail()
        await writer.wait_for_acks(500)
        await member.restart()
        history = await writer.stop()
    assert history.failures == {}
    report = await check_kept(cluster.metadata_uri, history)
    assert report.fragments == 2

"""Test of a failed write: the bookie stops, and does not acknowledge the entries of that write."""

import asyncio
from pathlib import Path

import pytest

from ledger_client import LedgerClient, Quorum
from quire.local_cluster import LocalCluster
from tests.campaign.writing_process import POLL_S
from tests.integration.faults.appending import appending, check_kept
from tests.integration.faults.injected_syncs import one_failed_write
from tests.until import WAIT_S

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


@pytest.mark.parametrize("ack", [2, 3])
async def test_a_bookie_stops_at_a_failed_write(
    cluster: LocalCluster, tmp_path: Path, ack: int
) -> None:
    async with appending(cluster.metadata_uri, tmp_path, ack=ack) as writer:
        await writer.wait_for_acks(500)
        async with LedgerClient(cluster.metadata_uri) as client:
            info = await client.ledger_info(await writer.ledger_id())
        member = next(b for b in cluster.bookies if b.id == info.fragments[-1].ensemble[0])
        log = sorted((member.data_dir / "log").glob("*.log"))
        async with one_failed_write(member.pid, log):
            for _ in range(int(WAIT_S / POLL_S)):
                if not member.is_running:
                    break
                await asyncio.sleep(POLL_S)
        assert not member.is_running
        said = member.log_tail()
        assert any(f"log/{path.name}: the disk failed" in said for path in log)
        assert "Input/output error" in said
        await writer.wait_for_acks(500)  # without it: it is still down
        await member.restart()
        history = await writer.stop()
    assert history.failures == {}
    report = await check_kept(cluster.metadata_uri, history)
    assert report.fragments == 2
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        client.create_ledger(Quorum.all(len(cluster.bookies))) as ledger,
    ):
        assert await ledger.append(b"each of them stores it, this one too") == 0

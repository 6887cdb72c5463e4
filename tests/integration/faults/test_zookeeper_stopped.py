"""Tests of writes while ZooKeeper is silent or down: only operations that need it wait."""

import asyncio
from pathlib import Path

import pytest

from ledger_client import LedgerClient
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.campaign.history import CHANGED
from tests.integration.faults.appender import UNDER_WAY_ENTRIES_MAX
from tests.integration.faults.appending import appending, check_kept
from tests.support.pausing import paused

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]
WITHOUT_S = 3.0
STILL_S = 1.5
"""Time in which a wrong writer would confirm thousands of entries; no verdict depends on it."""


async def test_appends_continue_while_zookeeper_is_silent(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with appending(cluster.metadata_uri, tmp_path) as writer:
        await writer.wait_for_acks(200)
        with paused(cluster.zookeeper.pid):
            await asyncio.sleep(WITHOUT_S)
            await writer.wait_for_acks(500)
        await writer.wait_for_acks(500)
        history = await writer.stop()
    assert history.failures == {}
    report = await check_kept(cluster.metadata_uri, history)
    assert report.fragments == 1


async def test_appends_continue_while_zookeeper_is_down(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with appending(cluster.metadata_uri, tmp_path) as writer:
        await writer.wait_for_acks(200)
        await cluster.zookeeper.stop()
        try:
            await asyncio.sleep(WITHOUT_S)
            await writer.wait_for_acks(500)
        finally:
            await cluster.zookeeper.start()
        await writer.wait_for_acks(500)
        history = await writer.stop()
    assert history.failures == {}
    await check_kept(cluster.metadata_uri, history)


async def test_an_ensemble_change_waits_for_zookeeper(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """No entry is confirmed during a change (protocol rule 5.2): the writer records at most what
    was confirmed when it lost the bookie.
    """
    async with appending(cluster.metadata_uri, tmp_path) as writer:
        await writer.wait_for_acks(200)
        member = await _member(cluster, await writer.ledger_id())
        with paused(cluster.zookeeper.pid):
            member.kill()
            await writer.wait_until(lambda history: member.id in history.acked_at)
            await asyncio.sleep(STILL_S)
        await writer.wait_for_acks(500)
        history = await writer.stop()
        await member.restart()
    assert history.failures == {}
    report = await check_kept(cluster.metadata_uri, history)
    assert report.fragments == 2
    confirmed = history.acked_at[CHANGED] - history.acked_at[member.id]
    assert confirmed <= UNDER_WAY_ENTRIES_MAX


async def _member(cluster: LocalCluster, ledger_id: int) -> LocalBookie:
    async with LedgerClient(cluster.metadata_uri) as client:
        info = await client.ledger_info(ledger_id)
    return next(b for b in cluster.bookies if b.id == info.fragments[-1].ensemble[0])

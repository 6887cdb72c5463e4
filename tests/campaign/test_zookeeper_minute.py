"""Test of appends during a minute without ZooKeeper; too long to run for every change."""

import asyncio
from pathlib import Path

import pytest

from ledger_client import LedgerClient, Quorum
from quire.local_cluster import LocalCluster
from tests.integration.faults.appending import appending, check_kept

MINUTE_S = 60.0
STEP_S = 5.0


@pytest.mark.parametrize("is_silent", [False, True])
async def test_appends_continue_for_a_minute_without_zookeeper(
    tmp_path: Path, *, is_silent: bool
) -> None:
    async with LocalCluster(4) as cluster:
        zookeeper = cluster.zookeeper
        async with appending(cluster.metadata_uri, tmp_path) as writer:
            await writer.wait_for_acks(200)
            if is_silent:
                zookeeper.pause()
            else:
                await zookeeper.stop()
            for _ in range(int(MINUTE_S / STEP_S)):
                await asyncio.sleep(STEP_S)
                await writer.wait_for_acks(100)
            if is_silent:
                zookeeper.resume()
            else:
                await zookeeper.start()
            await writer.wait_for_acks(500)
            history = await writer.stop()
        assert history.failures == {}
        report = await check_kept(cluster.metadata_uri, history)
        assert report.fragments == 1
        async with (
            LedgerClient(cluster.metadata_uri) as client,
            client.create_ledger(Quorum.all(4)) as ledger,
        ):
            assert await ledger.append(b"every bookie is registered again") == 0

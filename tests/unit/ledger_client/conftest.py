"""Fixtures for tests that need bookies: scripted ones, or a complete cluster in memory."""

from collections.abc import AsyncIterator

import pytest

from ledger_client.config import ClientConfig
from tests.support.ledger_client.cluster import TestCluster
from tests.support.ledger_client.pool_setting import Setting
from tests.support.ledger_client.scripted_bookie import ScriptedBookie


@pytest.fixture
async def bookie() -> AsyncIterator[ScriptedBookie]:
    bookie = ScriptedBookie("bookie-a")
    await bookie.start()
    yield bookie
    await bookie.stop()


@pytest.fixture
async def setting(bookie: ScriptedBookie) -> AsyncIterator[Setting]:
    config = ClientConfig(
        add_timeout_s=0.6,
        connect_timeout_s=0.5,
        entry_bytes_max=99_000,
        window_bytes_max=40_000,
        window_entries_max=100,
        unanswered_bytes_max=100_000,
    )
    setting = Setting(bookie, config)
    yield setting
    await setting.pool.aclose()


@pytest.fixture
async def cluster() -> AsyncIterator[TestCluster]:
    cluster = TestCluster()
    for _ in range(4):
        await cluster.add_bookie()
    yield cluster
    await cluster.aclose()

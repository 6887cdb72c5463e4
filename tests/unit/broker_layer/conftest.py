"""Fixtures for tests that need a partition's log over bookies in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.support.broker_layer.log_setting import LogSetting
from tests.support.ledger_client.cluster import TestCluster


@pytest.fixture
async def setting() -> AsyncIterator[LogSetting]:
    cluster = TestCluster()
    for _ in range(4):
        await cluster.add_bookie()
    setting = LogSetting(cluster)
    yield setting
    await setting.aclose()
    await cluster.aclose()

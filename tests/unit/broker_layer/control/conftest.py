"""Fixtures: brokers that control topics, with a metadata store and a bookie in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.support.broker_layer.control_setting import Setting


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    await setting.start()
    yield setting
    await setting.aclose()

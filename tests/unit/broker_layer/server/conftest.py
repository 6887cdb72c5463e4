"""Connections in memory to a listener with logins."""

from collections.abc import AsyncIterator

import pytest

from tests.support.broker_layer.login_setting import LoginSetting


@pytest.fixture
async def listener() -> AsyncIterator[LoginSetting]:
    listener = LoginSetting()
    yield listener
    await listener.aclose()

"""Fixtures: three bookies, and one broker that answers requests."""

from collections.abc import AsyncIterator

import pytest

from tests.support.broker_layer.asking import Admin
from tests.support.broker_layer.control_setting import Setting


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    await setting.start(3)
    yield setting
    await setting.aclose()


@pytest.fixture
async def admin(setting: Setting) -> AsyncIterator[Admin]:
    admin = Admin(await setting.broker(1))
    await admin.start()
    yield admin
    await admin.aclose()

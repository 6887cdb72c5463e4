"""Scripted ZooKeeper server, and a store over kazoo, whose threads need a loop in real time."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.store.interface import MetadataStore
from metadata.store.zookeeper import open_store
from tests.support.metadata.scripted_zookeeper import ScriptedZooKeeper
from tests.support.metadata.virtual_time import VirtualTimeLoop

OPERATION_TIMEOUT_S = 15.0


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> dict[str, type[asyncio.SelectorEventLoop]]:
    if "zookeeper" in item.fixturenames:
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
async def zookeeper() -> AsyncIterator[ScriptedZooKeeper]:
    zookeeper = await ScriptedZooKeeper().start()
    yield zookeeper
    await zookeeper.stop()


@pytest.fixture
async def zookeeper_store(zookeeper: ScriptedZooKeeper) -> AsyncIterator[MetadataStore]:
    store = await open_store(
        f"{zookeeper.uri}/quire", rng=random.Random(7), operation_timeout_s=OPERATION_TIMEOUT_S
    )
    yield store
    zookeeper.cut()  # it may withhold the answer to the end of the session
    await store.aclose()

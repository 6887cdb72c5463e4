"""Scripted ZooKeeper servers, and stores over kazoo, whose threads need a loop in real time."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import open_store
from tests.steady_time import SteadyTimeLoop
from tests.support.metadata.scripted_service import ScriptedService
from tests.support.metadata.scripted_zookeeper import (
    ScriptedEnsemble,
    ScriptedZooKeeper,
    Standing,
)
from tests.virtual_time import VirtualTimeLoop

OPERATION_TIMEOUT_S = 15.0


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> dict[str, type[asyncio.SelectorEventLoop]]:
    if {"zookeeper", "ensemble"} & set(item.fixturenames):
        return {"real": SteadyTimeLoop}
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
    _recover(zookeeper)
    await store.aclose()


@pytest.fixture
async def ensemble() -> AsyncIterator[ScriptedEnsemble]:
    ensemble = await ScriptedEnsemble(ScriptedService()).start()
    yield ensemble
    await ensemble.stop()


@pytest.fixture
async def ensemble_store(ensemble: ScriptedEnsemble) -> AsyncIterator[MetadataStore]:
    """Return a store that may use every server of the ensemble, and that has seen nothing yet."""
    store = await open_store(
        f"{ensemble.uri}/quire", rng=random.Random(7), operation_timeout_s=OPERATION_TIMEOUT_S
    )
    yield store
    for server in ensemble.servers:
        _recover(server)
    await store.aclose()


def _recover(server: ScriptedZooKeeper) -> None:
    """End what keeps a server from answering the end of a session."""
    server.standing = Standing.CURRENT
    server.resume()
    server.cut()

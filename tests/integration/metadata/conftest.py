"""One real ZooKeeper server for all tests here, and separate ones for tests that break it."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from metadata.store.embedded import EmbeddedZooKeeper
from tests.integration.metadata.service import ZooKeeperService

TICK_MS = 200


@pytest.fixture(scope="module")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zookeeper")


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", tick_ms=TICK_MS)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def own_service(own_server: EmbeddedZooKeeper) -> AsyncIterator[ZooKeeperService]:
    service = ZooKeeperService(own_server.uri + "/quire", session_timeout_s=1.0)
    yield service
    await service.aclose()


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


@pytest.fixture(scope="module")
def server_uri(shared_directory: Path) -> Iterator[str]:
    server = EmbeddedZooKeeper(shared_directory, tick_ms=TICK_MS)
    asyncio.run(server.start())
    yield server.uri
    asyncio.run(server.stop())

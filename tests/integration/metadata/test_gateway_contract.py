"""The metadata store's contract through a gateway to a real ZooKeeper server."""

import itertools
import random
from collections.abc import AsyncIterator

import pytest

from metadata.store.zookeeper.store import open_store
from tests.contracts.metadata_store import MetadataStoreContract
from tests.support.gateway.running_gateway import GatewayService, run_gateway

_numbers = itertools.count()


class TestGatewayStore(MetadataStoreContract):
    @pytest.fixture
    async def service(self, server_uri: str) -> AsyncIterator[GatewayService]:
        uri = f"{server_uri}/gateway/{next(_numbers)}"
        store = await open_store(uri, rng=random.Random(5), session_timeout_s=6.0)
        service = GatewayService(await run_gateway(store))
        yield service
        await service.aclose()

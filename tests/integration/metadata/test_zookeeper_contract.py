"""The metadata store's contract on a real ZooKeeper server."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.contracts.metadata_store import MetadataStoreContract
from tests.integration.metadata.service import ZooKeeperService

_numbers = itertools.count()


class TestZooKeeperStore(MetadataStoreContract):
    @pytest.fixture
    async def service(self, server_uri: str) -> AsyncIterator[ZooKeeperService]:
        service = ZooKeeperService(f"{server_uri}/contract/{next(_numbers)}")
        yield service
        await service.aclose()

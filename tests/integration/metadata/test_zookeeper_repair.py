"""The contract of repair's metadata on a real ZooKeeper server."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.contracts.repair_metadata import RepairMetadataContract
from tests.integration.metadata.service import ZooKeeperService

_numbers = itertools.count()


class TestZooKeeperRepair(RepairMetadataContract):
    @pytest.fixture
    async def service(self, server_uri: str) -> AsyncIterator[ZooKeeperService]:
        service = ZooKeeperService(f"{server_uri}/repair/{next(_numbers)}")
        yield service
        await service.aclose()

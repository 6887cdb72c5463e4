"""The contract of ids and names that are used again, on a real ZooKeeper server."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.contracts.one_life import OneLifeContract
from tests.integration.metadata.service import ZooKeeperService

_numbers = itertools.count()


class TestZooKeeperOneLife(OneLifeContract):
    @pytest.fixture
    async def service(self, server_uri: str) -> AsyncIterator[ZooKeeperService]:
        service = ZooKeeperService(f"{server_uri}/lives/{next(_numbers)}")
        yield service
        await service.aclose()

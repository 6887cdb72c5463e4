"""The contract of the metadata of users on a real ZooKeeper server."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.contracts.user_metadata import UserMetadataContract
from tests.integration.metadata.service import ZooKeeperService

_numbers = itertools.count()


class TestZooKeeperUsers(UserMetadataContract):
    @pytest.fixture
    async def service(self, server_uri: str) -> AsyncIterator[ZooKeeperService]:
        service = ZooKeeperService(f"{server_uri}/users/{next(_numbers)}")
        yield service
        await service.aclose()

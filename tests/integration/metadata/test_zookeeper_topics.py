"""The contract of topics' metadata on a real ZooKeeper server."""

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.contracts.topic_metadata import TopicMetadataContract
from tests.integration.metadata.service import ZooKeeperService

_numbers = itertools.count()


class TestZooKeeperTopics(TopicMetadataContract):
    @pytest.fixture
    async def service(self, server_uri: str) -> AsyncIterator[ZooKeeperService]:
        service = ZooKeeperService(f"{server_uri}/topics/{next(_numbers)}")
        yield service
        await service.aclose()

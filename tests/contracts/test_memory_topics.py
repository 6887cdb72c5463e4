"""Tests of the contract of topics' metadata on the store in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.test_memory_store import MemoryService
from tests.contracts.topic_metadata import TopicMetadataContract


class TestMemoryTopics(TopicMetadataContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[MemoryService]:
        service = MemoryService()
        yield service
        for store in service.stores:
            await store.aclose()

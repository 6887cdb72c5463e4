"""Tests of the contract of the metadata of users on the store in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.test_memory_store import MemoryService
from tests.contracts.user_metadata import UserMetadataContract


class TestMemoryUsers(UserMetadataContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[MemoryService]:
        service = MemoryService()
        yield service
        for store in service.stores:
            await store.aclose()

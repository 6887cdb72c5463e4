"""Tests of the contract of ids and names that are used again, on the store in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.one_life import OneLifeContract
from tests.contracts.test_memory_store import MemoryService


class TestMemoryOneLife(OneLifeContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[MemoryService]:
        service = MemoryService()
        yield service
        for store in service.stores:
            await store.aclose()

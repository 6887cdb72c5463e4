"""Tests of the contract of repair's metadata on the store in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.repair_metadata import RepairMetadataContract
from tests.contracts.test_memory_store import MemoryService


class TestMemoryRepair(RepairMetadataContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[MemoryService]:
        service = MemoryService()
        yield service
        for store in service.stores:
            await store.aclose()

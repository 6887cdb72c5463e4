"""Tests of the metadata store's contract through a gateway, over the store in memory."""

from collections.abc import AsyncIterator

import pytest

from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.contracts.metadata_store import MetadataStoreContract
from tests.support.gateway.running_gateway import GatewayService, run_gateway


class TestGatewayStore(MetadataStoreContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[GatewayService]:
        store = MemoryMetadataStore(MemoryMetadataServer())
        service = GatewayService(await run_gateway(store))
        yield service
        await service.aclose()

"""Tests of the metadata store's contract through a gateway, over the store in memory."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.contracts.metadata_store import MetadataStoreContract
from tests.support.gateway.running_gateway import LIMITS, GatewayService, run_gateway

ROOMY = replace(LIMITS, unread_bytes_max=8 * 1024 * 1024)
"""Room for the answers of all requests that run, whatever the kernel takes."""


class TestGatewayStore(MetadataStoreContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[GatewayService]:
        store = MemoryMetadataStore(MemoryMetadataServer())
        service = GatewayService(await run_gateway(store, limits=ROOMY))
        yield service
        await service.aclose()

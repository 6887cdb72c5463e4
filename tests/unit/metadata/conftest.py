"""In-memory metadata service with faults on demand, for tests of the modules above it."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable

import pytest

from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.virtual_time import VirtualTimeLoop

NOW_MS = 1_700_000_000_000
RETRIES = 20
RETRIES_S_MIN = 8.0
"""Shortest time of RETRIES pauses of a `Backoff`, half of each at random."""


async def taken_s(call: Awaitable[object]) -> float:
    """Return how long a call takes, in seconds of the loop."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await call
    return loop.time() - began_s


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTimeLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


@pytest.fixture
def faults() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
def stale_reads(faults: ScriptedFaults) -> None:
    """Let reads that are not fresh miss the newest change."""
    faults.missed = 1


@pytest.fixture
def server(faults: ScriptedFaults) -> MemoryMetadataServer:
    return MemoryMetadataServer(faults)


@pytest.fixture
async def store(server: MemoryMetadataServer) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(server, operation_timeout_s=0.05)
    yield store
    await store.aclose()


@pytest.fixture
async def other_store(server: MemoryMetadataServer) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(server)
    yield store
    await store.aclose()


@pytest.fixture
def ledgers(store: MemoryMetadataStore, rng: random.Random) -> LedgerStore:
    return LedgerStore(store, rng, lambda: NOW_MS)


@pytest.fixture
def other_ledgers(other_store: MemoryMetadataStore, rng: random.Random) -> LedgerStore:
    return LedgerStore(other_store, rng, lambda: NOW_MS)

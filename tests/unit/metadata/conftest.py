"""In-memory metadata service with faults on demand, for tests of the modules above it."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable

import pytest

from metadata.errors import OutcomeUnknownError, StoreUnavailableError
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_faults import StoreCall
from tests.support.metadata.virtual_time import VirtualTimeLoop

NOW_MS = 1_700_000_000_000
RETRIES = 20
RETRIES_S_MIN = 8.0
"""Shortest time of RETRIES pauses of a `Backoff`, half of each at random."""


class ScriptedFaults:
    """Applies the next of the given acts to each write in turn; "" and the end of the list mean no
    fault.

    "lost": applied, the answer lost. "dropped": not applied, outcome unknown. "late": outcome
    unknown, applied afterwards. "refused": not applied, and reported so.
    """

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.writes: list[str] = []
        self.late_s = 0.1
        self.news_s = 0.0
        self.failing_reads = 0
        self.failing_session = 0
        self._acting: dict[int, str] = {}

    async def before(self, call: StoreCall) -> None:
        await asyncio.sleep(0)
        # of an earlier task with the same id, whose write failed and so had no answer to lose
        self._acting.pop(id(asyncio.current_task()), None)
        if not call.is_write:
            if self.failing_reads > 0 and call.session_id == self.failing_session:
                self.failing_reads -= 1
                raise StoreUnavailableError("memory", "no answer")
            return
        self.writes.append(call.operation)
        act = self.acts.pop(0) if self.acts else ""
        match act:
            case "refused":
                raise StoreUnavailableError("memory", "refused")
            case "dropped":
                raise OutcomeUnknownError(call.path, "dropped")
            case "late":
                await asyncio.sleep(self.late_s)
            case "lost":
                self._acting[id(asyncio.current_task())] = act
            case _:
                return

    async def after(self, call: StoreCall) -> None:
        await asyncio.sleep(0)
        if self._acting.pop(id(asyncio.current_task()), ""):
            raise OutcomeUnknownError(call.path, "lost")

    def missed_changes(self, call: StoreCall) -> int:
        return 0

    def watch_delay_s(self, path: str) -> float:
        return self.news_s


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
def stale_reads(faults: ScriptedFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads that are not fresh miss the newest change."""
    monkeypatch.setattr(faults, "missed_changes", lambda call: 0 if call.is_fresh else 1)


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

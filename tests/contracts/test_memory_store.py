"""Tests of the metadata store's contract on the store in memory, and of its faults on demand."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from metadata.errors import (
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreUnavailableError,
)
from metadata.ids import Version
from metadata.store.interface import MetadataStore, SessionState
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.contracts.metadata_store import MetadataStoreContract
from tests.support.metadata.scripted_faults import ScriptedFaults


class MemoryService:
    """A server in memory and its opened stores."""

    def __init__(self) -> None:
        self.server = MemoryMetadataServer(clock_ms=count(1).__next__)
        self.stores: list[MemoryMetadataStore] = []

    async def connect(self) -> MetadataStore:
        store = MemoryMetadataStore(self.server)
        self.stores.append(store)
        return store

    async def interrupt(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryMetadataStore)
        store.suspend()
        store.resume()

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryMetadataStore)
        store.expire()


class TestMemoryStore(MetadataStoreContract):
    @pytest.fixture
    async def service(self) -> AsyncIterator[MemoryService]:
        service = MemoryService()
        yield service
        for store in service.stores:
            await store.aclose()


@pytest.fixture
def faults() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
def store(faults: ScriptedFaults) -> MemoryMetadataStore:
    return MemoryMetadataStore(MemoryMetadataServer(faults), operation_timeout_s=0.05)


async def test_late_write_is_applied_after_its_caller_received_unknown(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create("/a", b"0")
    faults.arrival_s = 0.1
    with pytest.raises(OutcomeUnknownError):
        await store.compare_and_set("/a", b"1", Version(0))
    faults.arrival_s = 0.0
    assert (await store.get("/a")).value == b"0"
    await asyncio.sleep(0.1)
    assert (await store.get("/a")).value == b"1"


async def test_a_lost_answer_hides_an_applied_write(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create("/a", b"0")
    faults.answer_s = 1.0
    with pytest.raises(OutcomeUnknownError):
        await store.compare_and_set("/a", b"1", Version(0))
    faults.answer_s = 0.0
    assert (await store.get("/a")).value == b"1"


async def test_cancelling_the_caller_does_not_stop_the_request(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    faults.arrival_s = 0.01
    call = asyncio.create_task(store.create("/a", b"0"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.02)
    assert (await store.get("/a")).value == b"0"


async def test_suspended_store_sends_nothing(store: MemoryMetadataStore) -> None:
    store.suspend()
    with pytest.raises(StoreUnavailableError):
        await store.create("/a", b"0")
    store.resume()
    await asyncio.sleep(0.01)
    with pytest.raises(NodeNotFoundError):
        await store.get("/a")


async def test_suspension_makes_the_outcome_of_running_calls_unknown(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    faults.arrival_s = 0.02
    call = asyncio.create_task(store.create("/a", b"0"))
    await asyncio.sleep(0.005)
    store.suspend()
    with pytest.raises(OutcomeUnknownError):
        await call


async def test_a_suspended_session_ends_after_its_timeout() -> None:
    server = MemoryMetadataServer()
    one = MemoryMetadataStore(server, session_timeout_s=0.02)
    other = MemoryMetadataStore(server)
    await one.create("/live", b"", ephemeral=True)
    one.suspend()
    await asyncio.sleep(0.05)
    assert one.session_state is SessionState.EXPIRED
    with pytest.raises(NodeNotFoundError):
        await other.get("/live")
    one.resume()
    assert str(one.session_state) == SessionState.CONNECTED
    await one.create("/live", b"", ephemeral=True)
    await one.aclose()
    await other.aclose()


async def test_a_late_request_of_an_ended_session_takes_no_effect(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    faults.arrival_s = 0.02
    call = asyncio.create_task(store.create("/a", b"0"))
    await asyncio.sleep(0.005)
    store.expire()
    with pytest.raises(OutcomeUnknownError):
        await call
    await asyncio.sleep(0.03)
    faults.arrival_s = 0.0
    with pytest.raises(NodeNotFoundError):
        await store.get("/a")


async def test_a_slow_follower_never_goes_back_and_fresh_reads_catch_up(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    other = MemoryMetadataStore(store._server)
    await other.create("/a", b"0")
    assert (await store.get("/a")).value == b"0"
    faults.missed = 100
    await other.compare_and_set("/a", b"1", Version(0))
    await other.create("/b", b"")
    assert (await store.get("/a")).value == b"0"
    assert await store.children("/") == ["a"]
    assert (await store.get("/a", fresh=True)).value == b"1"
    assert (await store.get("/a")).value == b"1"
    assert await store.children("/") == ["a", "b"]
    await other.aclose()


async def test_a_replaced_leader_answers_fresh_reads_but_not_agreed_ones(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    other = MemoryMetadataStore(store._server)
    await other.create("/a", b"0")
    assert (await store.get("/a")).value == b"0"
    faults.missed = faults.missed_by_fresh = 100
    await other.compare_and_set("/a", b"1", Version(0))
    await other.create("/b", b"")
    assert (await store.get("/a", fresh=True)).value == b"0"
    assert await store.children("/", fresh=True) == ["a"]
    assert await store.children("/", agreed=True) == ["a", "b"]
    assert (await store.get("/a")).value == b"1"
    await other.aclose()


async def test_closing_fails_waiting_calls(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    faults.arrival_s = 10.0
    call = asyncio.create_task(store.create("/a", b"0"))
    await asyncio.sleep(0.005)
    await store.aclose()
    with pytest.raises(StoreClosedError):
        await call

"""Summary of the auditor: the last writer wins."""

import random
from dataclasses import replace

import pytest

from metadata.errors import StoreUnavailableError
from metadata.repair.status import RepairStatus
from metadata.repair.status_store import StatusStore
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

STATUS = RepairStatus("bookie-a", 5, None, 6)


async def test_a_summary_replaces_the_last_one(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = StatusStore(store, rng), StatusStore(other_store, rng)
    calls: list[None] = []
    cancel = there.watch(lambda: calls.append(None))
    assert await here.get() is None
    await here.put(STATUS)
    await until(lambda: len(calls) == 1)
    second = replace(STATUS, auditor_id="bookie-b")
    await there.put(second)
    assert await here.get() == second
    cancel()


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_an_unknown_outcome_is_decided(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    statuses = StatusStore(store, rng)
    for written_ms in (7, 8):
        faults.acts = [act]
        await statuses.put(replace(STATUS, written_ms=written_ms))
    found = await statuses.get()
    assert found is not None
    assert found.written_ms == 8


async def test_a_refused_summary_is_an_error(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await StatusStore(store, rng).put(STATUS)

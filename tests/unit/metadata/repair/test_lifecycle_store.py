"""States of bookies: changed by compare-and-set (rules 1.2-1.3, 9.1), and followed."""

import random

import pytest

from metadata.errors import InvalidLifecycleChangeError, StoreUnavailableError
from metadata.ids import BookieId
from metadata.paths import LIFECYCLES
from metadata.repair.lifecycle import LIFECYCLE_CODEC, UNCHANGED, BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LIFECYCLE_KIND, Lifecycles, LifecycleStore
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

A, B = BookieId("bookie-a"), BookieId("bookie-b")
DRAINING = BookieLifecycle(Lifecycle.DRAINING, 5, "a new machine")
UNREADABLE = b"\x91\x63"
"""A msgpack array that begins with format version 99."""


async def test_a_state_is_changed_and_read(store: MemoryMetadataStore, rng: random.Random) -> None:
    states = LifecycleStore(store, rng)
    assert await states.get(A) == UNCHANGED
    assert await states.get_all() == {}
    assert await states.change(A, Lifecycle.DRAINING, "a new machine", 5) == DRAINING
    assert await states.change(A, Lifecycle.DRAINING, "again", 9) == DRAINING, "it is already"
    assert await states.get(A) == DRAINING
    assert await states.get_all() == {A: DRAINING}


async def test_a_record_stays_when_a_bookie_is_active_again(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    states = LifecycleStore(store, rng)
    await states.change(A, Lifecycle.LOST, "away for 600 s", 5)
    active = await states.change(A, Lifecycle.ACTIVE, "it is back", 6)
    assert active == BookieLifecycle(Lifecycle.ACTIVE, 6, "it is back")
    assert (await store.get(LIFECYCLE_KIND.path(A))).version == 1, "no node is ever made again"
    assert await states.get_all() == {A: active}


async def test_a_bookie_stays_active_while_nothing_changes_it(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    assert await LifecycleStore(store, rng).change(A, Lifecycle.ACTIVE, "undrain", 5) == UNCHANGED


async def test_a_change_is_made_from_the_state_that_it_replaces(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    states, others = LifecycleStore(store, rng), LifecycleStore(other_store, rng)
    await states.change(A, Lifecycle.DRAINING, "a new machine", 5)
    await others.change(A, Lifecycle.DRAINED, "nothing is left", 6)
    await states.change(A, Lifecycle.REMOVED, "it is empty", 7)
    with pytest.raises(InvalidLifecycleChangeError, match="removed and cannot become active"):
        await others.change(A, Lifecycle.ACTIVE, "undrain", 8)
    writes = len(faults.writes)
    with pytest.raises(InvalidLifecycleChangeError):
        await states.change(B, Lifecycle.REMOVED, "it is not drained", 9)
    assert len(faults.writes) == writes


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
@pytest.mark.parametrize("has_record", [False, True])
async def test_an_unknown_outcome_is_decided(
    store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
    act: str,
    has_record: bool,
) -> None:
    states = LifecycleStore(store, rng)
    if has_record:
        await states.change(A, Lifecycle.LOST, "away", 4)
    faults.acts = [act]
    assert await states.change(A, Lifecycle.DRAINING, "a new machine", 5) == DRAINING
    assert await states.get(A) == DRAINING


async def test_a_refused_write_changes_nothing(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    states = LifecycleStore(store, rng)
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await states.change(A, Lifecycle.DRAINING, "a new machine", 5)
    assert await states.get(A) == UNCHANGED


async def test_a_view_follows_all_states(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    states = LifecycleStore(store, rng)
    await states.change(A, Lifecycle.DRAINING, "a new machine", 5)
    await store.create(f"{LIFECYCLES}/not a bookie", b"")
    view = Lifecycles(other_store, rng)
    seen: list[tuple[BookieId, Lifecycle]] = []
    view.on_change(lambda bookie_id: seen.append((bookie_id, view.of(bookie_id).state)))
    await view.start()
    assert view.records == {A: DRAINING}
    assert view.of(B) == UNCHANGED
    await states.change(B, Lifecycle.LOST, "away", 6)
    await until(lambda: view.of(B).state is Lifecycle.LOST)
    await states.change(A, Lifecycle.ACTIVE, "undrain", 7)
    await until(lambda: view.of(A).state is Lifecycle.ACTIVE)
    assert seen == [(A, Lifecycle.DRAINING), (B, Lifecycle.LOST), (A, Lifecycle.ACTIVE)]
    await view.aclose()


async def test_a_view_keeps_what_it_cannot_read(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    await LifecycleStore(store, rng).change(A, Lifecycle.DRAINING, "a new machine", 5)
    view = Lifecycles(other_store, rng)
    await view.start()
    stored = await store.get(LIFECYCLE_KIND.path(A))
    version = await store.compare_and_set(
        LIFECYCLE_KIND.path(A), b"of a newer release", stored.version
    )
    await LifecycleStore(store, rng).change(B, Lifecycle.LOST, "away", 6)
    await until(lambda: B in view.records)
    assert view.of(A) == DRAINING
    await store.delete(LIFECYCLE_KIND.path(A), version)
    await until(lambda: view.of(A) == UNCHANGED)
    await view.aclose()


async def test_a_record_that_cannot_be_read_stops_no_list_and_draining_replaces_it(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    states = LifecycleStore(store, rng)
    await store.create(LIFECYCLE_KIND.path(A), UNREADABLE)
    await states.change(B, Lifecycle.DRAINING, "a new machine", 5)
    found = await states.get_all()
    assert found[B] == DRAINING
    assert found[A] == await states.get(A)
    assert found[A].state is Lifecycle.UNREADABLE
    assert "99" in found[A].reason
    with pytest.raises(InvalidLifecycleChangeError, match="quire bookie drain"):
        await states.change(A, Lifecycle.ACTIVE, "undrain", 6)
    assert await states.change(A, Lifecycle.DRAINING, "a new machine", 5) == DRAINING
    assert await states.get_all() == {A: DRAINING, B: DRAINING}


async def test_a_view_keeps_the_last_record_that_it_could_read(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    states, view = LifecycleStore(store, rng), Lifecycles(store, rng)
    await store.create(LIFECYCLE_KIND.path(A), UNREADABLE)
    version = await store.create(LIFECYCLE_KIND.path(B), LIFECYCLE_CODEC.pack("b", DRAINING))
    await view.start()
    assert {bookie: record.state for bookie, record in view.records.items()} == {
        A: Lifecycle.UNREADABLE,
        B: Lifecycle.DRAINING,
    }
    await store.compare_and_set(LIFECYCLE_KIND.path(B), UNREADABLE, version)
    await states.change(A, Lifecycle.DRAINING, "a new machine", 5)
    await until(lambda: view.of(A) == DRAINING)
    assert view.of(B) == DRAINING
    await view.aclose()

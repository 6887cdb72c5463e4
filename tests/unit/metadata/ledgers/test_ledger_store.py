"""Rule 1.3 (unknown outcomes), rule 10.1 (deletion) and the listing of many ledgers."""

import asyncio
import random
from dataclasses import replace

import pytest
from typing_extensions import override

from metadata.errors import (
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    StoreUnavailableError,
    ValueTooLargeError,
    VersionConflictError,
)
from metadata.ids import LEDGER_ID_MAX, EntryId, LedgerId, Version
from metadata.ledgers.codec import encode_ledger_metadata
from metadata.ledgers.deletion_feed import DeletionFeed
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_metadata import Fragment
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import (
    CHOSEN_ID_SHARDS,
    DELETION_SHARDS,
    LEDGER_IDS,
    LEDGERS,
    chosen_id_path,
    ledger_path,
)
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from tests.support.metadata.samples import A, B, C, D, E, open_ledger, token
from tests.support.metadata.scripted_faults import ScriptedFaults

SEVEN = LedgerId(7)


async def require_deleted(ledgers: LedgerStore) -> None:
    with pytest.raises(NodeNotFoundError):
        await ledgers.get(SEVEN, fresh=True)


async def test_create_then_get(ledgers: LedgerStore) -> None:
    ledger = open_ledger()
    assert await ledgers.create(ledger) == 0
    assert await ledgers.get(SEVEN) == (ledger, 0)


async def test_create_refuses_an_id_of_another_ledger(ledgers: LedgerStore) -> None:
    await ledgers.create(open_ledger())
    other = open_ledger(7, Fragment(EntryId(0), (A, B, D)))
    with pytest.raises(NodeExistsError):
        await ledgers.create(replace(other, creation_token=token(99)))


async def test_a_chosen_id_is_used_once(ledgers: LedgerStore, store: MemoryMetadataStore) -> None:
    await ledgers.create(open_ledger(), is_chosen=True)
    assert await ledgers.delete(SEVEN)
    assert await DeletionFeed(store).expire(7, 2**62) == 1
    for is_chosen in (True, False):
        again = replace(open_ledger(), creation_token=token(99))
        with pytest.raises(NodeExistsError) as raised:
            await ledgers.create(again, is_chosen=is_chosen)
        assert raised.value.path == chosen_id_path(SEVEN)
        await require_deleted(ledgers)


async def allocated(store: MemoryMetadataStore, rng: random.Random) -> LedgerId:
    return await LedgerIdAllocator(store, rng, block_ids=10).allocate()


async def test_an_allocated_id_cannot_be_chosen(
    ledgers: LedgerStore, store: MemoryMetadataStore, rng: random.Random
) -> None:
    ledger = open_ledger(await allocated(store, rng))
    for again in (ledger, open_ledger(10)):
        with pytest.raises(NodeExistsError) as raised:
            await ledgers.create(again, is_chosen=True)
        assert raised.value.path == LEDGER_IDS
    for free in (0, 11):
        assert await ledgers.create(open_ledger(free), is_chosen=True) == 0


async def test_an_existing_ledger_is_named_before_the_counter(
    ledgers: LedgerStore, store: MemoryMetadataStore, rng: random.Random
) -> None:
    await ledgers.create(open_ledger(), is_chosen=True)
    await allocated(store, rng)
    again = replace(open_ledger(), creation_token=token(99))
    for path in (ledger_path(SEVEN), chosen_id_path(SEVEN)):
        with pytest.raises(NodeExistsError) as raised:
            await ledgers.create(again, is_chosen=True)
        assert raised.value.path == path
        await ledgers.delete(SEVEN)


@pytest.mark.parametrize("act", ["lost", "late"])
async def test_a_chosen_id_is_ours_although_ids_were_allocated_since(
    ledgers: LedgerStore,
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
    act: str,
) -> None:
    await allocated(store, rng)
    await ledgers.create(open_ledger(11 + CHOSEN_ID_SHARDS), is_chosen=True)  # makes the parents
    faults.acts = [act]
    creating = asyncio.create_task(ledgers.create(open_ledger(11), is_chosen=True))
    await asyncio.sleep(faults.late_s * 1.01)
    await allocated(other_store, rng)
    assert await creating == 0


@pytest.mark.parametrize("late_s", [0.02, 0.1], ids=["in time", "too late"])
async def test_an_id_that_is_allocated_meanwhile_cannot_be_chosen(
    ledgers: LedgerStore,
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
    late_s: float,
) -> None:
    await allocated(store, rng)
    await ledgers.create(open_ledger(11 + CHOSEN_ID_SHARDS), is_chosen=True)  # makes the parents
    faults.acts, faults.late_s = ["late"], late_s
    creating = asyncio.create_task(ledgers.create(open_ledger(11), is_chosen=True))
    await asyncio.sleep(faults.late_s / 2)
    await allocated(other_store, rng)
    with pytest.raises(NodeExistsError) as raised:
        await creating
    assert raised.value.path == LEDGER_IDS


async def test_an_allocated_id_leaves_nothing_behind(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await ledgers.create(open_ledger())
    with pytest.raises(NodeNotFoundError):
        await store.get(chosen_id_path(SEVEN), fresh=True)


async def test_a_creation_applied_late_does_not_bring_a_chosen_id_back(
    ledgers: LedgerStore, other_ledgers: LedgerStore, faults: ScriptedFaults
) -> None:
    await ledgers.create(open_ledger(8))  # makes the parents of ledgers
    await ledgers.create(open_ledger(7 + CHOSEN_ID_SHARDS))  # and of chosen ids
    faults.acts = ["late"]
    await ledgers.create(open_ledger(), is_chosen=True)
    await other_ledgers.delete(SEVEN)
    await asyncio.sleep(2 * faults.late_s)
    await require_deleted(ledgers)


@pytest.mark.parametrize("acts", [["lost"], ["dropped"], ["late"], ["dropped", "refused", "lost"]])
async def test_an_ambiguous_create_is_decided_by_its_token(
    ledgers: LedgerStore, faults: ScriptedFaults, acts: list[str]
) -> None:
    await ledgers.create(open_ledger(8))  # makes the parents
    faults.acts = acts
    assert await ledgers.create(open_ledger()) == 0
    await asyncio.sleep(faults.late_s)
    assert await ledgers.get(SEVEN) == (open_ledger(), 0)


async def test_a_refused_create_raises(ledgers: LedgerStore, faults: ScriptedFaults) -> None:
    await ledgers.create(open_ledger(8))
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await ledgers.create(open_ledger())


async def test_compare_and_set_returns_the_new_version(ledgers: LedgerStore) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    assert await ledgers.compare_and_set(changed, version) == 1
    assert await ledgers.get(SEVEN, fresh=True) == (changed, 1)


async def test_compare_and_set_conflicts_with_another_change(
    ledgers: LedgerStore, other_ledgers: LedgerStore
) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    await other_ledgers.compare_and_set(ledger.with_recovery_begun(token(8)), version)
    with pytest.raises(VersionConflictError):
        await ledgers.compare_and_set(
            ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3)), version
        )


@pytest.mark.parametrize(
    "acts",
    [["lost"], ["dropped"], ["late"], ["refused"], ["dropped", "late"], ["refused", "lost"]],
)
async def test_an_unknown_outcome_is_decided_by_the_token(
    ledgers: LedgerStore, faults: ScriptedFaults, acts: list[str]
) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    faults.acts = acts
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    assert await ledgers.compare_and_set(changed, version) == 1
    await asyncio.sleep(faults.late_s)
    assert await ledgers.get(SEVEN, fresh=True) == (changed, 1)


@pytest.mark.parametrize("act", ["dropped", "late"])
async def test_an_unknown_outcome_may_be_a_conflict(
    ledgers: LedgerStore, other_ledgers: LedgerStore, faults: ScriptedFaults, act: str
) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    fenced = ledger.with_recovery_begun(token(8))
    faults.acts = [act]
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    call = asyncio.create_task(ledgers.compare_and_set(changed, version))
    await asyncio.sleep(0.001)
    await other_ledgers.compare_and_set(fenced, version)
    with pytest.raises(VersionConflictError):
        await call
    await asyncio.sleep(faults.late_s)
    assert (await ledgers.get(SEVEN, fresh=True))[0] == fenced


async def test_the_old_version_does_not_decide_an_unknown_outcome(
    ledgers: LedgerStore, faults: ScriptedFaults
) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    faults.acts = ["dropped"] * 4
    faults.writes.clear()
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    await ledgers.compare_and_set(changed, version)
    assert faults.writes == ["compare_and_set"] * 5


async def test_compare_and_set_of_a_deleted_ledger(ledgers: LedgerStore) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    await ledgers.delete(SEVEN)
    with pytest.raises(NodeNotFoundError):
        await ledgers.compare_and_set(ledger.with_recovery_begun(token(3)), version)


async def test_a_value_over_the_limit_is_refused(ledgers: LedgerStore) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    fragments = [Fragment(EntryId(i * 10**12), (A, B, C, D, E)) for i in range(60_000)]
    with pytest.raises(ValueTooLargeError):
        await ledgers.compare_and_set(open_ledger(7, *fragments), version)


async def test_an_unreadable_value_is_a_format_error(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await store.create(ledger_path(SEVEN), b"garbage")
    await store.create(ledger_path(LedgerId(8)), encode_ledger_metadata(open_ledger(9)))
    for ledger_id in (SEVEN, LedgerId(8)):
        with pytest.raises(MetadataFormatError):
            await ledgers.get(ledger_id)


@pytest.mark.parametrize("acts", [[], ["lost"], ["dropped"], ["late"], ["dropped", "refused"]])
async def test_delete_records_the_deletion_in_the_same_step(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults, acts: list[str]
) -> None:
    await ledgers.create(open_ledger(7 + DELETION_SHARDS))
    await ledgers.delete(LedgerId(7 + DELETION_SHARDS))  # makes the shard
    await ledgers.create(open_ledger())
    faults.acts = list(acts)
    assert await ledgers.delete(SEVEN)
    await require_deleted(ledgers)
    assert SEVEN in await DeletionFeed(store).entries(7)
    assert not await ledgers.delete(SEVEN)


async def test_delete_removes_the_levels_that_become_empty(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    await ledgers.create(open_ledger(7))
    await ledgers.create(open_ledger(5_000_000))
    await ledgers.delete(LedgerId(5_000_000))
    assert await store.children(f"{LEDGERS}/0000/000/000/000") == ["000"]
    await ledgers.delete(SEVEN)
    assert await store.children(LEDGERS) == []
    await ledgers.create(open_ledger(7))


async def test_creates_and_deletes_of_neighbouring_ledgers(
    ledgers: LedgerStore, other_ledgers: LedgerStore
) -> None:
    async def turn(number: int) -> None:
        own = ledgers if number % 2 else other_ledgers
        await own.create(open_ledger(number * 1000))
        await asyncio.sleep(0)
        await own.delete(LedgerId(number * 1000))

    await asyncio.gather(*[turn(number) for number in range(20)])
    assert [ledger_id async for ledger_id in ledgers.list_ledger_ids()] == []


async def test_ledgers_are_listed_in_order(ledgers: LedgerStore) -> None:
    ids = [0, 1, 999, 1000, 1001, 10**6, 10**15 + 3, LEDGER_ID_MAX]
    for ledger_id in reversed(ids):
        await ledgers.create(open_ledger(ledger_id))
    assert [x async for x in ledgers.list_ledger_ids()] == ids
    for start in (1, 2, 1000, 10**6 + 1, LEDGER_ID_MAX):
        found = [x async for x in ledgers.list_ledger_ids(LedgerId(start))]
        assert found == [x for x in ids if x >= start]


async def test_a_watch_reports_a_change(ledgers: LedgerStore, other_ledgers: LedgerStore) -> None:
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    reported = asyncio.Event()
    cancel = ledgers.watch(SEVEN, reported.set)
    await other_ledgers.compare_and_set(ledger.with_recovery_begun(token(3)), version)
    await reported.wait()
    cancel()


async def test_each_change_of_a_burst_has_its_outcome(
    ledgers: LedgerStore, faults: ScriptedFaults
) -> None:
    many = [open_ledger(number) for number in range(200)]
    for ledger in many:
        await ledgers.create(ledger)
    await ledgers.compare_and_set(many[50].with_recovery_begun(token(9)), Version(0))
    faults.writes.clear()
    results = await asyncio.gather(
        *[ledgers.compare_and_set(x.with_recovery_begun(token(3)), Version(0)) for x in many],
        return_exceptions=True,
    )
    assert [i for i, x in enumerate(results) if x != 1] == [50]
    assert isinstance(results[50], VersionConflictError)
    assert faults.writes.count("multi") == 2


class ParentsRemoved(MemoryMetadataStore):
    """A store in which a deletion removes the empty parents while a creation makes them."""

    removals_left = 2

    @override
    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = True
    ) -> Version:
        """Create a node, or find that its parent is gone."""
        if path.startswith(LEDGERS) and self.removals_left:
            self.removals_left -= 1
            raise NodeNotFoundError(path.rpartition("/")[0])
        return await super().create(path, value, ephemeral=ephemeral, make_parents=make_parents)


async def test_a_creation_outlasts_deletions_that_remove_its_parents() -> None:
    store = ParentsRemoved(MemoryMetadataServer())
    ledgers = LedgerStore(store, random.Random(1), lambda: 0)
    assert await ledgers.create(open_ledger()) == 0
    assert not store.removals_left
    await store.aclose()

"""Calls of the store of ledgers under repeated faults: what they write, when they repeat, and what
they read.
"""

import asyncio

import pytest

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import EntryId, LedgerId, Version
from metadata.ledgers.deletion_feed import DeletionFeed
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import DELETION_SHARDS, LEDGER_IDS, LEDGERS, chosen_id_path, ledger_path
from metadata.store.interface import Check
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import A, B, D, open_ledger, token
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.unit.metadata.conftest import RETRIES, RETRIES_S_MIN, taken_s

SEVEN = LedgerId(7)
NEIGHBOUR = LedgerId(7 + DELETION_SHARDS)
"""Another ledger below the same node and in the same shard of the deletion feed."""


async def with_nodes_above(ledgers: LedgerStore) -> None:
    """Make the nodes above ledger 7, of its deletion and of its choice."""
    for ledger_id in (NEIGHBOUR, LedgerId(8)):
        await ledgers.create(open_ledger(ledger_id), is_chosen=True)
    await ledgers.delete(NEIGHBOUR)


@pytest.mark.usefixtures("stale_reads")
async def test_reads_are_as_fresh_as_wanted(
    ledgers: LedgerStore,
    other_ledgers: LedgerStore,
    faults: ScriptedFaults,
) -> None:
    ledger = open_ledger()
    await other_ledgers.create(ledger)
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    await other_ledgers.compare_and_set(changed, Version(0))
    assert await ledgers.get(SEVEN) == (ledger, 0)
    faults.missed = faults.missed_by_fresh = 1
    assert await ledgers.get(SEVEN, agreed=True) == (changed, 1)


@pytest.mark.usefixtures("stale_reads")
async def test_a_ledger_that_just_changed_can_be_deleted(
    ledgers: LedgerStore, other_ledgers: LedgerStore
) -> None:
    ledger = open_ledger()
    await other_ledgers.create(ledger)
    await other_ledgers.compare_and_set(ledger.with_recovery_begun(token(8)), Version(0))
    assert await taken_s(ledgers.delete(SEVEN)) == 0.0


@pytest.mark.usefixtures("stale_reads")
async def test_an_unknown_outcome_is_decided_by_a_fresh_read(
    ledgers: LedgerStore, other_ledgers: LedgerStore, faults: ScriptedFaults
) -> None:
    ledger = open_ledger()
    await other_ledgers.create(ledger)
    await other_ledgers.compare_and_set(ledger.with_recovery_begun(token(8)), Version(0))
    faults.acts = ["dropped"]
    faults.writes.clear()
    with pytest.raises(VersionConflictError):
        await ledgers.compare_and_set(ledger.with_recovery_begun(token(3)), Version(0))
    assert len(faults.writes) == 1


async def test_a_conflict_needs_no_read_to_be_certain(
    ledgers: LedgerStore,
    other_ledgers: LedgerStore,
    store: MemoryMetadataStore,
    faults: ScriptedFaults,
) -> None:
    """The metadata service answers no read after the conflict."""
    ledger = open_ledger()
    await other_ledgers.create(ledger)
    await other_ledgers.compare_and_set(ledger.with_recovery_begun(token(8)), Version(0))
    faults.meets, faults.refusals = reads_of(store), RETRIES
    with pytest.raises(VersionConflictError):
        await ledgers.compare_and_set(ledger.with_recovery_begun(token(3)), Version(0))
    assert faults.refusals == RETRIES


async def test_calls_are_repeated_after_growing_pauses(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await with_nodes_above(ledgers)
    ledger = open_ledger()
    faults.acts = ["dropped"] * RETRIES
    assert await taken_s(ledgers.create(ledger)) > RETRIES_S_MIN
    faults.acts = ["dropped"] * RETRIES
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    assert await taken_s(ledgers.compare_and_set(changed, Version(0))) > RETRIES_S_MIN
    faults.acts = ["lost"]
    faults.meets, faults.refusals = reads_of(store), RETRIES
    again = changed.with_ensemble_change(EntryId(9), (A, B, D), token(4))
    assert await taken_s(ledgers.compare_and_set(again, Version(1))) > RETRIES_S_MIN
    for act in ("dropped", "refused"):
        faults.acts = [act] * RETRIES
        assert await taken_s(ledgers.delete(SEVEN)) > RETRIES_S_MIN
        await ledgers.create(ledger)


async def test_a_deletion_of_a_ledger_that_keeps_changing_is_repeated_after_pauses(
    ledgers: LedgerStore, faults: ScriptedFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_nodes_above(ledgers)
    await ledgers.create(open_ledger())
    conflicts_left = RETRIES
    real = MemoryMetadataStore.multi

    async def conflict(self: MemoryMetadataStore, operations: object) -> object:
        nonlocal conflicts_left
        if conflicts_left:
            conflicts_left -= 1
            raise VersionConflictError(ledger_path(SEVEN), Version(0))
        return await real(self, operations)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryMetadataStore, "multi", conflict)
    assert await taken_s(ledgers.delete(SEVEN)) > RETRIES_S_MIN


async def test_a_refused_deletion_raises_unless_the_ledger_was_seen(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await with_nodes_above(ledgers)
    await ledgers.create(open_ledger())
    faults.meets, faults.refusals = reads_of(store), 1
    with pytest.raises(StoreUnavailableError):
        await ledgers.delete(SEVEN)
    assert await ledgers.get(SEVEN)


async def test_a_deletion_needs_no_more_than_the_ledgers_end(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    """Empty nodes above it are removed on the way, as far as they are empty."""
    await with_nodes_above(ledgers)
    for acts in ([], ["", "refused"], ["", "dropped"], ["", "lost"]):
        await ledgers.create(open_ledger())
        faults.writes.clear()
        faults.acts = list(acts)
        assert await ledgers.delete(SEVEN)
        assert faults.writes == ["multi", "delete"]
        await DeletionFeed(store).expire(7, 2**62)
    await ledgers.delete(LedgerId(8))
    assert await store.children(LEDGERS) == []
    assert (await store.get(LEDGERS)).version == 0, "the node above all ledgers stays"


async def test_a_deletion_that_is_recorded_already_is_recorded_once(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    for _ in range(2):
        await ledgers.create(open_ledger())
        assert await ledgers.delete(SEVEN)
        with pytest.raises(NodeNotFoundError):
            await ledgers.get(SEVEN, fresh=True)
    assert await DeletionFeed(store).entries(7) == [SEVEN]


@pytest.mark.parametrize("act", ["", "lost", "dropped"])
async def test_the_first_deletion_of_a_shard_makes_its_node(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults, act: str
) -> None:
    number = 9 * DELETION_SHARDS + 5
    await ledgers.create(open_ledger(number))
    faults.acts = ["", act]
    assert await ledgers.delete(LedgerId(number))
    assert await DeletionFeed(store).entries(5) == [number]


@pytest.mark.parametrize(("guard", "is_met"), [("/met", True), ("/met", False), ("/gone", False)])
async def test_a_guarded_deletion_happens_with_its_guard_alone(
    ledgers: LedgerStore, store: MemoryMetadataStore, guard: str, *, is_met: bool
) -> None:
    await with_nodes_above(ledgers)
    await ledgers.create(open_ledger())
    await store.create("/met", b"")
    check = Check(guard, Version(0 if is_met else 3))
    if is_met:
        assert await ledgers.delete(SEVEN, guard=[check])
        return
    with pytest.raises(VersionConflictError) as raised:
        await ledgers.delete(SEVEN, guard=[check])
    assert raised.value.path == guard
    assert await ledgers.get(SEVEN, fresh=True) == (open_ledger(), 0)


@pytest.mark.parametrize("act", ["", "lost", "dropped"])
async def test_the_first_chosen_id_makes_the_counter_of_ids(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults, act: str
) -> None:
    faults.acts = [act]
    assert await ledgers.create(open_ledger(), is_chosen=True) == 0
    assert (await store.get(LEDGER_IDS)).version == 0
    assert (await store.get(chosen_id_path(SEVEN))).version == 0


async def test_a_chosen_ledger_that_was_deleted_before_its_creation_ended_is_not_ours(
    ledgers: LedgerStore, other_ledgers: LedgerStore, faults: ScriptedFaults
) -> None:
    await with_nodes_above(ledgers)
    faults.acts = ["lost"]
    creating = asyncio.create_task(ledgers.create(open_ledger(), is_chosen=True))
    await asyncio.sleep(0.001)
    await other_ledgers.delete(SEVEN)
    with pytest.raises(NodeExistsError):
        await creating


async def test_a_creation_that_was_refused_after_an_unknown_outcome_goes_on(
    ledgers: LedgerStore, store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await with_nodes_above(ledgers)
    faults.acts = ["lost", "refused"]
    faults.meets, faults.refusals = reads_of(store), 2
    assert await ledgers.create(open_ledger()) == 0
    assert await ledgers.get(SEVEN) == (open_ledger(), 0)


async def test_names_that_are_no_ledgers_are_not_listed(
    ledgers: LedgerStore, store: MemoryMetadataStore
) -> None:
    above = ledger_path(SEVEN).rpartition("/")[0]
    await ledgers.create(open_ledger())
    too_large = "/".join((LEDGERS, "9999", "999", "999", "999", "999", "999"))
    for path in (too_large, f"{LEDGERS}/a-name", f"{LEDGERS}/00", f"{above}/0", f"{above}/zzz"):
        await store.create(path, b"")
    await ledgers.create(open_ledger(8))
    assert [ledger_id async for ledger_id in ledgers.list_ledger_ids()] == [7, 8]


async def test_a_watch_ends(ledgers: LedgerStore, other_ledgers: LedgerStore) -> None:
    ledger = open_ledger()
    await other_ledgers.create(ledger)
    calls: list[None] = []
    cancel = ledgers.watch(SEVEN, lambda: calls.append(None))
    await other_ledgers.compare_and_set(ledger.with_recovery_begun(token(3)), Version(0))
    await asyncio.sleep(1.0)
    assert len(calls) == 1
    cancel()
    await other_ledgers.delete(SEVEN)
    await asyncio.sleep(1.0)
    assert len(calls) == 1

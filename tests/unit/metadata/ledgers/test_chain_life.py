"""What was sent for a chain that is deleted by now takes no effect on the next one of its name."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from metadata.errors import ChainNotFoundError, VersionConflictError
from metadata.ids import LedgerId
from metadata.ledgers.chain import ChainHead
from metadata.ledgers.chain_store import ChainStore, Publication
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import chain_creation_path, ledger_path
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.unit.metadata.conftest import NOW_MS

NAME = "orders"
EMPTY = Publication(())
Act = Callable[[ChainStore], Awaitable[object]]

CHANGES: list[Act] = [
    lambda chains: chains.publish(NAME, EMPTY),
    lambda chains: chains.trim(NAME, 1),
    lambda chains: chains.refuse_older(NAME, NOW_MS),
    lambda chains: chains.delete(NAME),
]


@pytest.fixture
def chains(store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return ChainStore(store, rng, lambda: NOW_MS)


@pytest.fixture
def other(other_store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return ChainStore(other_store, rng, lambda: NOW_MS)


@pytest.mark.parametrize("change", CHANGES, ids=["publish", "trim", "refuse", "delete"])
async def test_a_late_change_meets_no_other_chain(
    chains: ChainStore,
    other: ChainStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    change: Act,
) -> None:
    """Both chains have a head of version 3 when the change takes effect."""
    await chains.create(NAME)
    for _ in range(3):
        await chains.publish(NAME, EMPTY)
    faults.acts = ["late"]
    changing = asyncio.create_task(_outcome(change(chains)))
    await asyncio.sleep(faults.late_s / 10)
    await other.delete(NAME)
    await other.create(NAME)
    await other.publish(NAME, EMPTY)
    for time_ms in (1, 2):
        await other.refuse_older(NAME, time_ms)
    head, version = await other.head(NAME)
    assert version == 3
    await changing
    await asyncio.sleep(faults.late_s)
    assert await other.head(NAME) == (head, version)
    assert [link is None for _, link in await other.links(NAME, 0, 1)] == [False]
    assert len(await other_store.children(chain_creation_path(NAME), fresh=True)) == 1


async def _outcome(changing: Awaitable[object]) -> object:
    try:
        return await changing
    except ChainNotFoundError as error:
        return error


async def test_a_late_deletion_removes_no_part_of_another_chain(
    chains: ChainStore, other: ChainStore, faults: ScriptedFaults
) -> None:
    await chains.create(NAME)
    for _ in range(2):
        await chains.publish(NAME, EMPTY)
    faults.acts = ["", "late"]  # the head is marked; the deletion of the first link is late
    deleting = asyncio.create_task(_outcome(chains.delete(NAME)))
    await asyncio.sleep(faults.late_s / 10)
    await other.delete(NAME)
    await other.create(NAME)
    token = await other.creation_token(NAME)
    for _ in range(2):
        await other.publish(NAME, EMPTY)
    await deleting
    await asyncio.sleep(faults.late_s)
    assert await other.creation_token(NAME) == token
    assert [link is None for _, link in await other.links(NAME, 0, 2)] == [False, False]


async def test_trimmed_links_are_dropped_of_one_chain(chains: ChainStore) -> None:
    await chains.create(NAME)
    life = await chains.life(NAME)
    await chains.delete(NAME)
    await chains.create(NAME)
    await chains.publish(NAME, EMPTY)
    with pytest.raises(ChainNotFoundError):
        await chains.drop_trimmed(NAME, 1, life)
    assert [link is None for _, link in await chains.links(NAME, 0, 1)] == [False]


async def test_a_ledger_is_deleted_only_while_the_chain_exists(
    chains: ChainStore, store: MemoryMetadataStore, ledgers: LedgerStore
) -> None:
    await store.create(ledger_path(LedgerId(1)), b"of a ledger")
    await chains.create(NAME)
    life = await chains.life(NAME)
    await chains.delete(NAME)
    await chains.create(NAME)
    with pytest.raises(VersionConflictError):
        await ledgers.delete(LedgerId(1), guard=life)
    assert await store.get(ledger_path(LedgerId(1)))


async def test_a_guard_never_takes_one_chain_for_the_next_one_of_its_name(
    chains: ChainStore,
    other: ChainStore,
    store: MemoryMetadataStore,
    ledgers: LedgerStore,
    faults: ScriptedFaults,
) -> None:
    """The chain is deleted, and created again, between the first two reads of the guard."""
    await store.create(ledger_path(LedgerId(1)), b"of a ledger")
    await chains.create(NAME)

    async def replace_it() -> None:
        await other.delete(NAME)
        await other.create(NAME)

    async def pass_the_first_read() -> None:
        faults.meanwhile = replace_it

    faults.meets, faults.meanwhile = reads_of(store), pass_the_first_read
    _, guard = await chains.guard(NAME)
    assert faults.meanwhile is None
    before = await other.head(NAME)
    with pytest.raises(VersionConflictError):
        await ledgers.delete(LedgerId(1), guard=guard)
    assert await other.head(NAME) == before
    assert await store.get(ledger_path(LedgerId(1)))


async def test_a_repeated_creation_is_another_chain(
    chains: ChainStore, other: ChainStore, faults: ScriptedFaults
) -> None:
    """The answer to the first attempt is lost, and its chain is deleted before the second one."""
    await chains.create("another")  # makes the parent
    faults.acts = ["lost", "dropped"]
    creating = asyncio.create_task(chains.create(NAME))
    while not (first := await other.creation_token(NAME)):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    faults.acts = []
    await other.delete(NAME)
    await creating
    assert await other.creation_token(NAME) not in (first, b"")


async def test_a_creation_completes_an_interrupted_deletion(chains: ChainStore) -> None:
    await chains.create(NAME)
    await chains.publish(NAME, EMPTY)
    first = await chains.creation_token(NAME)
    await chains._change(NAME, ChainHead.with_deletion)
    await chains.create(NAME)
    assert await chains.creation_token(NAME) != first
    head, _ = await chains.head(NAME)
    assert (head.first_index, head.next_index) == (0, 0)

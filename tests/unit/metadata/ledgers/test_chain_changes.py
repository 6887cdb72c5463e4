"""Changes of a chain: what they write, when they repeat, and how many attempts they make."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from metadata.errors import (
    ChainNotFoundError,
    LedgersCollectedError,
    MetadataError,
    NodeNotFoundError,
    StoreUnavailableError,
)
from metadata.ids import EntryId, LedgerId
from metadata.ledgers import chain_store
from metadata.ledgers.chain import ChainHead, LinkedLedger
from metadata.ledgers.chain_store import ChainStore, Publication, Published
from metadata.paths import LEDGERS, chain_link_path, chain_links_path, ledger_path
from metadata.store import value_changes
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults, is_read, reach
from tests.unit.metadata.conftest import NOW_MS, RETRIES, RETRIES_S_MIN, taken_s

NAME = "orders"
Act = Callable[[ChainStore], Awaitable[object]]
CHANGES: list[Act] = [
    lambda chains: chains.publish(NAME, Publication(())),
    lambda chains: chains.trim(NAME, 1),
    lambda chains: chains.refuse_older(NAME, NOW_MS),
]
IDS = ["publish", "trim", "refuse"]


@pytest.fixture
def chains(store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return ChainStore(store, rng, lambda: NOW_MS)


@pytest.fixture
def others(other_store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return ChainStore(other_store, rng, lambda: NOW_MS)


@pytest.fixture
def stale_reads(faults: ScriptedFaults) -> None:
    """Let reads that are not fresh miss the newest changes."""
    faults.missed = 3


def of(*ledger_ids: int) -> Publication:
    return Publication(
        tuple(LinkedLedger(LedgerId(i), NOW_MS, EntryId(9), 100) for i in ledger_ids)
    )


async def with_links(chains: ChainStore, count: int) -> None:
    await chains.create(NAME)
    for _ in range(count):
        await chains.publish(NAME, Publication(()))


async def test_links_and_ledgers_are_read_in_parts(
    chains: ChainStore, store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_store, "LINK_READS_AT_ONCE", 2)
    for ledger_id in range(5):
        await store.create(ledger_path(LedgerId(ledger_id)), b"of a ledger")
    await chains.create(NAME)
    for ledger_id in range(5):
        await chains.publish(NAME, of(ledger_id))
    found = await chains.links(NAME, 1, 6)
    assert [index for index, _ in found] == [1, 2, 3, 4, 5]
    linked = [None if link is None else link.ledgers[0].ledger_id for _, link in found]
    assert linked == [1, 2, 3, 4, None]
    assert (await chains.publish(NAME, of(0, 1, 2, 3, 4))).index == 5
    for ledger_ids in ((77, 1, 2, 3), (0, 77, 2, 3), (0, 1, 77), (0, 1, 2, 77), (0, 1, 2, 3, 77)):
        with pytest.raises(LedgersCollectedError, match="ledger 77"):
            await chains.publish(NAME, of(*ledger_ids))


async def test_each_ledger_is_read_once_and_few_at_a_time(
    chains: ChainStore,
    store: MemoryMetadataStore,
    faults: ScriptedFaults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain_store, "LINK_READS_AT_ONCE", 2)
    for ledger_id in range(5):
        await store.create(ledger_path(LedgerId(ledger_id)), b"of a ledger")
    await chains.create(NAME)
    await chains.publish(NAME, Publication(()))
    faults.meets = lambda call: is_read(call) and call.path.startswith(LEDGERS)
    faults.times.clear()
    faults.answer_s = 0.01
    await chains.publish(NAME, of(0, 1, 2, 3, 4))
    assert sorted(Counter(faults.times).values()) == [1, 2, 2]


async def test_a_ledger_that_cannot_be_read_is_not_linked(
    chains: ChainStore, store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    for ledger_id in (1, 2):
        await store.create(ledger_path(LedgerId(ledger_id)), b"of a ledger")
    await chains.create(NAME)
    faults.meets, faults.is_away = reach(ledger_path(LedgerId(2))), True
    with pytest.raises(StoreUnavailableError):
        await chains.publish(NAME, of(1, 2))
    assert (await chains.head(NAME))[0].next_index == 0


async def test_an_application_without_a_batch_has_none(chains: ChainStore) -> None:
    await chains.create(NAME)
    assert await chains.applied(NAME, "query") is None


async def test_the_first_link_makes_its_parents_once(
    chains: ChainStore, faults: ScriptedFaults
) -> None:
    await chains.create(NAME)
    faults.writes.clear()
    await chains.publish(NAME, Publication(()))
    levels = chain_links_path(NAME), "one level of links", "another one"
    assert faults.writes == ["multi", *["create"] * len(levels), "multi"]
    faults.writes.clear()
    await chains.publish(NAME, Publication(()))
    assert faults.writes == ["multi"]


async def test_a_refusal_raises_if_no_attempt_may_have_been_applied(
    chains: ChainStore, faults: ScriptedFaults
) -> None:
    await chains.create(NAME)
    faults.acts = ["", "", "", "", "refused"]  # the second multi, after the parents
    with pytest.raises(StoreUnavailableError):
        await chains.publish(NAME, Publication(()))
    for change in CHANGES:
        faults.acts = ["refused"]
        with pytest.raises(StoreUnavailableError):
            await change(chains)
    head, _ = await chains.head(NAME)
    assert (head.first_index, head.next_index, head.collected_before_ms) == (0, 0, 0)


async def test_a_chain_that_is_deleted_while_parents_are_made_is_not_created_again(
    chains: ChainStore, others: ChainStore, faults: ScriptedFaults
) -> None:
    await chains.create(NAME)
    faults.acts = ["", "late"]
    publishing = asyncio.create_task(chains.publish(NAME, Publication(())))
    await asyncio.sleep(faults.late_s / 4)
    await others.delete(NAME)
    with pytest.raises(ChainNotFoundError):
        await publishing
    await asyncio.sleep(2 * faults.late_s)
    assert await others.names() == []


async def test_another_link_in_the_place_of_an_unknown_one_is_not_ours(
    chains: ChainStore, others: ChainStore, faults: ScriptedFaults
) -> None:
    await with_links(chains, 1)
    faults.acts = ["dropped"]
    publishing = asyncio.create_task(chains.publish(NAME, Publication(())))
    await asyncio.sleep(0.001)
    assert await others.publish(NAME, Publication(())) == Published(1, is_new=True)
    assert await publishing == Published(2, is_new=True)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
async def test_a_change_whose_answer_is_lost_is_written_once(
    chains: ChainStore, faults: ScriptedFaults, change: Act
) -> None:
    await with_links(chains, 1)
    faults.writes.clear()
    faults.acts = ["lost"]
    await change(chains)
    assert faults.writes == ["multi"]


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
async def test_a_refusal_after_an_unknown_outcome_is_repeated(
    chains: ChainStore, faults: ScriptedFaults, change: Act
) -> None:
    await with_links(chains, 1)
    before = (await chains.head(NAME))[1]
    faults.acts = ["dropped", "refused", "refused"]
    await change(chains)
    assert (await chains.head(NAME))[1] == before + 1


async def test_changes_at_the_same_moment_all_take_effect(
    chains: ChainStore, others: ChainStore
) -> None:
    await with_links(chains, 1)
    both = chains, others
    made = await asyncio.gather(
        *[both[i % 2].publish(NAME, Publication(())) for i in range(6)],
        *[both[i % 2].refuse_older(NAME, i) for i in range(6)],
    )
    published = [each.index for each in made if isinstance(each, Published)]
    assert sorted(published) == [1, 2, 3, 4, 5, 6]
    head, _ = await chains.head(NAME)
    assert (head.next_index, head.collected_before_ms) == (7, 5)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
async def test_a_change_is_repeated_after_growing_pauses(
    chains: ChainStore, faults: ScriptedFaults, change: Act
) -> None:
    await with_links(chains, 1)
    faults.acts = ["dropped"] * RETRIES
    assert await taken_s(change(chains)) > RETRIES_S_MIN


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
async def test_attempts_are_limited(
    chains: ChainStore, faults: ScriptedFaults, monkeypatch: pytest.MonkeyPatch, change: Act
) -> None:
    await with_links(chains, 1)
    monkeypatch.setattr(chain_store, "ATTEMPTS_MAX", 3)
    monkeypatch.setattr(value_changes, "ATTEMPTS_MAX", 3)
    faults.acts = ["dropped"] * 3
    with pytest.raises(MetadataError, match="3 attempts: try again"):
        await change(chains)
    assert faults.acts == []


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
async def test_a_chain_whose_deletion_began_changes_no_more(
    chains: ChainStore, change: Act
) -> None:
    await with_links(chains, 1)
    await chains._change(NAME, ChainHead.with_deletion)
    with pytest.raises(ChainNotFoundError):
        await change(chains)


async def test_each_change_returns_the_new_head(chains: ChainStore) -> None:
    await with_links(chains, 3)
    head = await chains.trim(NAME, 2)
    assert (await chains.head(NAME))[0] == head
    assert head.first_index == 2
    head = await chains.refuse_older(NAME, NOW_MS)
    assert (await chains.head(NAME))[0] == head
    assert head.collected_before_ms == NOW_MS


@pytest.mark.usefixtures("stale_reads")
async def test_reads_see_what_another_process_just_wrote(
    chains: ChainStore, others: ChainStore, other_store: MemoryMetadataStore
) -> None:
    await others.create(NAME)
    assert await chains.names() == [NAME]
    life = await chains.life(NAME)
    await others.publish(NAME, Publication(()))
    head = await others.trim(NAME, 1)
    await chains.drop_trimmed(NAME, head.first_index, life)
    with pytest.raises(NodeNotFoundError):
        await other_store.get(chain_link_path(NAME, 0), fresh=True)


async def test_a_watch_ends(chains: ChainStore) -> None:
    await with_links(chains, 1)
    calls: list[None] = []
    cancel = chains.watch(NAME, lambda: calls.append(None))
    await chains.publish(NAME, Publication(()))
    await asyncio.sleep(1.0)
    assert len(calls) == 1
    cancel()
    await chains.publish(NAME, Publication(()))
    await asyncio.sleep(1.0)
    assert len(calls) == 1

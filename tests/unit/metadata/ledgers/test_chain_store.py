"""A chain changes completely or not at all, once per batch, whatever answer is lost."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.errors import (
    ApplicationTakenError,
    ChainExistsError,
    ChainNotFoundError,
    LedgersCollectedError,
    MetadataError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.chain import HEAD_CODEC, ChainHead, ChainLink, LinkedLedger
from metadata.ledgers.chain_store import ChainStore, Publication, Published
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import chain_applications_path, chain_link_path, chain_path, ledger_path
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS

NAME = "orders"


def chains_over(store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return ChainStore(store, rng, lambda: NOW_MS)


@pytest.fixture(autouse=True)
async def some_ledgers(other_store: MemoryMetadataStore) -> None:
    """Create the ledgers that the tests publish."""
    for ledger_id in range(41):
        await other_store.create(ledger_path(LedgerId(ledger_id)), b"of a ledger")


@pytest.fixture
def chains(store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return chains_over(store, rng)


def of(*ledger_ids: int, **more: object) -> Publication:
    ledgers = [LinkedLedger(LedgerId(i), NOW_MS, EntryId(9), 100) for i in ledger_ids]
    return Publication(tuple(ledgers), **more)  # type: ignore[arg-type]


async def linked_ids(chains: ChainStore) -> list[int]:
    head, _ = await chains.head(NAME)
    found = await chains.links(NAME, head.first_index, head.next_index)
    return [ledger.ledger_id for _, link in found if link is not None for ledger in link.ledgers]


async def test_links_come_in_the_order_of_publication(chains: ChainStore) -> None:
    await chains.create(NAME)
    assert await chains.publish(NAME, of(3, 1)) == Published(0, is_new=True)
    assert await chains.publish(NAME, of(2)) == Published(1, is_new=True)
    assert await linked_ids(chains) == [3, 1, 2]
    assert await chains.names() == [NAME]


async def test_a_chain_is_created_once(chains: ChainStore) -> None:
    await chains.create(NAME)
    with pytest.raises(ChainExistsError):
        await chains.create(NAME)


async def test_a_missing_name_is_not_found(chains: ChainStore) -> None:
    for call in (chains.head(NAME), chains.publish(NAME, of(1)), chains.trim(NAME, 0)):
        with pytest.raises(ChainNotFoundError):
            await call
    with pytest.raises(ChainNotFoundError):
        await chains.delete(NAME)


async def test_a_batch_is_linked_once(chains: ChainStore) -> None:
    await chains.create(NAME)
    first = await chains.publish(NAME, of(1, application="query", batch=0))
    again = await chains.publish(NAME, of(2, application="query", batch=0))
    later = await chains.publish(NAME, of(3, application="query", batch=4))
    older = await chains.publish(NAME, of(4, application="query", batch=3))
    other = await chains.publish(NAME, of(5, application="another", batch=0))
    assert [first, again, later, older, other] == [
        Published(0, is_new=True),
        Published(0, is_new=False),
        Published(1, is_new=True),
        Published(1, is_new=False),
        Published(2, is_new=True),
    ]
    assert await linked_ids(chains) == [1, 3, 5]
    applied = await chains.applied(NAME, "query")
    assert applied is not None
    assert (applied.batch, applied.index) == (4, 1)


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", ""), ("", "b")])
async def test_an_application_belongs_to_its_first_query(
    chains: ChainStore, batch: int, first: str, second: str
) -> None:
    """Another query has other ledgers under the same number: none of them is left out silently."""
    await chains.create(NAME)
    await chains.publish(NAME, of(1, application="nightly", batch=1, query=first))
    with pytest.raises(ApplicationTakenError, match="nothing was published"):
        await chains.publish(NAME, of(2, application="nightly", batch=batch, query=second))
    again = await chains.publish(NAME, of(3, application="nightly", batch=1, query=first))
    later = await chains.publish(NAME, of(4, application="nightly", batch=2, query=first))
    assert (again.is_new, later.is_new) == (False, True)
    assert await linked_ids(chains) == [1, 4]


async def test_many_writers_link_everything_once(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    both = [chains_over(store, rng), chains_over(other_store, rng)]
    await both[0].create(NAME)
    work = [both[i % 2].publish(NAME, of(i, application=f"a{i // 2}", batch=0)) for i in range(40)]
    results = await asyncio.gather(*work)
    assert sum(result.is_new for result in results) == 20
    ids = await linked_ids(both[0])
    assert sorted(i // 2 for i in ids) == list(range(20))


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
@pytest.mark.parametrize("application", ["", "query"])
async def test_an_unknown_outcome_is_decided(
    chains: ChainStore, faults: ScriptedFaults, act: str, application: str
) -> None:
    await chains.create(NAME)
    await chains.publish(NAME, of(1))
    wanted = of(2, application=application, batch=0 if application else -1)
    if application:  # the parent of the application's node is created first
        await chains.publish(NAME, of(7, application="query", batch=0))
        wanted = of(2, application=application, batch=1)
    faults.acts = [act]
    assert (await chains.publish(NAME, wanted)).is_new
    await asyncio.sleep(faults.late_s * 2)
    assert (await linked_ids(chains)).count(2) == 1


async def test_an_unavailable_service_raises_and_nothing_is_written(
    chains: ChainStore, faults: ScriptedFaults
) -> None:
    await chains.create(NAME)
    for acts in (["refused"], ["", "refused"]):  # the multi; the first parent
        faults.acts = acts
        with pytest.raises(StoreUnavailableError):
            await chains.publish(NAME, of(1))
        assert await linked_ids(chains) == []
    faults.acts = ["dropped", "refused", "refused"]
    assert (await chains.publish(NAME, of(1))).is_new
    assert await linked_ids(chains) == [1]


@pytest.mark.parametrize("act", ["lost", "dropped", "late", ""])
async def test_an_unknown_outcome_of_trimming_is_decided(
    chains: ChainStore, faults: ScriptedFaults, act: str
) -> None:
    await chains.create(NAME)
    for ledger_id in range(5):
        await chains.publish(NAME, of(ledger_id))
    faults.acts = [act]
    assert (await chains.trim(NAME, 3)).first_index == 3
    assert await linked_ids(chains) == [3, 4]


async def test_a_publication_may_replace_all_others(chains: ChainStore) -> None:
    await chains.create(NAME)
    await chains.publish(NAME, of(1))
    await chains.publish(NAME, of(2))
    await chains.publish(NAME, of(3, replaces=True))
    assert await linked_ids(chains) == [3]


async def test_a_ledger_that_may_have_been_collected_is_not_linked(chains: ChainStore) -> None:
    await chains.create(NAME)
    await chains.refuse_older(NAME, NOW_MS + 1)
    with pytest.raises(LedgersCollectedError):
        await chains.publish(NAME, of(1))
    assert await linked_ids(chains) == []


async def test_the_nodes_of_trimmed_links_can_be_dropped(
    chains: ChainStore, store: MemoryMetadataStore
) -> None:
    await chains.create(NAME)
    for ledger_id in range(4):
        await chains.publish(NAME, of(ledger_id))
    head = await chains.trim(NAME, 2)
    await chains.drop_trimmed(NAME, head.first_index, await chains.life(NAME))
    found = await chains.links(NAME, 0, 4)
    assert [link is None for _, link in found] == [True, True, False, False]
    assert await store.children(chain_link_path(NAME, 0).rpartition("/")[0]) == ["002", "003"]


async def test_deleting_leaves_no_nodes(chains: ChainStore, store: MemoryMetadataStore) -> None:
    await chains.create(NAME)
    await chains.publish(NAME, of(1, application="query", batch=0))
    await chains.delete(NAME)
    assert await chains.names() == []
    await chains.create(NAME)
    assert await linked_ids(chains) == []
    assert await store.children(chain_path(NAME)) == ["creation"]


async def test_a_concurrently_deleted_chain_is_not_created_again(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    faults: ScriptedFaults,
) -> None:
    writer, deleter = chains_over(store, rng), chains_over(other_store, rng)
    await writer.create(NAME)
    faults.acts = ["late"]
    publishing = asyncio.create_task(writer.publish(NAME, of(1)))
    await asyncio.sleep(faults.late_s / 2)
    await deleter.delete(NAME)
    with pytest.raises(ChainNotFoundError):
        await publishing
    assert await deleter.names() == []


async def test_a_deleted_ledger_is_not_linked(
    chains: ChainStore, store: MemoryMetadataStore
) -> None:
    await chains.create(NAME)
    with pytest.raises(LedgersCollectedError, match="ledger 77"):
        await chains.publish(NAME, of(1, 77))
    assert await linked_ids(chains) == []


async def test_a_delayed_publication_does_not_link_withdrawn_ledgers(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    faults: ScriptedFaults,
) -> None:
    writer, other = chains_over(store, rng), chains_over(other_store, rng)
    await writer.create(NAME)
    await writer.publish(NAME, of(1))
    faults.acts = ["late"]
    publishing = asyncio.create_task(writer.publish(NAME, of(2)))
    await asyncio.sleep(faults.late_s / 2)
    _, guard = await other.guard(NAME)
    assert await LedgerStore(other_store, rng, lambda: NOW_MS).delete(LedgerId(2), guard=guard)
    with pytest.raises(LedgersCollectedError):
        await publishing
    assert await linked_ids(other) == [1]


async def test_a_guarded_deletion_fails_after_a_publication(
    chains: ChainStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    await chains.create(NAME)
    _, guard = await chains.guard(NAME)
    await chains.publish(NAME, of(2))
    with pytest.raises(VersionConflictError):
        await LedgerStore(other_store, rng, lambda: NOW_MS).delete(LedgerId(2), guard=guard)
    assert await other_store.get(ledger_path(LedgerId(2)))


async def test_an_interrupted_deletion_can_be_repeated(chains: ChainStore) -> None:
    await chains.create(NAME)
    await chains.publish(NAME, of(1))
    await chains._change(NAME, ChainHead.with_deletion)
    with pytest.raises(ChainNotFoundError):
        await chains.publish(NAME, of(2))
    with pytest.raises(ChainNotFoundError):
        await chains.head(NAME)
    await chains.delete(NAME)
    assert await chains.names() == []


async def test_link_numbers_continue_across_nodes_of_a_level(
    chains: ChainStore, store: MemoryMetadataStore
) -> None:
    await chains.create(NAME)
    head, version = await chains.head(NAME)

    moved = ChainHead(head.token, 999, 999)
    await store.compare_and_set(chain_path(NAME), HEAD_CODEC.pack("", moved), version)
    for ledger_id in range(3):
        await chains.publish(NAME, of(ledger_id))
    assert await linked_ids(chains) == [0, 1, 2]


async def test_a_watch_reports_a_publication(chains: ChainStore) -> None:
    await chains.create(NAME)
    reported = asyncio.Event()
    chains.watch(NAME, reported.set)
    await asyncio.sleep(1)
    reported.clear()
    await chains.publish(NAME, of(1))
    async with asyncio.timeout(5):
        await reported.wait()


async def test_a_link_that_was_removed_again_raises(
    chains: ChainStore, faults: ScriptedFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chains.create(NAME)
    await chains.publish(NAME, of(1))
    real = ChainStore._link

    async def gone(self: ChainStore, name: str, index: int) -> ChainLink | None:
        return None if index == 1 else await real(self, name, index)

    monkeypatch.setattr(ChainStore, "_link", gone)
    faults.acts = ["lost"]
    with pytest.raises(MetadataError, match="removed again"):
        await chains.publish(NAME, of(2))


# -- what the metadata service is asked ------------------------------------------------------------


@pytest.fixture
async def noted() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
async def noted_chains(noted: ScriptedFaults, rng: random.Random) -> AsyncIterator[ChainStore]:
    store = MemoryMetadataStore(MemoryMetadataServer(noted))
    await store.create(ledger_path(LedgerId(1)), b"of a ledger")
    chains = chains_over(store, rng)
    await chains.create(NAME)
    noted.calls.clear()
    yield chains
    await store.aclose()


async def test_a_publication_without_an_application_does_not_ask_for_its_last_batch(
    noted_chains: ChainStore, noted: ScriptedFaults
) -> None:
    await noted_chains.publish(NAME, of(1))
    above = chain_applications_path(NAME)
    assert [call for call in noted.calls if call.path.startswith(above)] == []


async def test_links_are_read_without_waiting_for_the_leader(
    noted_chains: ChainStore, noted: ScriptedFaults
) -> None:
    await noted_chains.publish(NAME, of(1))
    noted.calls.clear()
    assert len(await noted_chains.links(NAME, 0, 1)) == 1
    assert [call.is_fresh for call in noted.calls] == [False]


async def test_no_more_nodes_are_created_once_the_chain_is_deleted(
    noted_chains: ChainStore, noted: ScriptedFaults
) -> None:
    noted.meets = lambda call: call.operation == "create"
    noted.meanwhile = lambda: noted_chains.delete(NAME)
    with pytest.raises(ChainNotFoundError):
        await noted_chains.publish(NAME, of(1, application="a", batch=1))
    assert len(noted.calls) == 1

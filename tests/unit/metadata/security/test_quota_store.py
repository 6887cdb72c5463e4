"""Quotas in the store and in memory: changed, also when answers are lost, and followed."""

import random

import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.paths import QUOTAS
from metadata.security.errors import TooManyQuotasError
from metadata.security.quota_store import QuotaStore, QuotaTable
from metadata.security.quotas import QuotaKey, QuotaRecord, entity_of
from metadata.store.child_values import READS_AT_ONCE_MAX
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

PRODUCED, FETCHED = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB, ALL = (entity_of([("user", name)]) for name in ("alice", "bob", None))


@pytest.fixture
def quotas(store: MemoryMetadataStore, rng: random.Random) -> QuotaStore:
    return QuotaStore(store, rng)


async def test_a_quota_from_its_creation_to_its_end(
    quotas: QuotaStore, store: MemoryMetadataStore
) -> None:
    assert await quotas.get(ALICE) == {}
    assert await quotas.alter(ALICE, {PRODUCED: None}) == {}
    assert await quotas.alter(ALICE, {PRODUCED: 5.0}) == {PRODUCED: 5.0}
    assert await quotas.alter(ALICE, {FETCHED: 6.0}) == {PRODUCED: 5.0, FETCHED: 6.0}
    assert await quotas.get(ALICE) == {PRODUCED: 5.0, FETCHED: 6.0}
    assert await quotas.get(ALL) == {}
    await quotas.alter(ALICE, {PRODUCED: None, FETCHED: None})
    assert await store.children(QUOTAS, fresh=True) == []


async def test_all_quotas_are_listed_also_over_several_pages(
    quotas: QuotaStore, store: MemoryMetadataStore
) -> None:
    assert [page async for page in quotas.pages()] == []
    names = [f"user-{number:03}" for number in range(READS_AT_ONCE_MAX + 1)]
    for name in reversed(names):
        await quotas.alter(entity_of([("user", name)]), {PRODUCED: 5.0})
    await quotas.alter(ALL, {FETCHED: 6.0})
    pages = [page async for page in quotas.pages()]
    assert [len(page) for page in pages] == [READS_AT_ONCE_MAX, 2]
    found = [quota for page in pages for quota in page]
    expected = [QuotaRecord(entity_of([("user", name)]), {PRODUCED: 5.0}) for name in names]
    assert found == [QuotaRecord(ALL, {FETCHED: 6.0}), *expected]
    await store.create(f"{QUOTAS}/user=damaged", b"?")
    with pytest.raises(MetadataFormatError):
        [page async for page in quotas.pages()]


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_a_write_with_an_unknown_outcome_is_decided(
    quotas: QuotaStore, faults: ScriptedFaults, store: MemoryMetadataStore, act: str
) -> None:
    for change in ({PRODUCED: 5.0}, {PRODUCED: 6.0, FETCHED: 1.0}):
        faults.acts = [act]
        await quotas.alter(ALICE, change)
        assert (await quotas.get(ALICE))[PRODUCED] == change[PRODUCED]
    faults.acts = [act]
    await quotas.alter(ALICE, dict.fromkeys(QuotaKey))
    assert await store.children(QUOTAS, fresh=True) == []


async def test_a_refused_write_is_reported(quotas: QuotaStore, faults: ScriptedFaults) -> None:
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await quotas.alter(ALICE, {PRODUCED: 5.0})
    assert await quotas.get(ALICE) == {}


async def test_there_are_at_most_so_many_quotas(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    quotas = QuotaStore(store, rng, quotas_max=1)
    await quotas.check_room(ALICE)
    await quotas.alter(ALICE, {PRODUCED: 5.0})
    for call in (quotas.alter(BOB, {PRODUCED: 5.0}), quotas.check_room(BOB)):
        with pytest.raises(TooManyQuotasError, match="quotas of 1 entities"):
            await call
    await quotas.check_room(ALICE)
    await quotas.alter(ALICE, {PRODUCED: 6.0})
    await quotas.alter(ALICE, {PRODUCED: None})
    await quotas.alter(BOB, {PRODUCED: 5.0})


async def test_what_cannot_be_read_is_not_overwritten(
    quotas: QuotaStore, store: MemoryMetadataStore
) -> None:
    path = f"{QUOTAS}/user=alice"
    await store.create(path, b"of a newer release")
    for call in (quotas.get(ALICE), quotas.alter(ALICE, {PRODUCED: 5.0})):
        with pytest.raises(MetadataFormatError):
            await call
    assert (await store.get(path)).value == b"of a newer release"


async def test_quotas_are_followed(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    quotas, table = QuotaStore(other_store, rng), QuotaTable(store, rng)
    changes: list[int] = []
    await quotas.alter(ALICE, {PRODUCED: 5.0})
    await table.start()
    cancel = table.set.on_change(lambda: changes.append(1))
    assert table.set.quotas == {ALICE: {PRODUCED: 5.0}}
    assert (table.set.limits(PRODUCED), table.set.limits(FETCHED)) == (True, False)
    await quotas.alter(BOB, {FETCHED: 6.0, PRODUCED: 7.0})
    await until(lambda: table.set.find(BOB, FETCHED) == 6.0)
    assert table.set.limits(FETCHED)
    await quotas.alter(BOB, {FETCHED: None})
    await until(lambda: not table.set.limits(FETCHED))
    assert table.set.find(BOB, PRODUCED) == 7.0
    for entity in (ALICE, BOB):
        await quotas.alter(entity, {PRODUCED: None})
    await until(lambda: not table.set.quotas)
    assert not table.set.limits(PRODUCED)
    assert len(changes) == 4
    cancel()
    await quotas.alter(ALICE, {PRODUCED: 5.0})
    await table.refresh()
    assert len(changes) == 4
    await table.aclose()
    assert table.set.find(ALICE, PRODUCED) == 5.0


async def test_an_unreadable_record_keeps_the_last_values(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    quotas, table = QuotaStore(other_store, rng), QuotaTable(store, rng)
    await quotas.alter(ALICE, {PRODUCED: 5.0})
    await other_store.create(f"{QUOTAS}/user=bob", b"of a newer release")
    await table.start()
    assert table.set.quotas == {ALICE: {PRODUCED: 5.0}}
    path = f"{QUOTAS}/user=alice"
    await other_store.compare_and_set(path, b"", (await other_store.get(path)).version)
    await table.refresh()
    assert table.set.quotas == {ALICE: {PRODUCED: 5.0}}
    await table.aclose()

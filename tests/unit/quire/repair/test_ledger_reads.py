"""Reading of ledgers into the index: all of them, or what is new and what was open."""

import random
from itertools import combinations

import pytest

from metadata.ids import BookieId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.location import Place
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.repair.ledger_index import LedgerIndex
from quire.repair.ledger_reads import CALLS_AT_ONCE, LedgerReads
from quire.repair.needs import RepairClass
from quire.repair.spread import Places
from quire.server.overriding import override
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger, standings


class CountingStore(LedgerStore):
    """Ledgers, and which of them were read."""

    def __init__(self) -> None:
        store = MemoryMetadataStore(MemoryMetadataServer())
        super().__init__(store, random.Random(1), lambda: 5)
        self.reads: list[int] = []

    @override
    async def get(
        self, ledger_id: LedgerId, *, fresh: bool = False, agreed: bool = False
    ) -> tuple[LedgerMetadata, Version]:
        self.reads.append(ledger_id)
        return await super().get(ledger_id, fresh=fresh, agreed=agreed)

    def taken_reads(self) -> list[int]:
        reads, self.reads = sorted(self.reads), []
        return reads


@pytest.fixture
def ledgers() -> CountingStore:
    return CountingStore()


@pytest.fixture
def index() -> LedgerIndex:
    return LedgerIndex()


@pytest.fixture
def reading(ledgers: CountingStore, index: LedgerIndex) -> LedgerReads:
    return LedgerReads(ledgers, index)


def ids_of(index: LedgerIndex) -> list[int]:
    return list(index.known_between(LedgerId(0), None))


async def test_shapes_that_no_ledger_has_are_dropped(
    ledgers: CountingStore, index: LedgerIndex, reading: LedgerReads
) -> None:
    """Each look of the auditor assesses every shape, and each of these ledgers has its own."""
    kept = closed_ledger("abc", "bcd", ledger_id=0)
    await ledgers.create(kept)
    ensembles = ["".join(combination) for combination in combinations("abcdefgh", 3)]
    for number, (first, second) in enumerate(combinations(ensembles[:20], 2), start=1):
        await ledgers.create(closed_ledger(first, second, ledger_id=number))
        await reading.catch_up()
        await ledgers.delete(LedgerId(number))
    assert index.shape_count > 100
    places = {bookie: Place("a rack", bookie) for bookie in bookies("abcd")}
    places[BookieId("e")] = Place("another rack", "e")
    better = Places(places, bookies("e"))
    before = index.plan(standings(), (), 10, places=better)
    await reading.read_all()
    assert (len(index), index.shape_count) == (1, 1)
    assert index.plan(standings(), (), 10, places=better) == before
    assert [ledger.repair_class for ledger in before.first] == [RepairClass.MISPLACED]
    assert not index.put(kept), "it is known with its shape"


async def test_a_new_ledger_is_found_whatever_its_id(
    ledgers: CountingStore, index: LedgerIndex, reading: LedgerReads
) -> None:
    """Each client allocates a block of ids, so a new ledger may have the lowest one of all."""
    for each in (5, 1_005):
        await ledgers.create(closed_ledger("abc", ledger_id=each))
    await reading.read_all()
    assert ledgers.taken_reads() == [5, 1_005]
    for each in (2, 6, 2_000):
        await ledgers.create(closed_ledger("abc", ledger_id=each))
    await reading.catch_up()
    assert ids_of(index) == [2, 5, 6, 1_005, 2_000]
    assert ledgers.taken_reads() == [2, 6, 2_000], "closed ledgers that are known are not read"


async def test_open_ledgers_are_read_again(
    ledgers: CountingStore, index: LedgerIndex, reading: LedgerReads
) -> None:
    await ledgers.create(open_ledger("abc", ledger_id=1))
    await ledgers.create(closed_ledger("abc", ledger_id=2))
    await reading.read_all()
    assert list(index.open_ledgers()) == [1]
    assert not reading.changed, "a ledger that is new has not changed"
    _, version = await ledgers.get(LedgerId(1))
    await ledgers.compare_and_set(closed_ledger("abd", ledger_id=1), version)
    ledgers.reads.clear()
    await reading.catch_up()
    assert ledgers.taken_reads() == [1]
    assert list(index.open_ledgers()) == []
    assert reading.changed == {1}


async def test_a_ledger_that_is_read_unchanged_has_not_changed(
    ledgers: CountingStore, reading: LedgerReads
) -> None:
    await ledgers.create(open_ledger("abc", ledger_id=1))
    await reading.read_all()
    await reading.read_all()
    assert not reading.changed


@pytest.mark.parametrize("is_complete", [True, False])
async def test_deleted_ledgers_are_dropped(
    ledgers: CountingStore, index: LedgerIndex, reading: LedgerReads, *, is_complete: bool
) -> None:
    for each in (1, 7, 1_000, 5_000):
        await ledgers.create(closed_ledger("abc", ledger_id=each))
    await reading.read_all()
    for each in (1, 1_000, 5_000):
        await ledgers.delete(LedgerId(each))
    await (reading.read_all() if is_complete else reading.catch_up())
    assert ids_of(index) == [7]


async def test_more_ledgers_than_one_group(
    ledgers: CountingStore, index: LedgerIndex, reading: LedgerReads
) -> None:
    count = 2 * CALLS_AT_ONCE + 3
    for number in range(1, count + 1):
        await ledgers.create(closed_ledger("abc", ledger_id=2 * number))
    await reading.read_all()
    for each in (1, 2 * CALLS_AT_ONCE + 1, 2 * count + 1):
        await ledgers.create(closed_ledger("abc", ledger_id=each))
    ledgers.reads.clear()
    await reading.catch_up()
    assert ledgers.taken_reads() == [1, 2 * CALLS_AT_ONCE + 1, 2 * count + 1]
    assert len(index) == count + 3


async def test_a_known_ledger_with_another_ensemble_has_changed(
    index: LedgerIndex, reading: LedgerReads
) -> None:
    """Every reader of metadata puts what it read."""
    reading.put(closed_ledger("abc", ledger_id=1))
    reading.put(closed_ledger("abc", ledger_id=2))
    reading.put(closed_ledger("abc", ledger_id=1))
    assert reading.changed == set()
    reading.put(closed_ledger("abd", ledger_id=1))
    assert reading.changed == {1}
    assert ids_of(index) == [1, 2]

"""Ledgers whose damaged entries need a repair: read once for each change of the reports."""

import random

import pytest

from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import ledger_path
from metadata.repair.scrub import BadRange
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.repair.ledger_index import LedgerIndex
from quire.repair.ledger_reads import DamagedLedgers, LedgerReads
from quire.server.overriding import override
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger

A, B = bookies("ab")
Reports = dict[BookieId, tuple[BadRange, ...]]


class CountingStore(LedgerStore):
    """Ledgers, and which of them were read."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore(MemoryMetadataServer())
        super().__init__(self.store, random.Random(1), lambda: 5)
        self.reads: list[int] = []

    @override
    async def get(self, ledger_id: LedgerId, *, fresh: bool = False) -> object:  # type: ignore[override]
        self.reads.append(ledger_id)
        return await super().get(ledger_id, fresh=fresh)


@pytest.fixture
def ledgers() -> CountingStore:
    return CountingStore()


def bad(*ranges: tuple[int, int, int]) -> tuple[BadRange, ...]:
    return tuple(BadRange(LedgerId(i), EntryId(a), EntryId(b)) for i, a, b in ranges)


async def test_only_what_needs_a_repair_is_returned(ledgers: CountingStore) -> None:
    made = [
        closed_ledger("abc", ledger_id=1),
        closed_ledger("abc", ledger_id=2),
        open_ledger("abc", ledger_id=3),
        closed_ledger("bcd", ledger_id=4),
    ]
    for metadata in made:
        await ledgers.create(metadata)
    index = LedgerIndex()
    damaged = DamagedLedgers(ledgers, LedgerReads(ledgers, index).put)
    reports: Reports = {
        A: bad((1, 0, 1), (2, 10_000, 10_001), (3, 0, 1), (4, 0, 1), (5, 0, 1)),
        B: bad((1, 1, 1)),
    }
    assert await damaged.read(reports) == {LedgerId(1): frozenset((A, B))}
    assert sorted(ledgers.reads) == [1, 2, 3, 4, 5]
    assert index.known_between(LedgerId(0), None) == [1, 2, 3, 4], "they can be ranked"
    ledgers.reads.clear()
    assert await damaged.read(reports) == {LedgerId(1): frozenset((A, B))}
    assert ledgers.reads == []


async def test_a_ledger_of_a_later_release_is_left_out(ledgers: CountingStore) -> None:
    await ledgers.create(closed_ledger("abc", ledger_id=1))
    await ledgers.create(closed_ledger("abc", ledger_id=2))
    await ledgers.store.compare_and_set(ledger_path(LedgerId(1)), b"\x91\x63", Version(0))
    damaged = DamagedLedgers(ledgers, LedgerReads(ledgers, LedgerIndex()).put)
    found = await damaged.read({A: bad((1, 0, 1), (2, 0, 1))})
    assert found == {LedgerId(2): frozenset((A,))}


async def test_a_ledger_is_read_again_after_a_change(ledgers: CountingStore) -> None:
    await ledgers.create(closed_ledger("abc", ledger_id=1))
    damaged = DamagedLedgers(ledgers, LedgerReads(ledgers, LedgerIndex()).put)
    assert await damaged.read({A: bad((1, 0, 1), (2, 0, 0))}) == {LedgerId(1): frozenset((A,))}
    ledgers.reads.clear()
    assert await damaged.read({A: bad((1, 10_000, 10_000), (2, 0, 0))}) == {}
    assert ledgers.reads == [1]
    damaged.forget([LedgerId(1), LedgerId(9)])
    await damaged.read({A: bad((1, 10_000, 10_000), (2, 0, 0))})
    assert ledgers.reads == [1, 1]
    damaged.forget()
    await damaged.read({A: bad((1, 10_000, 10_000), (2, 0, 0))})
    assert sorted(ledgers.reads) == [1, 1, 1, 2]
    assert await damaged.read({}) == {}

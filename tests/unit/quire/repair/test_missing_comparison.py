"""Comparison of a ledger with its members: only a complete list proves that entries are missing
(9.16).
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import pytest

from bookie.wire.messages import AccessReply, EntryRanges, ListEntries, ReadAccess, Status
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, LedgerId, UpdateToken
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.repair.missing_copies import Comparison, compare
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger

if TYPE_CHECKING:
    from ledger_client.bookies.pool import BookiePool

A, B, C = bookies("abc")
LEDGER = LedgerId(7)
WHOLE = [(0, 9)]


@dataclass
class Pool:
    """Bookies that hold some ranges, and list two of them at a time."""

    held: dict[BookieId, list[Range]]
    statuses: dict[BookieId, Status] = field(default_factory=dict)
    hung: Collection[BookieId] = ()
    on_listed: Callable[[], None] = lambda: None
    attached: int = 0

    def attach(self, _ledger_id: LedgerId, _master_key: bytes) -> None:
        self.attached += 1

    def detach(self, _ledger_id: LedgerId) -> None:
        self.attached -= 1

    async def read_access(
        self, bookie_id: BookieId, _request: ReadAccess, *, timeout_s: float
    ) -> AccessReply:
        self._reach(bookie_id, timeout_s)
        key = b"k" * 20 if self.held.get(bookie_id) else b""
        return AccessReply(Status.OK if key else Status.NO_SUCH_LEDGER, key)

    async def list_entries(
        self, bookie_id: BookieId, request: ListEntries, *, timeout_s: float
    ) -> EntryRanges:
        self._reach(bookie_id, timeout_s)
        self.on_listed()
        first = request.first_entry_id
        left = [each for each in self.held.get(bookie_id, []) if each[0] >= first]
        nothing = Status.OK if left or first else Status.NO_SUCH_LEDGER
        status = self.statuses.get(bookie_id, nothing)
        return EntryRanges(status, tuple(left[:2]), complete=len(left) <= 2)

    def _reach(self, bookie_id: BookieId, _timeout_s: float) -> None:
        if bookie_id in self.hung:
            raise BookieCallError(bookie_id, "as the test wants", failure=CallFailure.TIMEOUT)


@pytest.fixture
def ledgers() -> LedgerStore:
    store = MemoryMetadataStore(MemoryMetadataServer())
    return LedgerStore(store, random.Random(1), lambda: 5)


async def run(
    ledgers: LedgerStore, pool: Pool, *, not_asked: str = "", ranges_max: int = 100
) -> Comparison:
    asked = lambda each: each not in not_asked  # noqa: E731
    found = await compare(LEDGER, ledgers, cast("BookiePool", pool), asked, ranges_max)
    assert pool.attached == 0
    return found


async def test_gaps_and_absent_ledgers_are_missing(ledgers: LedgerStore) -> None:
    version = await ledgers.create(closed_ledger("abc"))
    pool = Pool({A: WHOLE, B: [(0, 1), (3, 3), (5, 5), (7, 20)], C: []})
    found = await run(ledgers, pool)
    assert found == Comparison({B: ((2, 2), (4, 4), (6, 6)), C: ((0, 9),)}, version=version)
    found = await run(ledgers, pool, ranges_max=2)
    assert found.missing == {B: ((2, 2), (4, 4)), C: ((0, 9),)}


async def test_nothing_is_asked_of_an_open_ledger(ledgers: LedgerStore) -> None:
    version = await ledgers.create(open_ledger("abc", "abc"))
    assert await run(ledgers, Pool({}, hung=(A, B, C))) == Comparison(version=version)


async def test_no_answer_and_unknown_are_not_missing(ledgers: LedgerStore) -> None:
    await ledgers.create(closed_ledger("abc"))
    pool = Pool({A: WHOLE}, statuses={B: Status.UNKNOWN}, hung=(C,))
    found = await run(ledgers, pool)
    assert (found.missing, sorted(found.unknown), found.silent) == ({}, [B, C], (C,))
    found = await run(ledgers, pool, not_asked="bc")
    assert (found.missing, sorted(found.unknown), found.silent) == ({}, [B, C], ())
    found = await run(ledgers, pool, not_asked="abc")
    assert (found.missing, sorted(found.unknown)) == ({}, [A, B, C])


async def test_without_the_key_nothing_is_known(ledgers: LedgerStore) -> None:
    await ledgers.create(closed_ledger("abc"))
    found = await run(ledgers, Pool({A: WHOLE}, hung=(A,)))
    assert (found.missing, sorted(found.unknown)) == ({}, [A, B, C])


async def test_everything_is_missing_if_no_bookie_stores_a_key(ledgers: LedgerStore) -> None:
    await ledgers.create(closed_ledger("abc"))
    found = await run(ledgers, Pool({}), not_asked="c")
    assert found.missing == {A: ((0, 9),), B: ((0, 9),)}
    assert list(found.unknown) == [C]


async def test_a_change_of_the_metadata_in_between_proves_nothing(ledgers: LedgerStore) -> None:
    ledger = closed_ledger("abc")
    version = await ledgers.create(ledger)
    pool = Pool({A: WHOLE, B: WHOLE, C: [(0, 4)]})
    assert (await run(ledgers, pool)).missing == {C: ((5, 9),)}
    changed = replace(ledger, update_token=UpdateToken(b"1" * 16))
    await _change_while_listing(ledgers, pool, changed, version)


async def _change_while_listing(
    ledgers: LedgerStore, pool: Pool, changed: object, version: object
) -> None:
    get, reads = ledgers.get, 0

    async def changing(ledger_id: LedgerId, *, fresh: bool = False, agreed: bool = False) -> object:
        nonlocal reads
        reads += 1
        if reads == 2:
            await ledgers.compare_and_set(changed, version)  # type: ignore[arg-type]
        return await get(ledger_id, fresh=fresh, agreed=agreed)

    ledgers.get = changing  # type: ignore[assignment, method-assign]
    assert await run(ledgers, pool) == Comparison(has_changed=True)


async def test_a_deleted_ledger_raises(ledgers: LedgerStore) -> None:
    with pytest.raises(NodeNotFoundError):
        await run(ledgers, Pool({}))

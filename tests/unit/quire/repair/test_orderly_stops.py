"""Which bookies stopped in order, by the positions that they recorded last (rules 2.6, 9.5)."""

from metadata.ids import BookieId
from metadata.paths import position_path
from metadata.registry.positions import NO_POSITION, PositionRecord, PositionStore
from metadata.repair.lifecycle import Lifecycle
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.repair.ledger_reads import CALLS_AT_ONCE, OrderlyStops
from tests.support.sample_ledgers import bookies

A, B, C, D = bookies("abcd")


async def put(store: MemoryMetadataStore, *names: BookieId, is_orderly: bool = True) -> None:
    record = PositionRecord(b"i" * 16, 5, (), "", stopped_ms=9 if is_orderly else None)
    for name in names:
        assert await PositionStore(store).put(name, record, NO_POSITION) is not None


async def test_only_bookies_that_are_away_after_an_orderly_stop_are_found() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    await put(store, A, B)
    await put(store, C, is_orderly=False)
    stops = OrderlyStops(store)
    assert await stops.among((A, B, C, D), {A: 1}, {}) == {B}
    assert await stops.among((A, B, C, D), {}, {A: Lifecycle.DRAINING}) == {A, B}


async def test_an_announcement_ends_with_the_state() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    await put(store, A, B)
    states = {A: Lifecycle.LOST, B: Lifecycle.REMOVED}
    assert await OrderlyStops(store).among((A, B), {}, states) == frozenset()


async def test_a_record_of_a_later_release_announces_nothing() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    await put(store, B)
    await store.create(position_path(A), b"\x91\x63")
    assert await OrderlyStops(store).among((A, B), {}, {}) == {B}


async def test_many_positions_are_read_in_groups() -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    many = [BookieId(f"bookie-{number}") for number in range(2 * CALLS_AT_ONCE + 1)]
    await put(store, *many)
    assert await OrderlyStops(store).among(many, {}, {}) == set(many)

"""Checks of stored runs on a simulated disk, and copies of damaged entries (rules 4.3 and 9.12)."""

import pytest

from bookie.index.index_runs import Lookup
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.support.bookie.batches import make_batch, make_run, payload_of
from tests.support.bookie.storage_fixture import Bench, add, entries_of, read, simulate

MAGIC = (0x5152).to_bytes(2, "little")


async def look_up(storage: BookieStorage) -> Lookup:
    """Return the runs of the ledger."""
    return await storage._index.look_up(7, 0, 11, 11, 9)


async def check_all(storage: BookieStorage, ledger_id: int = 7) -> list[int]:
    """Check a ledger; return the entries at which a check began."""
    begun: list[int] = []
    next_entry_id: EntryId | None = EntryId(0)
    while next_entry_id is not None:
        begun.append(next_entry_id)
        found = await storage.reads.check(LedgerId(ledger_id), next_entry_id)
        assert found.next_entry_id is None or found.next_entry_id > next_entry_id
        next_entry_id = found.next_entry_id
    return begun


def place_of(bench: Bench, payload: bytes) -> tuple[str, int]:
    """Return the file that holds a payload, and its offset in bits."""
    for name, content in bench.platter.names.items():
        offset = bytes(content.current).find(payload)
        if name.startswith("log/") and offset >= 0:
            return name, 8 * offset
    raise AssertionError(payload)


def bad_of(storage: BookieStorage) -> list[tuple[int, int, int]]:
    return [(bad_range[0], bad_range[1], bad_range[2]) for bad_range in storage.bad_ranges.report()]


async def filled(bench: Bench) -> BookieStorage:
    storage = await bench.open()
    for first in range(0, 12, 3):
        assert await add(storage, make_run(7, first, 3, size=40)) is Status.OK
    return storage


def test_good_entries_are_read_from_the_disk_and_counted() -> None:
    async def test(bench: Bench) -> None:
        storage = await filled(bench)
        assert (await check_all(storage))[0] == 0
        statistics = storage.statistics()
        assert (statistics.checked_entries, statistics.entries_read) == (12, 0)
        assert statistics.checked_bytes > 12 * 40
        assert bad_of(storage) == []
        await storage.close()

    simulate(test)


@pytest.mark.parametrize("entry_id", [0, 4, 8, 9, 11])
def test_a_damaged_record_is_found_wherever_it_is(entry_id: int) -> None:
    async def test(bench: Bench) -> None:
        storage = await filled(bench)
        name, bit = place_of(bench, payload_of(7, entry_id, 40))
        bench.platter.flip_bit(name, bit)
        await check_all(storage)
        first = entry_id - entry_id % 3
        assert bad_of(storage) == [(7, first, first + 2)], "exactly the record"
        assert storage.statistics().checked_entries == 9
        bench.platter.flip_bit(name, bit)
        await check_all(storage)
        assert bad_of(storage) == [], "it can be read again"
        await storage.close()

    simulate(test)


def test_damage_of_a_records_header_makes_the_rest_of_its_run_bad() -> None:
    async def test(bench: Bench) -> None:
        storage = await filled(bench)
        name, bit = place_of(bench, payload_of(7, 6, 40))
        magic = bytes(bench.platter.names[name].current).rfind(MAGIC, 0, bit // 8)
        bench.platter.flip_bit(name, 8 * magic)
        await check_all(storage)
        assert bad_of(storage) == [(7, 6, 11)], "no later record of the run can be found"
        await storage.close()

    simulate(test)


def test_only_damaged_entries_are_replaced() -> None:
    async def test(bench: Bench) -> None:
        storage = await bench.reopen(await filled(bench))
        (old,) = (await look_up(storage)).runs
        bench.platter.flip_bit(*place_of(bench, payload_of(7, 4, 40)))
        await check_all(storage)
        whole = make_run(7, 0, 12, size=40)
        assert await add(storage, whole, recovery=True) is Status.OK
        assert bad_of(storage) == []
        before, replaced, after = (await look_up(storage)).runs
        assert (before[:2], replaced[:2], after[:2]) == ((2, 0), (5, 3), (11, 6))
        assert before[2] == after[2] == old[2] != replaced[2], "good copies stay where they are"
        wrong = make_batch(7, 6, [b"other"] * 3)
        assert await add(storage, wrong, recovery=True) is Status.CONFLICT
        await check_all(storage)
        assert bad_of(storage) == []
        storage = await bench.reopen(storage)
        wanted = {i: payload_of(7, i, 40) for i in range(12)}
        assert entries_of(await read(storage, 7, 0, 11)) == wanted
        await storage.close()

    simulate(test)


def test_a_copy_in_memory_does_not_hide_the_damage_on_the_disk() -> None:
    async def test(bench: Bench) -> None:
        storage = await filled(bench)
        bench.platter.flip_bit(*place_of(bench, payload_of(7, 10, 40)))
        await check_all(storage)
        written = storage.statistics().log_bytes_written
        assert await add(storage, make_run(7, 9, 3, size=40), recovery=True) is Status.OK
        assert storage.statistics().log_bytes_written > written
        assert bad_of(storage) == []
        await check_all(storage)
        assert bad_of(storage) == []
        await storage.close()

    simulate(test)


def test_a_comparison_that_finds_good_copies_ends_the_report() -> None:
    async def test(bench: Bench) -> None:
        storage = await filled(bench)
        storage.bad_ranges.note(7, 0, 5)
        assert await add(storage, make_run(7, 1, 4, size=40), recovery=True) is Status.OK
        assert bad_of(storage) == [(7, 0, 0), (7, 5, 5)]
        await storage.close()

    simulate(test)


def test_ledgers_that_are_gone_are_passed_over_and_not_reported() -> None:
    async def test(bench: Bench) -> None:
        storage = await filled(bench)
        assert await add(storage, make_run(8, 0, 3, size=40)) is Status.OK
        storage.bad_ranges.note(7, 0, 5)
        storage.bad_ranges.note(8, 0, 2)
        assert await storage.delete_ledger(LedgerId(7)) is Status.OK
        assert await storage.release_ledgers([LedgerId(8)]) == {LedgerId(8): Status.OK}
        assert bad_of(storage) == []
        for ledger_id in (7, 8, 9):
            assert await check_all(storage, ledger_id) == [0]
        assert storage.statistics().checked_entries == 0
        await storage.close()

    simulate(test)


def test_a_ledger_with_gaps_is_checked_to_its_end() -> None:
    async def test(bench: Bench) -> None:
        storage = await bench.open()
        for first in (0, 10, 20):
            assert await add(storage, make_run(7, first, 3, size=40)) is Status.OK
        assert await check_all(storage) == [0, 3, 13, 23]
        assert storage.statistics().checked_entries == 9
        await storage.close()

    simulate(test)

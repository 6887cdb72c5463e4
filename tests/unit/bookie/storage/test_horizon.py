"""A horizon replaces trimmed tombstones, and deleted ledgers do not come back."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import pytest

from bookie.files.disk import StoreTransaction
from bookie.index import stored_states
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.horizon import LedgerStatus, trim_tombstones
from bookie.storage.ledgers import Ledgers
from bookie.wire.messages import Status
from metadata.errors import StoreUnavailableError
from metadata.ids import LedgerId
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, entries_of, read

if TYPE_CHECKING:
    from bookie.index.index import Index

DELETED = range(1, 9)
LAST = 20
"""A ledger above all deleted ones."""


class Metadata:
    """Answers of the metadata service, and the number of reads."""

    def __init__(self) -> None:
        self.standings: dict[int, LedgerStatus] = {}
        self.asked: list[int] = []
        self.is_silent = False
        self.is_down = False

    async def read(self, ledger_id: LedgerId) -> LedgerStatus:
        self.asked.append(ledger_id)
        if self.is_silent:
            await asyncio.Event().wait()
        if self.is_down:
            raise StoreUnavailableError("zk", "no connection")
        await asyncio.sleep(0.01)
        return self.standings.get(ledger_id, LedgerStatus.GONE)


def bench(metadata: Metadata, tombstones_max: int = 2) -> Bench:
    config = dataclasses.replace(SMALL, tombstones_max=tombstones_max, hot_ledgers_max=1)
    return Bench(1, config, metadata.read)


async def trimmed(made: Bench, metadata: Metadata) -> BookieStorage:
    """Return a storage that deleted ledgers 1 to 8, and keeps few of their tombstones."""
    storage = await made.open()
    for ledger_id in (*DELETED, LAST):
        assert await add(storage, make_run(ledger_id, 0, 2)) is Status.OK
    for ledger_id in DELETED:
        assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
    await storage.checkpoint()
    await storage.clean()  # tombstones whose runs are left are not trimmed
    await storage.checkpoint()
    assert not metadata.asked
    assert storage._ledgers.tombstone_count <= made.config.tombstones_max
    assert storage._ledgers.horizon >= DELETED[-1] - made.config.tombstones_max
    storage._ledgers._recent_tombstones.clear()
    return storage


def test_deleted_ledgers_do_not_come_back() -> None:
    async def main() -> None:
        metadata = Metadata()
        made = bench(metadata)
        storage = await trimmed(made, metadata)
        for _ in range(2):
            for ledger_id in DELETED:
                assert await add(storage, make_run(ledger_id, 0, 1)) is Status.DELETED
                assert (
                    await add(storage, make_run(ledger_id, 0, 1), recovery=True) is Status.DELETED
                )
                assert (await storage.fence(LedgerId(ledger_id), KEY)).status is Status.DELETED
                assert (await storage.write_lac(LedgerId(ledger_id), 0, KEY)).status is (  # type: ignore[arg-type]
                    Status.DELETED
                )
                status = (await read(storage, ledger_id, 0, 0)).status
                assert status in (Status.DELETED, Status.NO_SUCH_LEDGER)
            assert storage.ledger_count == 1
            storage = await made.reopen(storage)
        await storage.close()

    run_simulation(main, 1)


@pytest.mark.parametrize(
    ("standing", "ordinary", "recovery"),
    [
        (LedgerStatus.GONE, Status.DELETED, Status.DELETED),
        (LedgerStatus.OPEN_HERE, Status.OK, Status.OK),
        (LedgerStatus.OPEN_ELSEWHERE, Status.UNKNOWN, Status.OK),
        (LedgerStatus.ENDED, Status.FENCED, Status.OK),
        (LedgerStatus.UNKNOWN, Status.UNKNOWN, Status.UNKNOWN),
    ],
)
def test_metadata_is_read_for_an_unknown_ledger_below_the_horizon(
    standing: LedgerStatus, ordinary: Status, recovery: Status
) -> None:
    async def main() -> None:
        metadata = Metadata()
        storage = await trimmed(bench(metadata, 0), metadata)
        metadata.standings = {1: standing, 2: standing, 3: standing}
        assert await add(storage, make_run(1, 0, 1)) is ordinary
        assert await add(storage, make_run(2, 0, 1), recovery=True) is recovery
        assert (await storage.fence(LedgerId(3), KEY)).status is recovery
        assert metadata.asked == [1, 2, 3]
        if recovery is Status.OK:  # known now: the metadata is not read again
            assert await add(storage, make_run(2, 1, 1), recovery=True) is Status.OK
            assert metadata.asked == [1, 2, 3]
        await storage.close()

    run_simulation(main, 1)


def test_silent_metadata_service_gives_unknown_and_delays_no_other_ledger() -> None:
    async def main() -> None:
        metadata = Metadata()
        storage = await trimmed(bench(metadata, 0), metadata)
        metadata.is_silent = True
        adding = asyncio.create_task(add(storage, make_run(1, 0, 1)))
        assert await add(storage, make_run(LAST, 2, 1)) is Status.OK
        assert await add(storage, make_run(LAST + 1, 0, 1)) is Status.OK
        assert not adding.done()
        assert await adding is Status.UNKNOWN
        metadata.is_silent, metadata.is_down = False, True
        assert await add(storage, make_run(1, 0, 1)) is Status.UNKNOWN
        assert storage.queued.accepted_bytes == 0
        await storage.close()

    run_simulation(main, 1)


def test_no_crash_comes_between_a_trim_and_its_horizon() -> None:
    async def main() -> None:
        made = bench(Metadata(), 0)
        storage = await made.open()
        for ledger_id in DELETED:
            await add(storage, make_run(ledger_id, 0, 2))
            await storage.delete_ledger(LedgerId(ledger_id))
        await storage.checkpoint()
        await storage.clean()
        store, looks = storage._index._store, list[int]()
        update = store.update

        async def update_and_look(
            job: Callable[[StoreTransaction], object], *, keeps_room: bool = False
        ) -> object:
            result = await update(job, keeps_room=keeps_room)
            horizon = await store.view(stored_states.read_horizon)
            assert horizon is not None
            values = await storage._index.stored_states(list(DELETED))
            missing = [each for each, value in zip(DELETED, values, strict=True) if value is None]
            looks.append(len(missing))
            assert all(each <= horizon[0] for each in missing)
            return result

        store.update = update_and_look  # type: ignore[method-assign,assignment]
        await storage.checkpoint()
        assert looks[-1] == len(DELETED)
        assert len(set(looks)) > 2, "one bounded transaction after the other"
        await storage.close()

    run_simulation(main, 1)


def test_the_horizon_is_there_before_a_tombstone_is_gone() -> None:
    """A late add for each trimmed ledger comes as soon as its tombstone is gone."""

    async def main() -> None:
        metadata = Metadata()
        made = bench(metadata, 0)
        storage = await made.open()
        trim, statuses = storage._index.trim_tombstones, list[Status]()

        async def trim_tombstones(ledger_ids: Sequence[int]) -> int:
            count = await trim(ledger_ids)
            storage._ledgers._recent_tombstones.clear()
            adds = [
                add(storage, make_run(ledger_id, 0, 1), recovery=True) for ledger_id in ledger_ids
            ]
            statuses.extend(await asyncio.gather(*adds))
            return count

        storage._index.trim_tombstones = trim_tombstones  # type: ignore[method-assign]
        for ledger_id in DELETED:
            assert await add(storage, make_run(ledger_id, 0, 2)) is Status.OK
            assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        await storage.checkpoint()
        await storage.clean()  # tombstones whose runs are left are not trimmed
        await storage.checkpoint()
        assert statuses == [Status.DELETED] * len(DELETED)
        await storage.close()

    run_simulation(main, 1)


def test_a_damaged_horizon_is_noticed() -> None:
    async def main() -> None:
        made = bench(Metadata(), 0)
        storage = await trimmed(made, Metadata())
        await storage._index._store.update(lambda t: t.put(b"h", b"damaged"))
        storage = await made.reopen(storage)
        for _ in range(2):
            assert storage.statistics().is_limbo
            status = await add(storage, make_run(1, 0, 1))
            assert status in (Status.UNKNOWN, Status.DELETED), "the log may have its tombstone"
            storage = await made.reopen(storage)
        await storage.close()

    run_simulation(main, 1)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_bytes_of_ledgers_whose_tombstones_were_trimmed_are_freed(
    *, is_restarted: bool
) -> None:
    """Their records share segments with a ledger that is deleted later."""

    async def main() -> None:
        made = bench(Metadata(), 0)
        storage = await made.open()
        for ledger_id in DELETED:
            assert await add(storage, make_run(ledger_id, 0, 2, size=200)) is Status.OK
            assert await add(storage, make_run(LAST, 4 * ledger_id, 4, size=200)) is Status.OK
        await storage.checkpoint()
        for ledger_id in DELETED:
            assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        await storage.checkpoint()
        await storage._upkeep._cleaner._delete_ledgers(is_full=False)
        await storage.checkpoint()  # trims the tombstones; the segments are still there
        assert storage._ledgers.horizon == DELETED[-1]
        old = sorted(storage._segments.by_number)
        if is_restarted:
            storage = await made.reopen(storage)
        assert await storage.delete_ledger(LedgerId(LAST)) is Status.OK
        for first in range(0, 40, 4):  # the log goes on, so the old segments are below the mark
            assert await add(storage, make_run(LAST + 1, first, 4, size=200)) is Status.OK
        await storage.checkpoint()
        await storage.clean()
        assert not set(old) & set(storage._segments.by_number)
        await storage.close()

    run_simulation(main, 1)


def test_a_ledger_below_the_horizon_that_is_held_keeps_its_entries() -> None:
    async def main() -> None:
        metadata = Metadata()
        made = bench(metadata, 0)
        storage = await trimmed(made, metadata)
        metadata.standings = {3: LedgerStatus.OPEN_HERE}
        for first in range(0, 40, 4):
            assert await add(storage, make_run(3, first, 4, size=50)) is Status.OK
            assert await add(storage, make_run(LAST, 4 + first, 4, size=200)) is Status.OK
        await storage.checkpoint()
        assert await storage.delete_ledger(LedgerId(LAST)) is Status.OK
        await add(storage, make_run(LAST + 1, 0, 20, size=200))
        await storage.checkpoint()
        assert await storage.clean()
        assert len(entries_of(await read(storage, 3, 0, 39))) == 40
        await storage.close()

    run_simulation(main, 1)


# -- trimming alone --------------------------------------------------------------------------------


class StoredTombstones:
    """Tombstones of an index, which it lists in parts of two."""

    def __init__(self, ids: range) -> None:
        self.ids = list(ids)
        self.wanted: list[int] = []

    async def find_tombstones(self, after: int, count: int) -> tuple[list[int], int | None]:
        self.wanted.append(count)
        found = [each for each in self.ids if each > after][: min(2, count)]
        return found, found[-1] if found and found[-1] != self.ids[-1] else None

    async def trim_tombstones(self, ids: list[int]) -> int:
        self.ids = [each for each in self.ids if each not in ids]
        return len(ids)


@pytest.mark.parametrize(
    ("count", "left", "wanted"),
    [
        (15, 15, []),
        (16, 16, []),
        (17, 14, [3, 1]),
        (18, 14, [4, 2]),
        (30, 14, [16, 14, 12, 10, 8, 6, 4, 2]),
    ],
)
async def test_the_lowest_tombstones_above_seven_eighths_are_trimmed(
    count: int, left: int, wanted: list[int]
) -> None:
    ledgers, index = Ledgers(hot_max=10), StoredTombstones(range(count))
    ledgers.tombstone_count = count
    trimmed = await trim_tombstones(ledgers, cast("Index", index), 16)
    assert trimmed == count - left
    assert ledgers.tombstone_count == left
    assert index.ids == list(range(count - left, count))
    assert index.wanted == wanted
    if trimmed:
        assert ledgers.horizon == trimmed - 1


async def test_tombstones_that_are_not_saved_yet_are_not_trimmed() -> None:
    ledgers, index = Ledgers(hot_max=10), StoredTombstones(range(17))
    for ledger_id in (0, 2, 3):
        ledgers.delete(ledger_id, has_runs=False)
    ledgers.tombstone_count = 17
    assert await trim_tombstones(ledgers, cast("Index", index), 16) == 3
    assert index.ids[:4] == [0, 2, 3, 6]

"""A storage on full, failing and damaged disks, and its cleaning, on the simulated disk."""

import asyncio
import dataclasses

import pytest

from bookie.errors import DiskFailedError
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import KEY, Bench, add, entries_of, read, simulate
from tests.until import until

L = LedgerId(7)


def test_a_damaged_copy_is_unknown_and_replaced_by_a_repetition() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 2)) is Status.OK
        assert await add(storage, make_run(7, 2, 2)) is Status.OK
        storage = await bench.reopen(storage)
        name = "log/00000001.log"
        place = bytes(bench.platter.names[name].current).index(payload_of(7, 2))
        bench.platter.flip_bit(name, place * 8)
        result = await read(storage, 7, 0, 3)
        assert (result.status, result.next_entry_id) == (Status.UNKNOWN, 2)
        assert entries_of(result) == {0: payload_of(7, 0), 1: payload_of(7, 1)}
        assert storage.statistics().damaged_ranges == 1
        assert await add(storage, make_run(7, 2, 2), recovery=True) is Status.OK
        assert entries_of(await read(storage, 7, 0, 3)) == {i: payload_of(7, i) for i in range(4)}

    simulate(main)


def test_checkpoints_follow_the_growth_of_the_log() -> None:
    async def main(bench: Bench) -> None:
        limit = bench.config.checkpoint_log_bytes
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        first = 0
        for _ in range(2):
            for _ in range(4):
                statistics = storage.statistics()
                before, written = statistics.checkpoints, statistics.log_bytes_written
                while storage.statistics().checkpoints == before:
                    assert storage.statistics().log_bytes_written - written <= 1.5 * limit
                    assert await add(storage, make_run(7, first, 1, size=500)) is Status.OK
                    first += 1
                    await asyncio.sleep(1)
                assert storage.statistics().log_bytes_written - written >= 0.5 * limit
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            storage = await bench.reopen(storage)
            running = asyncio.create_task(storage.background())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    simulate(main)


def test_background_work_is_cancelled_once() -> None:
    """A second time would break off the close of a file that the work has open."""

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        ends: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1)
                ends.append("closed its file")

        storage._upkeep._reserve.keep = work  # type: ignore[method-assign]
        running = asyncio.create_task(storage.background())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await storage.close()
        assert ends == ["closed its file"]

    simulate(main)


@pytest.mark.parametrize("share", [0.0, 9.0])
def test_background_checkpoint_rests_between_its_transactions(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookie.storage.upkeep.REST_SHARE", share)
    rests: list[float] = []

    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(
            bench.config, checkpoint_records=20, transaction_runs_max=2
        )
        storage = await bench.open()
        bench.platter.stores["index"].attach(lambda: asyncio.sleep(0.01), bool)
        running = asyncio.create_task(storage.background())
        for ledger_id in range(20):
            assert await add(storage, make_run(ledger_id, 0, 1)) is Status.OK
        began = asyncio.get_running_loop().time()
        await until(lambda: storage.statistics().checkpoints > 0)
        rests.append(asyncio.get_running_loop().time() - began)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    simulate(main)
    # Ten transactions of at least 10 ms each: nine times as long again, but 0.1 s at most.
    assert rests[0] > 0.8 if share else rests[0] < 0.8


def test_a_deleted_ledger_never_comes_back() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        await add(storage, make_run(7, 0, 20))
        await add(storage, make_run(8, 0, 20))
        await storage.checkpoint()
        assert await storage.delete_ledger(L) is Status.OK
        for _ in range(3):
            assert await add(storage, make_run(7, 20, 1)) is Status.DELETED
            assert await add(storage, make_run(7, 20, 1), recovery=True) is Status.DELETED
            assert (await read(storage, 7, 0, 0)).status is Status.DELETED
            assert (await storage.fence(L, KEY)).status is Status.DELETED
            assert await storage.list_ledgers(-1, 10) == ([8], None)
            await storage.clean()
            storage = await bench.reopen(storage)
        assert len(entries_of(await read(storage, 8, 0, 19))) == 20

    simulate(main)


def test_a_full_disk_loses_nothing_and_is_writable_again_later() -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = 60_000
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        await asyncio.sleep(1)
        stored, first = 0, 0
        while await add(storage, make_run(7, first, 20)) is Status.OK:
            stored, first = stored + 20, first + 20
        assert not storage.is_writable
        await asyncio.sleep(20)
        assert (
            await storage.fence(LedgerId(9), KEY)
        ).status is Status.OK  # the reserve was released
        assert await add(storage, make_run(9, 0, 1), recovery=True) is Status.OK
        for entry_id in range(0, stored, 20):
            assert len(entries_of(await read(storage, 7, entry_id, entry_id + 19))) == 20
        bench.faults.capacity_bytes = 10**6
        await asyncio.sleep(20)
        assert storage.is_writable
        assert await add(storage, make_run(7, first, 20)) is Status.OK
        running.cancel()
        storage = await bench.reopen(storage)
        assert len(entries_of(await read(storage, 7, first, first + 19))) == 20

    simulate(main)


def test_a_failed_sync_stops_the_storage_for_ever() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        assert await add(storage, make_run(7, 0, 1)) is Status.OK
        await asyncio.sleep(10)  # the reserve is made
        bench.faults.failing_syncs = 1
        assert await add(storage, make_run(7, 1, 1)) is Status.UNKNOWN
        assert await add(storage, make_run(7, 2, 1)) is Status.UNKNOWN
        assert (await storage.fence(L, KEY)).status is Status.UNKNOWN
        assert (await read(storage, 7, 1, 1)).status is Status.UNKNOWN
        with pytest.raises(DiskFailedError):
            await running
        await storage.close()

    simulate(main)


def test_an_index_commit_that_fails_to_sync_stops_the_bookie() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        bench.faults.index_commit_fails = True
        for first in range(0, 2000, 20):
            await add(storage, make_run(7, first, 20))
        with pytest.raises(DiskFailedError):
            await running

    simulate(main)


def test_a_segment_that_was_cut_short_is_unknown_and_never_negative() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 5)) is Status.OK
        storage = await bench.reopen(storage)
        for size in (200, 60, 0):
            del bench.platter.names["log/00000001.log"].current[size:]
            assert (await read(storage, 7, 0, 4)).status is Status.UNKNOWN
        del bench.platter.names["log/00000001.log"]
        storage = await bench.reopen(storage)
        assert (await read(storage, 7, 0, 4)).status is Status.UNKNOWN
        assert (await read(storage, 99, 0, 4)).status is Status.UNKNOWN
        assert storage.statistics().is_limbo
        assert not storage.is_writable
        assert await add(storage, make_run(99, 0, 1)) is Status.UNKNOWN
        assert await add(storage, make_run(7, 5, 1)) is Status.FENCED
        assert await add(storage, make_run(7, 5, 1), recovery=True) is Status.OK

    simulate(main)


def test_a_ledger_whose_runs_went_missing_is_unknown_and_then_rebuilt() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 200, 10):
            await add(storage, make_run(7, first, 10))
            await add(storage, make_run(8, first, 10))
        storage = await bench.reopen(storage)
        store = bench.platter.stores["index"]
        mine = [key for key in store.keys if key.startswith(b"r" + bytes(7) + b"\7")]
        for key in (mine[2], mine[-1]):
            store.assign(key, None)
        unknown = [e for e in range(200) if (await read(storage, 7, e, e)).status is Status.UNKNOWN]
        assert unknown
        running = asyncio.create_task(storage.background())
        await asyncio.sleep(20)
        for _ in range(2):
            assert entries_of(await read(storage, 7, 0, 199)) == {
                i: payload_of(7, i) for i in range(200)
            }
            assert (await read(storage, 7, 200, 200)).status is Status.NO_SUCH_ENTRY
            assert not (await storage.reads.read_lac(L, KEY)).fenced
            assert (await read(storage, 8, 200, 200)).status is Status.NO_SUCH_ENTRY
            assert not (await storage.reads.read_lac(LedgerId(8), KEY)).fenced
            running.cancel()
            storage = await bench.reopen(storage)

    simulate(main)


def test_entry_missing_from_all_segments_is_searched_for_once() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(40):
            assert await add(storage, make_run(7, first, 1, size=300)) is Status.OK
        await storage.checkpoint()
        store = bench.platter.stores["index"]
        store.assign(max(key for key in store.keys if key.startswith(b"r")), None)
        name = max(name for name in bench.platter.names if name.startswith("log/"))
        bench.platter.flip_bit(name, 8 * (len(bench.platter.names[name].current) - 40))
        running = asyncio.create_task(storage.background())
        for _ in range(300):
            assert (await read(storage, 7, 39, 39)).status is Status.UNKNOWN
            await asyncio.sleep(1)
        assert storage._upkeep._rebuilder.search_count == 1
        # The ledger takes adds, and the entry when it is stored again.
        assert await add(storage, make_run(7, 40, 1)) is Status.OK
        assert (await read(storage, 7, 99, 99)).status is Status.UNKNOWN
        assert await add(storage, make_run(7, 39, 1, size=300), recovery=True) is Status.OK
        assert len(entries_of(await read(storage, 7, 39, 40))) == 2
        assert not running.done()
        running.cancel()

    simulate(main)


def test_a_search_of_the_segments_does_not_stop_the_watch_of_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(10**6)

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        monkeypatch.setattr("bookie.log.replay.list_records", never)
        storage._reader.unproven[7] = 1
        await asyncio.sleep(60)
        bench.faults.capacity_bytes = 1000
        await asyncio.sleep(20)
        assert not storage.is_writable
        running.cancel()

    simulate(main)


def test_a_lost_index_is_rebuilt_in_limbo() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 100, 5):
            await add(storage, make_run(7, first, 5))
        storage = await bench.reopen(storage)
        await storage.close()
        del bench.platter.stores["index"]
        storage = await bench.open()
        for _ in range(2):
            assert entries_of(await read(storage, 7, 0, 99)) == {
                i: payload_of(7, i) for i in range(100)
            }
            assert (await read(storage, 7, 100, 100)).status is Status.UNKNOWN
            assert (await read(storage, 9, 0, 0)).status is Status.UNKNOWN
            assert await add(storage, make_run(7, 100, 1)) is Status.FENCED
            storage = await bench.reopen(storage)

    simulate(main)


def test_a_damaged_ledger_state_is_noticed() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        await add(storage, make_run(7, 0, 5))
        await storage.fence(LedgerId(8), KEY)
        await storage.close()
        store = bench.platter.stores["index"]
        store.assign(next(key for key in store.keys if key.startswith(b"s")), None)
        storage = await bench.open()
        assert storage.statistics().is_limbo
        assert await add(storage, make_run(8, 0, 1)) in (Status.FENCED, Status.UNKNOWN)
        assert entries_of(await read(storage, 7, 0, 4)) == {i: payload_of(7, i) for i in range(5)}

    simulate(main)


def test_cleaning_frees_deleted_ledgers_and_sorts_what_is_left() -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(bench.config, clean_mean_run_bytes_min=1000)
        storage = await bench.open()
        for first in range(200):
            for ledger_id in (7, 8, 9):
                await add(storage, make_run(ledger_id, first, 1))
        await storage.checkpoint()
        before = storage.statistics()
        await storage.delete_ledger(L)
        freed = 0
        for _ in range(60):
            freed += await storage.clean()
            await storage.checkpoint()
        after = storage.statistics()
        assert freed > 0
        assert after.segment_bytes < before.segment_bytes * 0.8
        for _ in range(2):
            for ledger_id in (8, 9):
                found = entries_of(await read(storage, ledger_id, 0, 199))
                assert found == {i: payload_of(ledger_id, i) for i in range(200)}
            assert (await read(storage, 7, 0, 0)).status is Status.DELETED
            storage = await bench.reopen(storage)
        runs = [key for key in bench.platter.stores["index"].keys if key.startswith(b"r")]
        assert len(runs) < 100

    simulate(main)


def test_cleaning_keeps_a_damaged_segment() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(100):
            for ledger_id in (7, 8):
                await add(storage, make_run(ledger_id, first, 1))
        storage = await bench.reopen(storage)
        name = "log/00000001.log"
        place = bytes(bench.platter.names[name].current).index(payload_of(8, 1))
        bench.platter.flip_bit(name, 8 * place)
        await storage.delete_ledger(L)
        for _ in range(10):
            await storage.clean()
            await storage.checkpoint()
        assert name in bench.platter.names
        assert len(bench.platter.names) < 5 + storage.statistics().segments
        for entry_id in range(100):
            result = await read(storage, 8, entry_id, entry_id)
            if entry_id == 1:
                assert result.status is Status.UNKNOWN
            else:
                assert entries_of(result) == {entry_id: payload_of(8, entry_id)}

    simulate(main)


def test_a_damaged_segment_goes_once_its_entries_are_repaired_and_deleted() -> None:
    """Cleaning meets the damage while the segment still has live entries."""

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 100, 10):
            assert await add(storage, make_run(8, first, 10)) is Status.OK
            assert await add(storage, make_run(10, first, 12)) is Status.OK
        await storage.checkpoint()
        damaged = "log/00000001.log"
        place = bytes(bench.platter.names[damaged].current).index(payload_of(8, 10))
        bench.platter.flip_bit(damaged, place * 8)
        await storage.delete_ledger(LedgerId(10))
        await storage.checkpoint()
        await storage.clean()
        statistics = storage.statistics()
        assert (statistics.damaged_segments, damaged in bench.platter.names) == (1, True)
        assert (await read(storage, 8, 10, 19)).status is Status.UNKNOWN
        assert await add(storage, make_run(8, 10, 10), recovery=True) is Status.OK
        for first in range(0, 100, 10):  # the log goes on, so the old segments are below the mark
            assert await add(storage, make_run(11, first, 10)) is Status.OK
        await storage.checkpoint()
        await storage.clean()
        assert damaged not in bench.platter.names
        assert storage.statistics().damaged_segments == 0
        storage = await bench.reopen(storage)
        assert entries_of(await read(storage, 8, 0, 99)) == {
            i: payload_of(8, i) for i in range(100)
        }
        await storage.close()

    simulate(main)


def test_a_close_during_a_checkpoint_leaves_nothing_to_replay() -> None:
    """The close cancels the checkpoint under way, and its changes and later ones are stored."""

    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(
            bench.config, checkpoint_log_bytes=10**9, segment_bytes_max=10**6
        )
        storage = await bench.open()
        background = asyncio.create_task(storage.background())
        for ledger_id in range(200):
            assert await add(storage, make_run(ledger_id, 0, 5)) is Status.OK
        storage._upkeep._due.set()
        await until(lambda: storage._index.moving_count > 0)
        for ledger_id in range(200, 230):
            assert await add(storage, make_run(ledger_id, 0, 5)) is Status.OK
        assert storage._index.moving_count > 0, "the checkpoint is under way"
        await storage.close()
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
        assert storage._index.meta.mark_lsn == storage._log.durable_lsn
        storage = await bench.open()
        assert entries_of(await read(storage, 229, 4, 4)) == {4: payload_of(229, 4)}
        await storage.close()

    simulate(main)

"""Promises of a storage, one test for each, on the simulated disk."""

import asyncio

from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.support.bookie.batches import make_batch, make_run, payload_of
from tests.support.bookie.storage_fixture import (
    KEY,
    OTHER_KEY,
    Bench,
    add,
    entries_of,
    read,
    simulate,
)

L = LedgerId(7)


def test_added_entries_are_read_back_also_after_a_restart() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 200, 4):
            assert await add(storage, make_run(7, first, 4, lac=first - 1)) is Status.OK
        expected = {i: payload_of(7, i) for i in range(200)}
        for _ in range(3):
            found: dict[int, bytes] = {}
            while len(found) < 200:
                result = await read(storage, 7, len(found), 199, bytes_max=700)
                assert result.status is Status.OK
                found |= entries_of(result)
            assert found == expected
            assert (await read(storage, 7, 198, 205)).status is Status.NO_SUCH_ENTRY
            assert (await read(storage, 7, 198, 205)).next_entry_id == 200
            assert storage.lac_of(L) == 195
            storage = await bench.reopen(storage)
        assert storage.statistics().checkpoint_mark > 0

    simulate(main)


def test_single_entries_and_cuts() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 10)) is Status.OK
        storage = await bench.reopen(storage)
        for i in range(10):
            assert entries_of(await read(storage, 7, i, i)) == {i: payload_of(7, i)}
        keyed = make_batch(8, 0, [b"a", b"b"], mac_key=b"m" * 32)
        assert await add(storage, keyed) is Status.OK
        result = await read(storage, 8, 1, 1)
        assert bytes(result.batches[0]) == bytes(keyed.data)

    simulate(main)


def test_negatives() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert (await read(storage, 7, 0, 0)).status is Status.NO_SUCH_LEDGER
        assert (await storage.reads.read_lac(L, KEY)).status is Status.NO_SUCH_LEDGER
        assert await add(storage, make_run(7, 5, 2)) is Status.OK
        assert await add(storage, make_run(7, 10, 2)) is Status.OK
        for _ in range(2):
            for i in (0, 4, 7, 9, 12, 1000):
                result = await read(storage, 7, i, i)
                assert (result.status, result.next_entry_id) == (Status.NO_SUCH_ENTRY, i)
            assert (await read(storage, 7, 9, 3)).status is Status.BAD_REQUEST
            ranges = await storage.reads.entry_ranges(L, EntryId(0), 10)
            assert (ranges.ranges, ranges.complete) == (((5, 6), (10, 11)), True)
            ranges = await storage.reads.entry_ranges(L, EntryId(6), 1)
            assert (ranges.ranges, ranges.complete) == (((6, 6),), False)
            storage = await bench.reopen(storage)

    simulate(main)


def test_the_first_key_is_the_ledgers_key() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 1)) is Status.OK
        await storage.fence(LedgerId(8), KEY)
        for _ in range(2):
            assert await add(storage, make_run(7, 1, 1), key=OTHER_KEY) is Status.UNAUTHORIZED
            assert (await read(storage, 7, 0, 0, key=OTHER_KEY)).status is Status.UNAUTHORIZED
            assert (await storage.fence(L, OTHER_KEY)).status is Status.UNAUTHORIZED
            assert (await storage.fence(LedgerId(8), OTHER_KEY)).status is Status.UNAUTHORIZED
            assert (await storage.reads.read_lac(L, OTHER_KEY)).status is Status.UNAUTHORIZED
            assert (await storage.write_lac(L, EntryId(0), OTHER_KEY)).status is Status.UNAUTHORIZED
            assert storage.reads.try_read(L, EntryId(0), EntryId(0), 9, OTHER_KEY) is None
            assert (await read(storage, 7, 0, 0, key=None)).status is Status.OK
            assert not (await storage.reads.read_lac(L, KEY)).fenced
            storage = await bench.reopen(storage)

    simulate(main)


def test_read_only_bookie_still_reports_a_lac() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 3)) is Status.OK
        storage.writability.set_by_operator(is_read_only=True)
        assert (await storage.write_lac(L, EntryId(2), KEY)).status is Status.READ_ONLY
        assert storage.lac_of(L) == 2

    simulate(main)


def test_a_fence_lasts_and_only_recovery_passes() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 3, lac=1)) is Status.OK
        snapshot = await storage.fence(L, KEY)
        assert snapshot.status is Status.OK
        assert (snapshot.lac, snapshot.highest_entry_id, snapshot.fenced) == (1, 2, True)
        unseen = await storage.fence(LedgerId(9), KEY)
        assert (unseen.status, unseen.lac, unseen.fenced) == (Status.OK, -1, True)
        for i in range(3):
            assert await add(storage, make_run(7, 3, 1)) is Status.FENCED
            assert await add(storage, make_run(9, 0, 1)) is Status.FENCED
            assert (await storage.write_lac(L, EntryId(2), KEY)).status is Status.FENCED
            assert await add(storage, make_run(7, 10 + i, 1), recovery=True) is Status.OK
            assert (await storage.reads.read_lac(L, KEY)).fenced
            storage = await bench.reopen(storage)

    simulate(main)


def test_a_fence_during_a_comparison_refuses_the_add() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 3)) is Status.OK
        answers: list[Status] = []
        # Half of it is stored: it is compared first, which takes a while.
        storage.add(make_run(7, 2, 3), recovery=False, master_key=KEY, done=answers.append)
        snapshot = await storage.fence(L, KEY)
        await asyncio.sleep(5)
        assert answers == [Status.FENCED]
        assert snapshot.highest_entry_id == 2
        assert (await storage.reads.read_lac(L, KEY)).highest_entry_id == 2

    simulate(main)


def test_a_fence_waits_for_the_adds_accepted_before_it() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        bench.faults.paused = asyncio.Event()
        answers: list[Status] = []
        storage.add(make_run(7, 0, 5, lac=-1), recovery=False, master_key=KEY, done=answers.append)
        await asyncio.sleep(1)  # the add is being written
        fence = asyncio.create_task(storage.fence(L, KEY))
        await asyncio.sleep(1)
        late: list[Status] = []
        storage.add(make_run(7, 5, 1), recovery=False, master_key=KEY, done=late.append)
        assert late == [Status.FENCED]
        reading = asyncio.create_task(read(storage, 7, 0, 9))
        await asyncio.sleep(1)
        assert not fence.done()
        assert not reading.done()
        assert not answers
        bench.faults.paused.set()
        assert (await fence).highest_entry_id == 4
        assert answers == [Status.OK]
        result = await reading
        assert (result.status, result.next_entry_id) == (Status.NO_SUCH_ENTRY, 5)

    simulate(main)


def test_negatives_of_a_fenced_ledger_wait_for_its_queued_recovery_adds() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        await storage.fence(L, KEY)
        bench.faults.paused = asyncio.Event()
        done: list[Status] = []
        storage.add(make_run(7, 0, 1), recovery=True, master_key=KEY, done=done.append)
        await asyncio.sleep(1)
        reading = asyncio.create_task(read(storage, 7, 0, 0, after_fence=True))
        fence = asyncio.create_task(storage.fence(L, KEY))
        assert storage.reads.try_read(L, EntryId(0), EntryId(0), 100, KEY) is None
        await asyncio.sleep(1)
        assert not reading.done()
        assert not fence.done()
        bench.faults.paused.set()
        assert (await reading).status is Status.OK
        assert (await fence).highest_entry_id == 0

    simulate(main)


def test_repeated_entries_are_compared() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 10)) is Status.OK
        for _ in range(2):
            assert await add(storage, make_run(7, 0, 10)) is Status.OK
            assert await add(storage, make_run(7, 3, 2, lac=4)) is Status.OK
            changed = make_batch(7, 4, [payload_of(7, 4), b"other"])
            assert await add(storage, changed) is Status.CONFLICT
            assert await add(storage, changed, recovery=True) is Status.CONFLICT
            longer = make_batch(7, 4, [payload_of(7, 4) + b"\0"])
            assert await add(storage, longer) is Status.CONFLICT
            storage = await bench.reopen(storage)
        assert await add(storage, make_run(7, 5, 10)) is Status.OK
        assert await add(storage, make_run(7, 30, 5)) is Status.OK
        assert await add(storage, make_run(7, 0, 50)) is Status.OK
        for _ in range(2):
            assert entries_of(await read(storage, 7, 0, 49)) == {
                i: payload_of(7, i) for i in range(50)
            }
            storage = await bench.reopen(storage)

    simulate(main)


def test_a_repetition_of_a_queued_add_waits_for_it() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        bench.faults.paused = asyncio.Event()
        order: list[str] = []
        for name, batch in (
            ("first", make_run(7, 0, 3)),
            ("again", make_run(7, 0, 3)),
            ("other", make_batch(7, 2, [b"x"])),
        ):
            storage.add(
                batch,
                recovery=False,
                master_key=KEY,
                done=lambda status, name=name: order.append(f"{name} {status.name}"),  # type: ignore[misc]
            )
        await asyncio.sleep(1)
        assert order == []
        bench.faults.paused.set()
        await asyncio.sleep(5)
        assert order[0] == "first OK"
        assert sorted(order[1:]) == ["again OK", "other CONFLICT"]

    simulate(main)


def test_a_bad_batch_is_refused() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        data = bytearray(make_run(7, 0, 2).data)
        data[-1] ^= 1
        assert await add(storage, BatchView(data)) is Status.BAD_REQUEST
        assert storage.ledger_count == 0

    simulate(main)


def test_lac_and_its_watchers() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        calls: list[int] = []
        cancel = storage.watch_lac(L, lambda: calls.append(storage.lac_of(L)))
        storage.watch_lac(LedgerId(8), lambda: calls.append(99))
        await add(storage, make_run(7, 0, 2))
        await add(storage, make_run(7, 2, 1, lac=1))
        await add(storage, make_run(7, 3, 1, lac=1))
        assert (await storage.write_lac(L, EntryId(3), KEY)).lac == 3
        assert (await storage.write_lac(L, EntryId(2), KEY)).lac == 3
        await storage.fence(L, KEY)
        await storage.fence(L, KEY)
        assert calls == [1, 3, 3]
        cancel()
        await storage.delete_ledger(L)
        assert calls == [1, 3, 3]
        storage = await bench.reopen(storage)
        assert (await storage.fence(LedgerId(8), KEY)).lac == -1

    simulate(main)


def test_lac_of_a_slice_is_ignored() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        cut = make_run(7, 0, 5, lac=3).cut(EntryId(2), EntryId(3))
        assert await add(storage, BatchView(cut), recovery=True) is Status.OK
        assert storage.lac_of(L) == -1
        assert entries_of(await read(storage, 7, 2, 3)) == {i: payload_of(7, i) for i in (2, 3)}

    simulate(main)


def test_read_only_by_an_operator() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        changes: list[bool] = []
        storage.writability.on_change(lambda _: changes.append(storage.is_writable))
        storage.writability.set_by_operator(is_read_only=True)
        assert await add(storage, make_run(7, 0, 1)) is Status.READ_ONLY
        assert await add(storage, make_run(7, 0, 1), recovery=True) is Status.OK
        assert (await storage.fence(L, KEY)).status is Status.OK
        storage.writability.set_by_operator(is_read_only=False)
        assert await add(storage, make_run(8, 0, 1)) is Status.OK
        assert changes == [False, True]

    simulate(main)


def ignore(_: Status) -> None:
    """Ignore an answer."""


def test_room_is_freed() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        bench.faults.paused = asyncio.Event()
        first = 0
        while storage.has_room:
            storage.add(
                make_run(7, first, 1, size=1_000_000),
                recovery=False,
                master_key=KEY,
                done=ignore,
            )
            first += 1
        waiting = asyncio.create_task(storage.wait_for_room())
        await asyncio.sleep(5)
        assert not waiting.done()
        assert storage.queued.accepted_bytes >= bench.config.queue_bytes_max
        bench.faults.paused.set()
        await waiting
        assert storage.has_room

    simulate(main)


def test_all_answers_of_a_group_come_in_one_step_and_then_the_callback() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        events: list[str] = []
        storage.on_group_durable(lambda: events.append("group"))
        for i in range(10):
            storage.add(
                make_run(i, 0, 1),
                recovery=False,
                master_key=KEY,
                done=lambda s: events.append(s.name),
            )
        await asyncio.sleep(5)
        assert events == ["OK"] * 10 + ["group"]

    simulate(main)


def test_tailing_never_touches_the_disk() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        await add(storage, make_run(7, 0, 3))
        result = storage.reads.try_read(L, EntryId(1), EntryId(5), 1000, KEY)
        assert result is not None
        assert (result.status, result.next_entry_id) == (Status.OK, 3)
        assert entries_of(result) == {i: payload_of(7, i) for i in (1, 2)}
        beyond = storage.reads.try_read(L, EntryId(3), EntryId(5), 1000, KEY)
        assert beyond is not None
        assert beyond.status is Status.NO_SUCH_ENTRY

    simulate(main)

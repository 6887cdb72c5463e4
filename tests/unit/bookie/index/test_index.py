"""The index compared with a naive twin: random inserts, checkpoints, failed and lost commits, and
damaged values.
"""

import asyncio
import dataclasses
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from bookie.config import StorageConfig
from bookie.errors import DiskFullError
from bookie.files.disk import StoreTransaction
from bookie.index import index_pages, index_runs, replica_state, stored_runs, stored_states
from bookie.index.index import Index
from bookie.index.index_pages import INDEX_VERSION, CheckpointMeta
from bookie.index.index_runs import Lookup, Run
from bookie.index.replica_state import ReplicaState
from bookie.index.stored_runs import RunMove
from metadata.ids import LedgerId
from tests.simulation.index_store import MemoryStore
from tests.simulation.loop import run_simulation

CONFIG = StorageConfig(transaction_runs_max=4, run_bytes_max=90)
IDS = 60
SEEDS = range(40)


def naive_insert(twin: dict[int, int], first: int, last: int, location: int) -> None:
    twin.update(dict.fromkeys(range(first, last + 1), location))


def holds(runs: list[Run], entry_id: int, location: int) -> bool:
    """Return whether a place is within the bytes of the run that covers an entry."""
    return any(
        first <= entry_id <= last and start <= location < start + size
        for last, first, start, size in runs
    )


class Twins:
    """An index, and a dict of entry id to place for each ledger."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.store = MemoryStore()
        self.places: dict[int, dict[int, int]] = {1: {}, 2: {}, 2**63 - 1: {}}
        self.indexed_highest = dict.fromkeys(self.places, -1)
        self.next_location = 1 << 32
        self.index = Index(self.store, CONFIG, CheckpointMeta(INDEX_VERSION, 0, 0, 0, 0))

    async def begin(self) -> None:
        meta = self.index.meta
        await self.store.update(lambda t: index_pages.write_meta(t, meta))

    def insert(self) -> None:
        ledger_id = self.rng.choice(list(self.places))
        places = self.places[ledger_id]
        highest = max(places, default=-1)
        first = self.rng.choice((highest + 1, highest + 1, highest + 3, self.rng.randrange(IDS)))
        last = first + self.rng.randrange(5)
        self.next_location += self.rng.choice((0, 0, 7))
        self.index.insert(ledger_id, first, last, self.next_location, 10)
        naive_insert(places, first, last, self.next_location)
        self.next_location += 10

    def encode(self, ledger_id: int, highest_moved: int) -> bytes:
        highest = max(highest_moved, self.indexed_highest[ledger_id])
        self.indexed_highest[ledger_id] = highest
        return ReplicaState(LedgerId(ledger_id)).encode(highest)

    async def checkpoint(self) -> None:
        await self.index.checkpoint(
            self.next_location,
            {1: None},
            self.encode,
            [2],
            self.indexed_highest.__getitem__,
        )

    async def check(self) -> None:
        for ledger_id, places in self.places.items():
            for entry_id in range(IDS + 10):
                found = await self.index.look_up(
                    ledger_id, entry_id, entry_id, self.indexed_highest[ledger_id], 3
                )
                assert found.known_to == entry_id, "a negative or a positive without proof"
                if entry_id in places:
                    assert holds(found.runs, entry_id, places[entry_id])
                else:
                    assert not found.runs
            await self.check_range(ledger_id, places)

    async def check_range(self, ledger_id: int, places: dict[int, int]) -> None:
        first = self.rng.randrange(IDS)
        last = first + self.rng.randrange(IDS)
        start = first
        while start <= last:
            found = await self.index.look_up(
                ledger_id, start, last, self.indexed_highest[ledger_id], 3
            )
            assert not found.is_unproven
            for entry_id in range(start, found.known_to + 1):
                covered = any(r[1] <= entry_id <= r[0] for r in found.runs)
                assert covered == (entry_id in places)
            assert found.known_to >= start
            start = found.known_to + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_index_agrees_with_its_naive_twin(seed: int) -> None:
    async def main() -> None:
        twins = Twins(random.Random(seed))
        await twins.begin()
        for _ in range(12):
            for _ in range(twins.rng.randrange(20)):
                twins.insert()
            await twins.check()
            if twins.rng.random() < 0.6:
                await twins.checkpoint()
                await twins.check()
        assert twins.index.meta.mark_lsn <= twins.next_location

    run_simulation(main, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_checkpoint_keeps_everything_and_can_be_repeated(seed: int) -> None:
    async def main() -> None:
        twins = Twins(random.Random(seed))
        await twins.begin()
        for _ in range(4):
            for _ in range(15):
                twins.insert()
            twins.store.puts_left = twins.rng.randrange(12)
            try:
                await twins.checkpoint()
            except DiskFullError:
                twins.store.puts_left = None
                await twins.check()
                await twins.checkpoint()
            twins.store.puts_left = None
            await twins.check()

    run_simulation(main, seed)


def test_a_repeated_checkpoint_keeps_the_mark_that_it_began_with() -> None:
    async def main() -> None:
        twins = Twins(random.Random(1))
        await twins.begin()
        twins.insert()
        began_with = twins.next_location
        twins.store.puts_left = 0
        with pytest.raises(DiskFullError):
            await twins.checkpoint()
        twins.store.puts_left = None
        for _ in range(5):
            twins.insert()  # these stay in memory: replay must find them above the mark
        await twins.checkpoint()
        assert twins.index.meta.mark_lsn == began_with
        await twins.checkpoint()
        assert twins.index.meta.mark_lsn == twins.next_location

    run_simulation(main, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_bit_or_a_lost_pair_is_never_a_negative(seed: int) -> None:
    async def main() -> None:
        twins = Twins(random.Random(seed))
        await twins.begin()
        for _ in range(60):
            twins.insert()
        await twins.checkpoint()
        if seed % 2:
            twins.store.flip_bit(twins.rng)
        else:
            runs = [key for key in twins.store.keys if key.startswith(b"r")]
            twins.store.assign(twins.rng.choice(runs), None)
        for ledger_id, places in twins.places.items():
            for entry_id in places:
                found = await twins.index.look_up(
                    ledger_id, entry_id, entry_id, twins.indexed_highest[ledger_id], 3
                )
                is_negative = not found.runs and found.known_to >= entry_id
                assert not is_negative
                if found.runs:
                    assert holds(found.runs, entry_id, places[entry_id])
            listed = await twins.index.stored_runs(ledger_id, min(places), max(places))
            if listed is not None:
                covered = {e for last, first, _, _ in listed for e in range(first, last + 1)}
                missing = [entry_id for entry_id in places if entry_id not in covered]
                assert not missing or max(missing) == max(places)

    run_simulation(main, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_later_runs_do_not_hide_a_lost_run(seed: int) -> None:
    async def main() -> None:
        twins = Twins(random.Random(seed))
        await twins.begin()
        for _ in range(30):
            twins.insert()
        await twins.checkpoint()
        runs = [key for key in twins.store.keys if key.startswith(b"r")]
        tails = [key for key, after in pairwise([*runs, b""]) if key[:9] != after[:9]]
        twins.store.assign(twins.rng.choice(tails if seed % 2 else runs), None)
        for _ in range(3):
            for _ in range(10):
                twins.insert()
            await twins.checkpoint()
        for ledger_id, places in twins.places.items():
            for entry_id in range(IDS + 10):
                found = await twins.index.look_up(
                    ledger_id, entry_id, entry_id, twins.indexed_highest[ledger_id], 3
                )
                is_negative = not found.runs and found.known_to >= entry_id
                assert not is_negative or entry_id not in places
                if found.runs:
                    assert holds(found.runs, entry_id, places[entry_id])

    run_simulation(main, seed)


@pytest.mark.parametrize("steps", range(40))
def test_look_up_during_a_checkpoint_misses_nothing(steps: int) -> None:
    async def main() -> None:
        twins = Twins(random.Random(1))
        await twins.begin()
        twins.store.attach(lambda: asyncio.sleep(0.001), bool)
        twins.index.insert(1, 0, 4, 1 << 32, 10)
        await twins.checkpoint()
        twins.index.insert(1, 5, 9, (1 << 32) + 50, 10)
        checkpoint = asyncio.create_task(twins.checkpoint())
        await asyncio.sleep(steps * 0.00025)
        found = await twins.index.look_up(1, 0, 9, twins.indexed_highest[1], 3)
        assert [run[:2] for run in found.runs] == [(4, 0), (9, 5)]
        await checkpoint

    run_simulation(main, steps)


def test_look_up_with_a_late_answer_sees_runs_that_checkpoints_stored() -> None:
    async def main() -> None:
        twins = Twins(random.Random(1))
        await twins.begin()
        index, store = twins.index, twins.store
        index.insert(1, 0, 9, 1 << 32, 10)
        await index.checkpoint(1, {}, lambda *_: None, [], lambda _: -1)
        may_answer = asyncio.Event()
        view = store.view

        async def view_late(job: Callable[[StoreTransaction], Lookup]) -> Lookup:
            found = await view(job)
            await may_answer.wait()
            return found

        store.view = view_late  # type: ignore[method-assign,assignment]
        asking = asyncio.create_task(index.look_up(1, 5, 40, 9, 64))
        await asyncio.sleep(1)
        for number in (1, 2):  # two checkpoints begin and end
            index.insert(1, 10 * number, 10 * number + 9, (1 << 32) + 1000 * number, 10)
            await index.checkpoint(number + 1, {}, lambda *_: None, [], lambda _: -1)
        index.insert(1, 15, 19, 2 << 32, 5)
        assert not asking.done()
        may_answer.set()
        found = await asking
        assert found.known_to == 40
        assert found.runs == [
            (9, 5, 1 << 32, 10),
            (14, 10, (1 << 32) + 1000, 10),
            (19, 15, 2 << 32, 5),
            (29, 20, (1 << 32) + 2000, 10),
        ]

    run_simulation(main, 1)


def test_a_checkpoint_rests_after_each_transaction_of_runs_and_all_stays_readable() -> None:
    worked: list[float] = []

    async def main() -> None:
        twins = Twins(random.Random(1))
        await twins.begin()
        twins.store.attach(lambda: asyncio.sleep(0.25), bool)
        for number in range(10):
            twins.index.insert(1, 2 * number, 2 * number, (1 << 32) + 100 * number, 10)

        async def rest(worked_s: float) -> None:
            worked.append(worked_s)
            assert twins.index.record_count == 0
            found = await twins.index.look_up(1, 0, 18, -1, 64)
            assert [run[1] for run in found.runs] == list(range(0, 20, 2))

        state = twins.encode
        await twins.index.checkpoint(
            1, {1: None}, state, [], twins.indexed_highest.__getitem__, rest
        )

    run_simulation(main, 1)
    assert worked == pytest.approx([0.5] * 3)  # four runs at a time; the store waits twice for each


def test_moves_happen_only_from_the_old_place() -> None:
    async def main() -> None:
        store = MemoryStore()
        old: list[Run] = [(4, 0, 100, 10), (9, 5, 200, 10), (20, 15, 300, 10)]

        def fill(transaction: StoreTransaction) -> None:
            stored_runs.put_runs(transaction, 3, old, -1)

        await store.update(fill)
        stale = RunMove(3, ((4, 0, 101, 10),), (4, 0, 900, 10))
        joined = RunMove(3, (old[0], old[1]), (9, 0, 500, 20))
        await store.update(lambda t: stored_runs.move_runs(t, [stale, joined]))
        listed = await store.view(lambda t: stored_runs.list_runs(t, 3, 0, 30))
        assert listed == [(9, 0, 500, 20), (20, 15, 300, 10)]
        found = await store.view(lambda t: stored_runs.look_up(t, 3, 0, 20, 10))
        assert [run[:2] for run in found.runs] == [(9, 0), (20, 15)]
        assert found.known_to == 20
        freed, done_count = await store.update(lambda t: stored_runs.delete_runs(t, [3], 1))
        assert (freed, done_count) == ({0: 20}, 0)
        freed, done_count = await store.update(lambda t: stored_runs.delete_runs(t, [3], 1))
        assert (freed, done_count) == ({0: 10}, 1)

    run_simulation(main, 1)


def test_states_are_counted_and_summed() -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.update(
            lambda t: index_pages.write_meta(t, CheckpointMeta(INDEX_VERSION, 0, 0, 0, 0))
        )
        for ledger_id in (5, 6, 5):
            state = ReplicaState(LedgerId(ledger_id))
            state.lac, state.fenced, state.master_key = 3, True, b"k" * 32
            value = state.encode(8)
            values = [(ledger_id, value)]
            await store.update(lambda t, values=values: index_pages.write_states(t, values))  # type: ignore[misc]
            again = replica_state.decode(LedgerId(ledger_id), value)
            assert isinstance(again, ReplicaState)
            assert (again.lac, again.highest, again.fenced) == (3, 8, True)
            assert again.master_key == b"k" * 32
        meta = await store.view(index_pages.read_meta)
        assert meta is not None
        xor = 0
        for stored in await store.view(lambda t: stored_states.get_states(t, (5, 6))):
            assert stored is not None
            xor ^= index_pages.crc_of_state(stored)
        assert (meta.state_count, meta.state_xor) == (2, xor)
        assert dataclasses.replace(meta, mark_lsn=1) != meta

    run_simulation(main, 1)


def test_merged_runs_stay_bounded() -> None:
    runs: list[Run] = []
    for i in range(100):
        index_runs.append_run(runs, (i, i, i * 10, 10), 90)
    assert len(runs) == 12
    assert all(size <= 90 for _, _, _, size in runs)
    assert index_runs.find_gaps(index_runs.find_runs(runs, 3, 120), 3, 120) == [(100, 120)]

"""Power cuts under a complete storage: writers, fences, explicit LACs, deletions, checkpoints,
cleaning and replay.

A model records what was acknowledged; after every crash the storage must agree with it.
"""

import asyncio
import dataclasses
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bookie.errors import BookieError
from bookie.log import records
from bookie.storage.answers import LedgerSnapshot
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.horizon import LedgerStatus
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, entries_of, read

SEEDS = range(50)
LEDGERS = 6
GONE = (Status.DELETED, Status.NO_SUCH_LEDGER)
"""Possible answers for a deleted ledger: its tombstone may have been trimmed."""
NEGATIVES = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)


@dataclass
class Known:
    """Acknowledged state of one ledger."""

    acknowledged: dict[int, None] = field(default_factory=dict)
    tried: dict[int, None] = field(default_factory=dict)
    next_entry_id: int = 0
    lac: int = -1
    lac_tried: int = -1
    fence_tried: bool = False
    fenced: bool = False
    delete_tried: bool = False
    deleted: bool = False


async def write_one(
    storage: BookieStorage, ledger_id: int, known: Known, rng: random.Random
) -> None:
    recovery = known.fence_tried or rng.random() < 0.2
    if recovery and rng.random() < 0.5:
        first = rng.randrange(known.next_entry_id + 3)
    else:
        first = known.next_entry_id + (rng.random() < 0.1)
    count = rng.choice((1, 1, 2, 7))
    entries = range(first, first + count)
    known.next_entry_id = max(known.next_entry_id, first + count)
    known.tried.update(dict.fromkeys(entries))
    batch = make_run(ledger_id, first, count, lac=min(known.lac, first - 1))
    was_fenced, was_deleted = known.fenced, known.deleted
    status = await add(storage, batch, recovery=recovery)
    if status is Status.OK:
        assert not was_deleted
        assert recovery or not was_fenced, "a fence was lost"
        known.acknowledged.update(dict.fromkeys(entries))


async def act(storage: BookieStorage, ledger_id: int, known: Known, rng: random.Random) -> None:
    match rng.randrange(40):
        case 0:
            known.fence_tried = True
            known.fenced |= (await storage.fence(LedgerId(ledger_id), KEY)).status is Status.OK
        case 1 | 2:
            lac = min(known.next_entry_id - 1, known.lac_tried + 2)
            known.lac_tried = max(known.lac_tried, lac)
            snapshot = await storage.write_lac(LedgerId(ledger_id), EntryId(lac), KEY)
            if snapshot.status is Status.OK:
                known.lac = max(known.lac, lac)
        case 3 if rng.random() < 0.3:
            known.delete_tried = True
            known.deleted |= await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        case 4 | 5 | 6:
            await check(storage, ledger_id, known, rng.randrange(known.next_entry_id + 2))
        case 7:
            await storage.checkpoint()
        case 8:
            await storage.clean()
        case _:
            await write_one(storage, ledger_id, known, rng)


async def check(storage: BookieStorage, ledger_id: int, known: Known, entry_id: int) -> None:
    deleted_before, acknowledged = known.deleted, entry_id in known.acknowledged
    result = await read(storage, ledger_id, entry_id, entry_id)
    if deleted_before:
        assert result.status in GONE, "a deleted ledger came back"
    elif result.status in GONE and known.delete_tried:
        return
    elif result.status is Status.DELETED:
        assert known.delete_tried
    elif result.batches:
        assert entries_of(result) == {entry_id: payload_of(ledger_id, entry_id)}
        assert entry_id in known.tried
    else:
        assert not acknowledged, f"ledger {ledger_id} lost entry {entry_id}: {result.status.name}"
        assert result.status in NEGATIVES


async def check_state(storage: BookieStorage, ledger_id: int, known: Known) -> LedgerSnapshot:
    snapshot = await storage.reads.read_lac(LedgerId(ledger_id), KEY)
    if known.deleted:
        assert snapshot.status in GONE, "a deleted ledger came back"
    elif snapshot.status is Status.OK:
        assert known.lac <= snapshot.lac <= known.lac_tried
        assert snapshot.fenced or not known.fenced, "a fence was lost"
    else:
        assert known.delete_tried or not known.fenced, "a fenced ledger was lost"
    return snapshot


async def check_all(storage: BookieStorage, model: dict[int, Known]) -> None:
    for ledger_id, known in model.items():
        for entry_id in range(known.next_entry_id + 2):
            await check(storage, ledger_id, known, entry_id)
        if known.deleted:
            continue
        snapshot = await check_state(storage, ledger_id, known)
        assert known.fence_tried or not snapshot.fenced
        ranges = await storage.reads.entry_ranges(LedgerId(ledger_id), EntryId(0), 10_000)
        held = {e for first, last in ranges.ranges for e in range(first, last + 1)}
        if ranges.status is Status.OK:
            assert all(entry_id in held for entry_id in known.acknowledged)


async def standing(known: Known) -> LedgerStatus:
    """Answer for the metadata service: a ledger that may be deleted has no metadata."""
    await asyncio.sleep(0.001)
    return LedgerStatus.GONE if known.delete_tried else LedgerStatus.OPEN_HERE


async def live(bench: Bench, model: dict[int, Known]) -> None:
    storage = await bench.open()
    await check_all(storage, model)
    background = asyncio.create_task(storage.background())

    async def work(rng: random.Random) -> None:
        while True:
            ledger_id = rng.randrange(LEDGERS)
            await act(storage, ledger_id, model[ledger_id], rng)
            await asyncio.sleep(rng.random() * rng.choice((0.0, 0.1)))

    workers = [work(random.Random(bench.rng.random())) for _ in range(5)]
    await asyncio.gather(background, *workers)


async def crash_again_and_again(seed: int, *, loses_syncs: bool = False) -> None:
    loop, rng = simulation_loop(), random.Random(f"storage crash {seed}")
    config = dataclasses.replace(
        SMALL,
        segment_bytes_max=rng.choice((500, 4_000)),
        checkpoint_records=rng.choice((5, 100)),
        checkpoint_log_bytes=rng.choice((2_000, 20_000)),
        recent_bytes_max=rng.choice((0, 5_000)),
        hot_ledgers_max=rng.choice((1, 2, 100)),
        tombstones_max=rng.choice((0, 1, 100)),
        clean_interval_s=rng.choice((0.3, 5.0)),
        clean_mean_run_bytes_min=rng.choice((0, 300)),
        clean_live_share_max=rng.choice((0.3, 0.9)),
    )
    model = {ledger_id: Known() for ledger_id in range(LEDGERS)}
    bench = Bench(seed, config, lambda ledger_id: standing(model[ledger_id]))
    bench.faults.preallocates = rng.random() < 0.5
    bench.faults.loses_syncs = loses_syncs
    for _ in range(5):
        node, task = loop.spawn(live(bench, model))
        await asyncio.sleep(rng.random() * rng.choice((0.2, 2.0, 4.0)))
        if task.done():
            task.result()
        loop.kill(node)
        bench.platter.crash(rng)
    storage = await bench.open()
    await check_all(storage, model)
    assert not storage.statistics().is_limbo
    storage = await bench.reopen(storage)
    await check_all(storage, model)
    await storage.close()


async def rot(bench: Bench, storage: BookieStorage) -> None:
    """Damage a segment that no start replays; then clean, which meets the damage, and which the
    next checkpoint records.
    """
    begun = records.segment_of(storage.statistics().checkpoint_mark)
    logs = sorted(each for each in bench.platter.names if each.endswith(".log"))
    names = [log for log in logs if int(Path(log).stem, 16) < begun]
    contents = [bench.platter.names[each] for each in names]
    sizes = {n: min(len(c.current), len(c.durable)) for n, c in zip(names, contents, strict=True)}
    if any(sizes.values()):
        name = bench.rng.choice([each for each, size in sizes.items() if size])
        for _ in range(3):
            bench.platter.flip_bit(name, bench.rng.randrange(8 * sizes[name]))
    await storage.clean()


async def change_states(bench: Bench, model: dict[int, Known], cut: asyncio.Event) -> None:
    storage = await bench.open()
    for ledger_id, known in model.items():
        await check_state(storage, ledger_id, known)
    background = asyncio.create_task(storage.background())
    items = sorted(model.items(), key=lambda item: item[0])

    async def change(ledger_id: int, known: Known, rng: random.Random) -> None:
        await asyncio.sleep(rng.random() * 0.01)
        match rng.randrange(8):
            case 0:
                known.fence_tried = True
                fence = await storage.fence(LedgerId(ledger_id), KEY)
                known.fenced |= fence.status is Status.OK
            case 1 if rng.random() < 0.3:
                known.delete_tried = True
                known.deleted |= await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
            case 2 | 3:  # entries that fill segments, and that the damage may take
                first = known.next_entry_id
                known.next_entry_id += 5
                await add(storage, make_run(ledger_id, first, 5, size=50), recovery=True)
            case _:
                lac = known.lac_tried = max(0, known.lac_tried + 1)
                snapshot = await storage.write_lac(LedgerId(ledger_id), EntryId(lac), KEY)
                if snapshot.status is Status.OK:
                    known.lac = max(known.lac, lac)

    async def work(rng: random.Random) -> None:
        while True:
            changes = [change(*item, rng) for item in rng.sample(items, 10)]
            await asyncio.gather(rot(bench, storage), *changes)
            changes = [change(*item, rng) for item in rng.sample(items, 10)]
            await asyncio.gather(storage.checkpoint(), *changes)
            if rng.random() < 0.3:
                cut.set()

    await asyncio.gather(background, work(random.Random(bench.rng.random())))


async def crash_with_damage(seed: int) -> None:
    loop, rng = simulation_loop(), random.Random(f"damaged storage crash {seed}")
    config = dataclasses.replace(
        SMALL,
        segment_bytes_max=rng.choice((500, 2_000)),
        checkpoint_log_bytes=rng.choice((2_000, 20_000)),
        clean_interval_s=0.3,
        clean_live_share_max=0.9,
    )
    model = {ledger_id: Known() for ledger_id in range(40)}
    bench = Bench(seed, config, lambda ledger_id: standing(model[ledger_id]))
    for _ in range(8):
        cut = asyncio.Event()
        node, task = loop.spawn(change_states(bench, model, cut))
        ended = asyncio.ensure_future(cut.wait())
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        loop.kill(node)
        bench.platter.crash(rng)
    storage = await bench.open()
    for ledger_id, known in model.items():
        await check_state(storage, ledger_id, known)
    await storage.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_state_is_forgotten_while_old_segments_are_damaged(seed: int) -> None:
    run_simulation(lambda: crash_with_damage(seed), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_changed(seed: int) -> None:
    run_simulation(lambda: crash_again_and_again(seed), seed)


def test_the_negative_control_without_sync_loses_entries() -> None:
    lost = 0
    for seed in SEEDS:
        try:
            run_simulation(lambda seed=seed: crash_again_and_again(seed, loses_syncs=True), seed)  # type: ignore[misc]
        except (AssertionError, BookieError):
            lost += 1
    assert lost > len(SEEDS) // 2

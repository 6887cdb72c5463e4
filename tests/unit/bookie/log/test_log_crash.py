"""Power cuts during group commits and during replay, for the log alone.

Every seed draws sizes, segment length, delays, preallocation and the moments of two crashes.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from bookie.config import StorageConfig
from bookie.errors import BookieError
from bookie.log import records
from bookie.log.log import Log, LogItem
from bookie.log.records import Record, RecordKind
from bookie.log.recovery_scan import LogReplay, ReplayOutcome, find_segments
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run

SEEDS = range(50)


@dataclass
class History:
    """Records that the writer queued, and how many of them were acknowledged."""

    queued: list[tuple[int, bytes]] = field(default_factory=list)
    acknowledged: int = 0


def draw_record(rng: random.Random, number: int) -> tuple[int, bytes]:
    ledger_id = rng.randrange(5)
    match rng.randrange(8):
        case 0:
            return RecordKind.FENCE, records.encode_ledger(ledger_id)  # type: ignore[arg-type]
        case 1:
            return RecordKind.EXPLICIT_LAC, records.encode_lac(ledger_id, number)  # type: ignore[arg-type]
        case 2:
            return RecordKind.TOMBSTONE, records.encode_ledger(ledger_id)  # type: ignore[arg-type]
        case _:
            batch = make_run(
                ledger_id, number * 10, rng.randint(1, 5), size=rng.choice((0, 30, 900))
            )
            return RecordKind.ADDS, bytes(batch.data)


async def replay(
    disk: CrashableDisk,
) -> tuple[list[tuple[int, bytes]], ReplayOutcome, Log, History]:
    found: list[tuple[int, bytes]] = []

    def apply(record: Record) -> None:
        if record.header.kind not in (RecordKind.HEAD, RecordKind.FOOTER):
            found.append((record.header.kind, bytes(record.body)))

    segments = await find_segments(disk)
    outcome = await LogReplay(disk, segments, 0, apply).run()
    history = History(queued=list(found), acknowledged=len(found))

    def on_group(group: list[LogItem], error: BookieError | None) -> None:
        assert error is None
        for item in group:
            assert (item.kind, item.body) == history.queued[history.acknowledged]
            history.acknowledged += 1

    config = StorageConfig(
        segment_bytes_max=disk.rng.choice((600, 4_000, 100_000)), group_bytes_max=3_000
    )
    log = Log(disk, config, segments, outcome.end_lsn, on_group)
    return found, outcome, log, history


async def write(disk: CrashableDisk, histories: list[History]) -> None:
    _, outcome, log, history = await replay(disk)
    assert not outcome.corrupt
    histories.append(history)
    running = asyncio.create_task(log.run())
    for number in range(400):
        kind, body = draw_record(disk.rng, len(histories) * 1_000 + number)
        history.queued.append((kind, body))
        log.append(kind, body, None)
        if disk.rng.random() < 0.3:
            await asyncio.sleep(disk.rng.random() * 0.02)
    await running


async def crash_and_replay(seed: int, *, loses_syncs: bool) -> None:
    rng = random.Random(f"crash {seed}")
    loop, platter, histories = simulation_loop(), Platter(), list[History]()
    faults = DiskFaults(preallocates=rng.random() < 0.5, loses_syncs=loses_syncs)
    for _ in range(3):
        node, _task = loop.spawn(write(CrashableDisk(platter, rng, faults), histories))
        before = len(histories)
        await asyncio.sleep(rng.random() * rng.choice((0.05, 1.0, 4.0)))
        loop.kill(node)
        platter.crash(rng)
        history = histories[-1] if len(histories) > before else None
        for _ in range(rng.randrange(3)):  # crashes during replay
            node, _replay = loop.spawn(replay(CrashableDisk(platter, rng, faults)))
            await asyncio.sleep(rng.random() * 0.1)
            loop.kill(node)
            platter.crash(rng)
        found, outcome, _, _ = await replay(CrashableDisk(platter, rng, faults))
        platter.locked = False
        assert not outcome.corrupt
        if history is not None:
            assert history.acknowledged <= len(found), "an acknowledged record was lost"
            assert found == history.queued[: len(found)], "a record was changed"


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_changed(seed: int) -> None:
    run_simulation(lambda: crash_and_replay(seed, loses_syncs=False), seed)


def test_the_negative_control_without_sync_loses_records() -> None:
    lost = 0
    for seed in SEEDS:
        try:
            run_simulation(lambda seed=seed: crash_and_replay(seed, loses_syncs=True), seed)  # type: ignore[misc]
        except AssertionError:
            lost += 1
    assert lost > len(SEEDS) // 2

"""Bytes that a log leaves in the system's page cache (decision 0007), on the simulated disk."""

import asyncio
import random

import pytest

from bookie.config import MIB, StorageConfig
from bookie.log.log import CACHE_DROP_BYTES, Log
from bookie.log.records import ADDS
from bookie.log.segments import Segments
from tests.simulation.disk import CrashableDisk, Platter
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run

SEGMENT_BYTES = 20 * MIB


async def dropped_by_segment(cached_bytes_max: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """Write 60 records of a megabyte; return each segment's size and its dropped ranges."""
    platter = Platter()
    disk = CrashableDisk(platter, random.Random(1))
    config = StorageConfig(segment_bytes_max=SEGMENT_BYTES, cached_bytes_max=cached_bytes_max)
    log = Log(disk, config, Segments(disk), 0, lambda _group, _error: None)
    running = asyncio.create_task(log.run())
    for number in range(60):
        log.append(ADDS, bytes(make_run(7, number, 1, size=MIB).data), None)
        if number % 3 == 2:
            await log.barrier()
    log.close()
    await running
    return [(len(file.durable), file.dropped) for _, file in sorted(platter.names.items())]


@pytest.mark.parametrize("cached_bytes_max", [0, 6 * MIB])
def test_synced_bytes_are_dropped_once_and_in_order(cached_bytes_max: int) -> None:
    segments = run_simulation(lambda: dropped_by_segment(cached_bytes_max), 1)
    assert len(segments) >= 3
    for size, dropped in segments:
        end = 0
        for offset, length in dropped:
            assert offset == end
            assert length >= CACHE_DROP_BYTES
            end += length
        assert 0 <= size - cached_bytes_max - end < CACHE_DROP_BYTES


def test_a_cache_as_large_as_a_segment_keeps_all() -> None:
    segments = run_simulation(lambda: dropped_by_segment(2 * SEGMENT_BYTES), 1)
    assert [dropped for _, dropped in segments] == [[]] * len(segments)

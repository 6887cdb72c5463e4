"""`python -m benchmarks.floods.flooder`: the process of the bad clients, at a low priority.

Leaves its start, and what is measured meanwhile, to `benchmarks.floods.flooder_process`.

Format: a line of the standard input is a job, and begins a flood; the next one ends it. Lines of
the standard output: `{"full": true}` once all bad clients have come, then the counts of the flood
with its time and processor time.

Invariants: a flood ends after FLOOD_S_MAX, and with the standard input.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from time import perf_counter
from typing import Final

from benchmarks.floods.attach_flood import flood_with_attaches
from benchmarks.floods.broker_floods import (
    flood_with_fetches,
    flood_with_requests,
    flood_with_sessions,
)
from benchmarks.floods.flood_job import FloodCounts, FloodJob, FloodRun
from benchmarks.floods.gateway_floods import flood_with_watches
from benchmarks.floods.kinds import FloodKind
from benchmarks.floods.silent_connections import flood_admin, flood_with_handshakes
from benchmarks.floods.stuck_clients import flood_with_reads, flood_with_stuck
from benchmarks.runner import run_loop

FLOOD_S_MAX: Final = 60.0
NICENESS: Final = 10
LINE_BYTES_MAX: Final = 64 * 1024

FLOODS: Final[Mapping[FloodKind, Callable[[FloodRun], Awaitable[None]]]] = {
    FloodKind.STUCK: flood_with_stuck,
    FloodKind.READS: flood_with_reads,
    FloodKind.ATTACHES: flood_with_attaches,
    FloodKind.FETCHES: flood_with_fetches,
    FloodKind.SESSIONS: flood_with_sessions,
    FloodKind.REQUESTS: flood_with_requests,
    FloodKind.HANDSHAKES: flood_with_handshakes,
    FloodKind.ADMIN: flood_admin,
    FloodKind.WATCHES: flood_with_watches,
}


async def _serve() -> None:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await _flood(FloodJob.from_json(line.decode()), reader)


async def _flood(job: FloodJob, reader: asyncio.StreamReader) -> None:
    """Flood until the next line."""
    counts, began, before = FloodCounts(), perf_counter(), os.times()
    is_full = False

    def note_full() -> None:
        nonlocal is_full
        if not is_full:
            _print({"full": True})
        is_full = True

    run = FloodRun(job, counts, note_full)
    flooding = asyncio.ensure_future(FLOODS[job.kind](run))
    ending = asyncio.ensure_future(reader.readline())
    await asyncio.wait({flooding, ending}, timeout=FLOOD_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    elapsed, after = perf_counter() - began, os.times()
    flooding.cancel()
    with suppress(asyncio.CancelledError):
        await flooding
    used = after.user + after.system - before.user - before.system
    await ending
    _print({**asdict(counts), "flood_s": elapsed, "cpu_share": used / elapsed})


def _print(values: Mapping[str, object]) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    os.nice(NICENESS)
    run_loop(_serve())

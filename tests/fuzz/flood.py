"""`python -m tests.fuzz.flood --connections 400 --seconds 10`: a real bookie with hundreds of bad
clients.

They never say hello, send a byte per second, announce huge frames, or read no answers, of reads or
of long polls. One good client's appends are timed with and without them. Prints one JSON object.
The exit status is 1 if an append failed, an entry was read wrong, or the bookie's memory grew
beyond its limits. Leaves the bad clients to `tests.fuzz.flood_clients`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ledger_client import ClientConfig, LedgerClient, LedgerError, LedgerWriter, Quorum
from quire.local.local_bookie import LocalBookie
from quire.local_cluster import LocalCluster
from tests.fuzz.flood_clients import CONNECTION_BYTES_MAX, ENTRIES, ENTRY_BYTES, BadClients, Kind

MIB: Final = 1024 * 1024
ONE_BOOKIE: Final = Quorum(ensemble=1, write=1, ack=1)
CONFIG: Final = ClientConfig(add_timeout_s=30.0, append_deadline_s=60.0)
"""A sync on a busy disk can take more than the default 5 s; latencies are reported, not judged."""
APPEND_PERIOD_S: Final = 0.005
SETTLE_S: Final = 1.5
"""Time until all connections of a phase are open, in seconds."""
SLACK_BYTES: Final = 64 * MIB
"""Memory that the good client's own entries, and the allocator, may add."""
CLIENT_ENTRY_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Phase:
    """Results of the good client, and the bookie's memory, during one phase of bad clients."""

    bad_clients: str
    connections: int
    appends: int
    failures: int
    p50_ms: float
    """Latencies are reported but not judged: a busy machine makes them long."""
    p99_ms: float
    max_ms: float
    bookie_peak_mb: float
    bookie_peak_mb_allowed: float
    """Limit for the connections of this phase, or of the earlier phase that held the most."""
    bookie_mb_after: float
    disconnected: int


@dataclass(frozen=True, slots=True)
class Flood:
    """Options: number of connections in each phase, and its length."""

    connections: int
    seconds: float
    kinds: tuple[Kind, ...] = tuple(Kind)
    seed: int = 1
    is_short: bool = False
    """Leaves out the phases with bad clients of a single kind."""


async def run_flood(flood: Flood) -> dict[str, object]:
    """Run all phases on a cluster of one bookie; return the results to print."""
    async with (
        LocalCluster(1) as cluster,
        LedgerClient(cluster.metadata_uri, config=CONFIG) as client,
    ):
        bookie = cluster.bookies[0]
        host, port = bookie.address.rsplit(":", 1)
        rng = random.Random(flood.seed)
        bad_clients = BadClients((host, int(port)), bookie.id, rng)
        await bad_clients.store_entries()
        base_bytes = _memory_bytes(bookie, "VmRSS") + ENTRIES * ENTRY_BYTES
        async with client.create_ledger(ONE_BOOKIE) as ledger:
            good = _GoodClient(ledger, rng)
            alone = [] if flood.is_short else [(kind,) for kind in flood.kinds]
            together = [flood.kinds] if len(flood.kinds) > len(alone) or len(alone) > 1 else []
            phases = [
                await _run_phase(good, bookie, bad_clients, flood, kinds, base_bytes)
                for kinds in ((), *alone, *together, ())
            ]
        wrong = await good.count_wrong(client)
    is_bounded = all(each.bookie_peak_mb <= each.bookie_peak_mb_allowed for each in phases)
    failures = sum(each.failures for each in phases)
    return {
        "phases": [asdict(each) for each in phases],
        "entries_appended": len(good.appended),
        "entries_wrong": wrong,
        "is_memory_bounded": is_bounded,
        "is_well": is_bounded and not failures and not wrong,
    }


class _GoodClient:
    """Appends one entry at a time, and keeps a copy of what it appended."""

    def __init__(self, ledger: LedgerWriter, rng: random.Random) -> None:
        self.appended: list[bytes] = []
        self._ledger = ledger
        self._rng = rng

    async def append_for(self, seconds: float) -> tuple[list[float], int]:
        """Append for some time; return the latencies, and the number of failed appends."""
        loop = asyncio.get_running_loop()
        latencies: list[float] = []
        end = loop.time() + seconds
        failures = 0
        while loop.time() < end:
            entry = self._rng.randbytes(CLIENT_ENTRY_BYTES)
            began = loop.time()
            try:
                await self._ledger.append(entry)
            except LedgerError:
                failures += 1
                await asyncio.sleep(SETTLE_S)
            else:
                latencies.append(loop.time() - began)
                self.appended.append(entry)
            await asyncio.sleep(APPEND_PERIOD_S)
        return latencies, failures

    async def count_wrong(self, client: LedgerClient) -> int:
        """Read all entries back; return how many are missing or differ."""
        last = len(self.appended) - 1
        async with client.open_ledger(self._ledger.id) as reader:
            found = [entry.data async for batch in reader.read(0, last) for entry in batch]
        equal = sum(a == b for a, b in zip(found, self.appended, strict=False))
        return len(self.appended) - equal


async def _run_phase(
    good: _GoodClient,
    bookie: LocalBookie,
    bad_clients: BadClients,
    flood: Flood,
    kinds: Sequence[Kind],
    base_bytes: int,
) -> Phase:
    _forget_peak(bookie)
    disconnected_before = bad_clients.disconnected
    each = flood.connections // max(1, len(kinds))
    for kind in kinds:
        bad_clients.come(kind, each)
    if kinds:
        await good.append_for(SETTLE_S)
    latencies, failures = await good.append_for(flood.seconds)
    peak = _memory_bytes(bookie, "VmHWM")
    await bad_clients.go()
    if kinds:
        await asyncio.sleep(SETTLE_S)
    after = _memory_bytes(bookie, "VmRSS")
    ordered = sorted(latencies) or [float("inf")]
    disconnected = bad_clients.disconnected - disconnected_before
    held = sum(each * CONNECTION_BYTES_MAX[kind] for kind in kinds)
    # A disconnected client connects again before all memory of its last connection is free.
    held += disconnected * max([CONNECTION_BYTES_MAX[kind] for kind in kinds], default=0)
    # Memory that connections returned may stay with the allocator, for the next ones.
    bad_clients.most_held_bytes = max(bad_clients.most_held_bytes, held)
    allowed = base_bytes + SLACK_BYTES + bad_clients.most_held_bytes
    return Phase(
        bad_clients="+".join(kinds) or "none",
        connections=each * len(kinds),
        appends=len(latencies),
        failures=failures,
        p50_ms=round(1000 * ordered[len(ordered) // 2], 2),
        p99_ms=round(1000 * ordered[len(ordered) * 99 // 100], 2),
        max_ms=round(1000 * ordered[-1], 2),
        bookie_peak_mb=round(peak / MIB, 1),
        bookie_peak_mb_allowed=round(allowed / MIB, 1),
        bookie_mb_after=round(after / MIB, 1),
        disconnected=disconnected,
    )


def _memory_bytes(bookie: LocalBookie, name: str) -> int:
    """Return a figure of the bookie's memory; 0 where the system does not report it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{bookie.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _forget_peak(bookie: LocalBookie) -> None:
    """Reset the bookie's memory peak to its current use, where the system can."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{bookie.pid}/clear_refs").write_text("5")


def main() -> int:
    """Run a flood."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.flood", description=__doc__)
    parser.add_argument("--connections", type=int, default=400, help="open at a time in each phase")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each phase")
    parser.add_argument("--kind", nargs="+", choices=list(Kind), default=list(Kind))
    parser.add_argument("--seed", type=int, default=random.Random(os.urandom(8)).randrange(2**32))
    given = parser.parse_args()
    flood = Flood(given.connections, given.seconds, tuple(map(Kind, given.kind)), given.seed)
    summary = asyncio.run(run_flood(flood))
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if summary["is_well"] else 1


if __name__ == "__main__":
    sys.exit(main())
